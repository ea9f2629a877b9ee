package wire

import "github.com/stageline/stageline/collector/run"

// sureness is an answer to "is it this?" while bytes are still coming.
type sureness uint8

const (
	no sureness = iota
	maybe
	likely // a beginning that hardly means anything else
	sure
)

const greetingLen = 64

// greetingAt recognises the ZMTP 3 greeting: signature ff, 8 bytes, 7f, then the major version.
func greetingAt(t *tape, p uint64) sureness {
	b, st := t.peekAt(p, 11)
	for i, c := range b {
		switch {
		case i == 0 && c != 0xff, i > 0 && i < 8 && c != 0, i == 9 && c != 0x7f, i == 10 && c < 3:
			return no
		}
	}
	switch {
	case len(b) == 11:
		return sure
	case st == peekHole || len(b) == 0:
		return no
	}
	return likely
}

// greet passes the greeting: 10 bytes signature, 2 version, 20 mechanism, 1 role, 31 filler.
func (d *framed) greet(s *stream) result {
	if s.tape.empty() {
		return stepMore
	}
	if !s.open {
		s.begin()
	}
	end := s.openPos + greetingLen
	for {
		k, ok := s.tape.take(end)
		if !ok {
			break
		}
		if k.call.lost {
			return stepHole
		}
	}
	if s.tape.pos < end {
		return stepMore
	}
	d.greeting, s.open = false, false
	m := run.Message{Pos: s.openPos, End: end, Proto: "zmtp", Type: "GREETING", Chunk: -1, Bytes: greetingLen}
	s.emit(&m, s.openCall, s.tape.prev)
	return stepAgain
}
