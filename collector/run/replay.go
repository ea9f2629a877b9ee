package run

import (
	"errors"
	"fmt"
	"io"
)

// replay decodes segments into a sink.
type replay struct {
	sink  Sink
	stats *ReplayStats
	runID string
	last  int64 // latest moment seen

	c codec
	// One of each kind, used again for every record.
	endpoint Endpoint
	io       IO
	message  Message
	gap      Gap
	base     Base
	shm      Shm
	offCPU   OffCPU
	proc     Proc
	net      Net
	loss     Loss
	note     Note
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
	at, deliver := re.decode(kind)
	if re.c.bad {
		return errUndecodable
	}
	if !deliver {
		re.stats.Unknown[kind]++
		return nil
	}
	re.stats.Records++
	re.last = max(re.last, at)
	re.deliver(kind)
	return nil
}

// decode fills the record of a kind and returns its moment.
func (re *replay) decode(kind uint64) (at int64, known bool) {
	switch kind {
	case kindEndpoint:
		re.c.endpoint(&re.endpoint)
		return re.endpoint.FirstNS, true
	case kindIO:
		re.c.io(&re.io)
		return re.io.ExitNS, true
	case kindMessage:
		re.c.message(&re.message)
		return re.message.LastExitNS, true
	case kindGap:
		re.c.gap(&re.gap)
		return re.gap.AtNS, true
	case kindBase:
		re.c.baseOf(&re.base)
		return re.base.LastNS, true
	case kindShm:
		re.c.shm(&re.shm)
		return re.shm.ExitNS, true
	case kindOffCPU:
		re.c.offCPU(&re.offCPU)
		return re.offCPU.InNS, true
	case kindProc:
		re.c.proc(&re.proc)
		return re.proc.AtNS, true
	case kindNet:
		re.c.net(&re.net)
		return re.net.AtNS, true
	case kindLoss:
		re.c.loss(&re.loss)
		return re.loss.ToNS, true
	case kindNote:
		re.c.note(&re.note)
		return re.note.AtNS, true
	}
	return 0, false
}

func (re *replay) deliver(kind uint64) {
	switch kind {
	case kindEndpoint:
		re.sink.Endpoint(&re.endpoint)
	case kindIO:
		re.sink.IO(&re.io)
	case kindMessage:
		re.sink.Message(&re.message)
	case kindGap:
		re.sink.Gap(&re.gap)
	case kindBase:
		re.sink.Base(&re.base)
	case kindShm:
		re.sink.Shm(&re.shm)
	case kindOffCPU:
		re.sink.OffCPU(&re.offCPU)
	case kindProc:
		re.sink.Proc(&re.proc)
	case kindNet:
		re.sink.Net(&re.net)
	case kindLoss:
		re.sink.Loss(&re.loss)
	case kindNote:
		re.sink.Note(&re.note)
	}
}
