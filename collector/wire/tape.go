package wire

// call is one io call, or a lost stretch, as far as it lies in the stream.
type call struct {
	pos, end    uint64
	enter, exit int64
	tgid, tid   uint32
	turn        uint32 // changes whenever the direction of the traffic does
	lost        bool
}

// segment is a call and its captured head; data starts at call.pos.
type segment struct {
	call
	data    []byte
	owned   bool
	refused bool // no known protocol begins here
}

// tape is the part of one direction that has been put in order and not yet consumed. Captured
// bytes, bytes beyond a captured head and lost bytes all have their place on it, so that a position
// always says where one is.
type tape struct {
	pos, end uint64
	segs     []segment
	prev     call // the call that holds byte pos-1
	scratch  []byte
}

type peeked uint8

const (
	peekFull peeked = iota // all that was asked for
	peekMore               // the tape ends before that: later calls may bring it
	peekHole               // bytes that were not captured or were lost come before that
)

func (t *tape) empty() bool { return t.pos == t.end }

// add appends a segment that starts at t.end.
func (t *tape) add(s segment) {
	if t.pos == t.end {
		t.segs = t.segs[:0]
	}
	t.segs = append(t.segs, s)
	t.end = s.end
}

// retain copies what the caller lent, so that it survives the call to Feed.
func (t *tape) retain() {
	for i := range t.segs {
		s := &t.segs[i]
		if !s.owned && len(s.data) > 0 {
			s.data = append([]byte(nil), s.data...)
		}
		s.owned = true
	}
}

// held counts the captured bytes on the tape.
func (t *tape) held() (n int) {
	for i := range t.segs {
		n += len(t.segs[i].data)
	}
	return n
}

// captured returns the captured bytes of s from p.
func (s *segment) captured(p uint64) []byte {
	if off := p - s.pos; off < uint64(len(s.data)) {
		return s.data[off:]
	}
	return nil
}

// peekAt returns up to n captured bytes at p, which is not before t.pos. They are valid until the
// next peek.
func (t *tape) peekAt(p uint64, n int) ([]byte, peeked) {
	i := t.find(p)
	if i < 0 {
		return nil, peekMore
	}
	first := t.segs[i].captured(p)
	if len(first) >= n {
		return first[:n], peekFull
	}
	if p+uint64(len(first)) < t.segs[i].end {
		return first, peekHole
	}
	if i == len(t.segs)-1 {
		return first, peekMore
	}
	t.scratch = append(t.scratch[:0], first...)
	for i++; i < len(t.segs); i++ {
		s := &t.segs[i]
		k := min(n-len(t.scratch), len(s.data))
		t.scratch = append(t.scratch, s.data[:k]...)
		if len(t.scratch) == n {
			return t.scratch, peekFull
		}
		if s.pos+uint64(k) < s.end {
			return t.scratch, peekHole
		}
	}
	return t.scratch, peekMore
}

func (t *tape) peek(n int) ([]byte, peeked) { return t.peekAt(t.pos, n) }

// find returns the index of the segment that holds p, -1 past the end.
func (t *tape) find(p uint64) int {
	for i := range t.segs {
		if p < t.segs[i].end {
			return i
		}
	}
	return -1
}

// piece is a stretch of one call: captured bytes, or a hole of n bytes.
type piece struct {
	pos  uint64
	n    uint64
	data []byte // nil: not captured, or lost
	call call
}

// take consumes and returns the next piece before until; ok is false when the tape has none.
func (t *tape) take(until uint64) (p piece, ok bool) {
	if t.pos >= t.end || t.pos >= until {
		return piece{}, false
	}
	s := &t.segs[0]
	p = piece{pos: t.pos, call: s.call}
	if p.data = s.captured(t.pos); p.data != nil {
		p.n = min(uint64(len(p.data)), until-t.pos)
		p.data = p.data[:p.n]
	} else {
		p.n = min(s.end, until) - t.pos
	}
	t.advance(t.pos + p.n)
	return p, true
}

// advance consumes up to p, at most to the end of the tape.
func (t *tape) advance(p uint64) {
	t.pos = min(p, t.end)
	n := 0
	for n < len(t.segs) && t.segs[n].end <= t.pos {
		t.prev = t.segs[n].call
		n++
	}
	if n > 0 {
		k := copy(t.segs, t.segs[n:])
		clear(t.segs[k:])
		t.segs = t.segs[:k]
	}
	if len(t.segs) > 0 && t.segs[0].pos < t.pos {
		t.prev = t.segs[0].call
	}
}

// at returns the call of the next byte; only valid when the tape is not empty.
func (t *tape) at() call { return t.segs[0].call }

// nextCall returns the start of the first call on the tape that starts after p.
func (t *tape) nextCall(p uint64) (uint64, bool) {
	for i := range t.segs {
		if t.segs[i].pos > p && !t.segs[i].lost {
			return t.segs[i].pos, true
		}
	}
	return 0, false
}

// callEnd reports whether p is the end of a call on the tape (or of the last one consumed).
func (t *tape) callEnd(p uint64) bool {
	for i := range t.segs {
		if t.segs[i].end >= p {
			return t.segs[i].end == p
		}
	}
	return t.prev.end == p
}
