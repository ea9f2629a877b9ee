package run

import (
	"errors"
	"fmt"
	"io"
)

// replay passes records to a sink.
type replay struct {
	sink  Sink
	stats *ReplayStats
	runID string
	last  int64 // latest moment seen

	c codec
	rows
}

var errUndecodable = errors.New("a record's checksum is right but its content is not: written by another program, or made up")

// segment decodes one segment. *damage: it ended before its bytes did; all records before were
// passed on.
func (re *replay) segment(r io.Reader, size int64, number uint32) error {
	s, err := newScanner(r, size)
	if err != nil {
		return err
	}
	re.c = codec{decode: true, table: re.c.table[:0], idSlab: re.c.idSlab, shmSlab: re.c.shmSlab}
	for first := true; ; first = false {
		payload, err := s.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		re.c.b = payload
		kind := re.c.getU()
		if first {
			err = re.header(kind, number)
		} else {
			err = re.record(kind)
		}
		if err != nil {
			return fmt.Errorf("record before offset %d: %w", s.off, err)
		}
	}
}

func (re *replay) header(kind uint64, number uint32) error {
	var schema, runID string
	var segment uint32
	re.c.header(&schema, &runID, &segment, &re.c.base)
	if kind != kindHeader || re.c.bad {
		return errors.New("the segment does not begin with a header")
	}
	if err := checkSchema("the segment", schema); err != nil {
		return err
	}
	if runID != re.runID || segment != number {
		return fmt.Errorf("this is segment %d of run %.80q, not segment %d of run %.80q", segment, runID, number, re.runID)
	}
	return nil
}

// record decodes one record and passes it on.
func (re *replay) record(kind uint64) error {
	if kind == kindString {
		var s string
		re.c.text(&s)
		if re.c.bad || len(s) > maxSymbol || len(re.c.table) >= maxTable {
			return errUndecodable
		}
		re.c.table = append(re.c.table, s)
		return nil
	}
	known := re.c.record(kind, &re.rows)
	if re.c.bad {
		return errUndecodable
	}
	if !known {
		re.stats.Unknown[kind]++
		return nil
	}
	re.deliver(kind)
	return nil
}

// deliver passes the record of a kind on.
func (re *replay) deliver(kind uint64) {
	re.stats.Records++
	re.last = max(re.last, re.at(kind))
	re.pass(kind, re.sink)
}

// record codes the record of a kind; false when this program does not know the kind.
func (c *codec) record(kind uint64, r *rows) bool {
	switch kind {
	case kindEndpoint:
		c.endpoint(&r.endpoint)
	case kindIO:
		c.io(&r.io)
	case kindMessage:
		c.message(&r.message)
	case kindGap:
		c.gap(&r.gap)
	case kindBase:
		c.baseOf(&r.base)
	case kindShm:
		c.shm(&r.shm)
	case kindOffCPU:
		c.offCPU(&r.offCPU)
	case kindProc:
		c.proc(&r.proc)
	case kindNet:
		c.net(&r.net)
	case kindLoss:
		c.loss(&r.loss)
	case kindNote:
		c.note(&r.note)
	default:
		return false
	}
	return true
}
