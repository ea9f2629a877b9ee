package run

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	flushBytes   = 256 << 10
	segmentBytes = 64 << 20
)

func segmentName(n uint32) string { return fmt.Sprintf("%s/spool-%05d.sl", dirKernel, n) }

// spool writes records to segments. Its callers hold the Writer's lock.
//
// A record is in the file as soon as its block was passed to write(2): what a killed recorder had
// flushed is kept by the kernel. Blocks end at record boundaries.
type spool struct {
	dir     *directory
	runID   string
	limit   int64 // segment size at which the next one is begun
	f       *os.File
	segment uint32
	size    int64 // of the current segment's file
	fresh   bool  // the current segment has no header yet

	c   codec  // c.b holds the record being encoded
	out []byte // whole frames not yet written

	err     error // first write error; nothing is written after it
	written SpoolInfo
	pending [kindEnd]uint64 // records in out
	lost    [kindEnd]SpoolLoss
	onStop  func() // called once, when err is set
}

func newSpool(dir *directory, runID string, limit int64) *spool {
	s := &spool{dir: dir, runID: runID, limit: limit, fresh: true}
	s.out = make([]byte, 0, flushBytes+64<<10)
	s.c.ids = make(map[string]uint32)
	s.c.define = func(text string) {
		def := appendString(nil, text)
		s.out = appendFrame(s.out, def)
	}
	s.written.Records = make(map[string]uint64)
	return s
}

func appendString(b []byte, text string) []byte {
	c := codec{b: append(b, kindString)}
	c.text(&text)
	return c.b
}

// begin starts a record of a kind (all below 128: one byte).
func (s *spool) begin(kind byte) *codec {
	if s.fresh {
		s.openSegment()
	}
	s.c.b = append(s.c.b[:0], kind)
	return &s.c
}

// end frames the record begun last; at is its moment, for the account of what was lost.
func (s *spool) end(at int64) {
	kind := s.c.b[0]
	if s.err != nil {
		s.out = s.out[:0]
		s.lose(kind, at, 1, uint64(len(s.c.b)))
		return
	}
	if len(s.c.b) > maxRecord {
		lost := Loss{FromNS: at, ToNS: at, Reason: "spool", What: kindNames[kind], N: 1, Bytes: uint64(len(s.c.b))}
		s.begin(kindLoss).loss(&lost)
		s.end(at)
		return
	}
	s.out = appendFrame(s.out, s.c.b)
	s.pending[kind]++
	if len(s.out) >= flushBytes {
		s.flush()
	}
}

// openSegment puts the header before the first record of a segment.
func (s *spool) openSegment() {
	s.fresh = false
	clear(s.c.ids)
	s.c.base = Mono()
	schema := SchemaVersion
	s.c.b = append(s.c.b[:0], kindHeader)
	s.c.header(&schema, &s.runID, &s.segment, &s.c.base)
	s.out = append(s.out, segmentMagic...)
	s.out = appendFrame(s.out, s.c.b)
}

// flush passes all whole records to the kernel.
func (s *spool) flush() {
	if len(s.out) == 0 || s.err != nil {
		return
	}
	if s.f == nil {
		f, err := s.dir.open(segmentName(s.segment), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
		if err != nil {
			s.stop(err, 0)
			return
		}
		s.f, s.size = f, 0
		s.written.Segments++
	}
	n, err := s.f.Write(s.out)
	if err != nil {
		s.stop(err, n)
		return
	}
	s.size += int64(n)
	s.written.Bytes += int64(n)
	s.settle()
	s.out = s.out[:0]
	if s.size >= s.limit {
		err := s.f.Close()
		s.f, s.fresh = nil, true
		s.segment++
		if err != nil {
			s.stop(err, 0)
		}
	}
}

// settle counts pending records as written.
func (s *spool) settle() {
	for kind, n := range s.pending {
		if n > 0 {
			s.written.Records[kindNames[kind]] += n
			s.pending[kind] = 0
		}
	}
}

// stop ends writing after an error. Of the failed block the whole records among the n bytes that
// were written stay; the rest is counted as lost.
func (s *spool) stop(err error, n int) {
	whole := wholeFrames(s.out[:n])
	if s.f != nil && s.f.Truncate(s.size+int64(whole)) == nil {
		s.size += int64(whole)
		s.written.Bytes += int64(whole)
	}
	now := Mono()
	for at := whole; at < len(s.out); {
		if at == 0 && string(s.out[:len(segmentMagic)]) == segmentMagic {
			at = len(segmentMagic)
		}
		payload, size, e := splitFrame(s.out[at:])
		if e != nil {
			break
		}
		if kind := payload[0]; kind >= kindEndpoint {
			s.pending[kind]--
			s.lose(kind, now, 1, uint64(len(payload)))
		}
		at += size
	}
	s.settle()
	s.out = s.out[:0]
	s.err = writeError(s.dir.path, err)
	s.onStop()
}

func (s *spool) lose(kind byte, at int64, n, bytes uint64) {
	l := &s.lost[kind]
	if l.N == 0 {
		l.What, l.FromNS = kindNames[kind], at
	}
	l.ToNS = max(l.ToNS, at)
	l.N += n
	l.Bytes += bytes
}

// info is the account for metadata.json.
func (s *spool) info() SpoolInfo {
	out := s.written
	out.Lost = nil
	for _, l := range s.lost {
		if l.N > 0 {
			out.Lost = append(out.Lost, l)
		}
	}
	if s.err != nil {
		out.Error = s.err.Error()
	}
	return out
}

// writeError says what a failed write means for the run and what to do.
func writeError(dir string, err error) error {
	what := "writing stopped"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, unix.EDQUOT):
		what = "disk full"
	case errors.Is(err, unix.EFBIG):
		what = "file size limit reached"
	}
	return fmt.Errorf("%s: %w; everything recorded before is kept, free space and run `stageline seal %s`", what, err, dir)
}
