package run

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A segment is segmentMagic followed by frames: payload length (uvarint), CRC-32C (little endian)
// over the length's bytes and the payload, payload. The payload's first uvarint is the record kind.
// A length of 0 is invalid, so that a tail of zeros left by a power loss is not a record.
const segmentMagic = "slspool1"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendFrame(out, payload []byte) []byte {
	start := len(out)
	out = binary.AppendUvarint(out, uint64(len(payload)))
	sum := crc32.Update(crc32.Checksum(out[start:], castagnoli), castagnoli, payload)
	out = binary.LittleEndian.AppendUint32(out, sum)
	return append(out, payload...)
}

// damage is a place in a segment from which no whole record can be read.
type damage struct {
	Offset int64
	Bytes  int64 // from Offset to the end of the segment
	Why    string
}

func (d *damage) Error() string {
	return fmt.Sprintf("offset %d: %s (%d bytes not readable)", d.Offset, d.Why, d.Bytes)
}

var errShort = errors.New("ends inside a record")

// splitFrame takes one frame off b. errShort means that b is a proper beginning of a frame.
func splitFrame(b []byte) (payload []byte, size int, err error) {
	length, n := binary.Uvarint(b)
	switch {
	case n == 0:
		return nil, 0, errShort
	case n < 0 || length == 0 || length > maxRecord:
		return nil, 0, errors.New("impossible record length")
	}
	size = n + 4 + int(length)
	if len(b) < size {
		return nil, size, errShort
	}
	payload = b[n+4 : size]
	sum := crc32.Update(crc32.Checksum(b[:n], castagnoli), castagnoli, payload)
	if sum != binary.LittleEndian.Uint32(b[n:]) {
		return nil, 0, errors.New("checksum mismatch")
	}
	return payload, size, nil
}

// scanner yields the frames of one segment. It holds one block; a frame larger than the block grows
// it only as far as the segment really has bytes.
type scanner struct {
	r    io.Reader
	buf  []byte
	lo   int   // unread bytes are buf[lo:]
	off  int64 // offset of buf[lo] in the segment
	size int64 // of the segment
	eof  bool
}

const scanBlock = 256 << 10

// newScanner checks the magic. An empty segment is whole: its recorder was killed before the first
// write.
func newScanner(r io.Reader, size int64) (*scanner, error) {
	s := &scanner{r: r, size: size, buf: make([]byte, 0, min(size, scanBlock))}
	if size == 0 {
		s.eof = true
		return s, nil
	}
	if err := s.fill(len(segmentMagic)); err != nil {
		return nil, err
	}
	if len(s.buf) < len(segmentMagic) || string(s.buf[:len(segmentMagic)]) != segmentMagic {
		return nil, s.damaged("no segment header")
	}
	s.skip(len(segmentMagic))
	return s, nil
}

func (s *scanner) skip(n int) { s.lo += n; s.off += int64(n) }

func (s *scanner) damaged(why string) *damage {
	return &damage{Offset: s.off, Bytes: s.size - s.off, Why: why}
}

// fill reads until n unread bytes are there or the segment ends.
func (s *scanner) fill(n int) error {
	if n > cap(s.buf)-s.lo {
		rest := s.buf[s.lo:]
		if n > cap(s.buf) {
			s.buf = make([]byte, len(rest), n)
		} else {
			s.buf = s.buf[:len(rest)]
		}
		copy(s.buf, rest)
		s.lo = 0
	}
	for len(s.buf)-s.lo < n && !s.eof {
		// Not past the size taken at the start: a live recorder may be appending.
		room := min(int64(cap(s.buf)-len(s.buf)), s.size-s.off-int64(len(s.buf)-s.lo))
		if room == 0 {
			s.eof = true
			break
		}
		k, err := s.r.Read(s.buf[len(s.buf) : len(s.buf)+int(room)])
		s.buf = s.buf[:len(s.buf)+k]
		if err == io.EOF {
			s.eof = true
		} else if err != nil {
			return err
		}
	}
	return nil
}

// next returns the next payload, valid until the following call. io.EOF: the segment ended after a
// whole record; *damage: it did not; another error: it could not be read.
func (s *scanner) next() ([]byte, error) {
	for {
		payload, size, err := splitFrame(s.buf[s.lo:])
		if err == nil {
			s.skip(size)
			return payload, nil
		}
		if err != errShort {
			return nil, s.damaged(err.Error())
		}
		have := len(s.buf) - s.lo
		if s.eof && have == 0 {
			return nil, io.EOF
		}
		if size == 0 {
			size = min(have+1, binary.MaxVarintLen64+1) // one more than fits tells an overlong length
		}
		if int64(size) > s.size-s.off || s.eof {
			return nil, s.atEnd(have)
		}
		if err := s.fill(size); err != nil {
			return nil, err
		}
	}
}

// atEnd tells a segment that ended exactly after a record from one that ended inside.
func (s *scanner) atEnd(have int) error {
	if have == 0 && s.off == s.size {
		return io.EOF
	}
	return s.damaged(errShort.Error())
}

// wholeFrames returns how many bytes at the beginning of a written block hold whole frames.
func wholeFrames(b []byte) int {
	at := 0
	if len(b) >= len(segmentMagic) && string(b[:len(segmentMagic)]) == segmentMagic {
		at = len(segmentMagic)
	}
	for {
		_, size, err := splitFrame(b[at:])
		if err != nil {
			return at
		}
		at += size
	}
}
