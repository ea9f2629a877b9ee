package wire

import "github.com/stageline/stageline/collector/run"

// burst is a run of calls on a stream of no known protocol; see the package documentation.
type burst struct {
	open        bool
	first, last call
	pos, end    uint64
	small       bool // no call of more than wakeLen bytes so far
	calls       uint64
}

// wakeLen is the size up to which a call on a pipe or unix socket is a wake-up.
const wakeLen = 2

// opaque takes the rest of one call into the burst, unless a known protocol begins with it.
func (s *stream) opaque() bool {
	g := s.tape.segs[0]
	if g.lost {
		s.endBurst(0)
		s.chains = nil
		s.tape.advance(g.end)
		return true
	}
	if s.tape.pos == g.pos && s.recognise(g) {
		return true
	}
	var now decoder
	if g.end-g.pos > wakeLen {
		now = s.chain(&g)
	}
	s.extend(g.call)
	s.tape.advance(g.end)
	if now != nil {
		s.endBurst(0)
		s.become(now)
	}
	return true
}

func (s *stream) extend(k call) {
	b := &s.burst
	if b.open && (k.enter-b.last.exit > int64(BurstIdle) || s.tape.pos != b.end || k.turn != b.last.turn) {
		s.endBurst(0)
	}
	if !b.open {
		*b = burst{open: true, first: k, pos: s.tape.pos, small: true}
	}
	b.last, b.end = k, k.end
	b.small = b.small && k.end-s.tape.pos <= wakeLen
	b.calls++
}

// endBurst emits the burst in progress. A non-zero beforeNS spares one whose last call returned
// after it.
func (s *stream) endBurst(beforeNS int64) {
	b := &s.burst
	if !b.open || beforeNS != 0 && b.last.exit > beforeNS {
		return
	}
	b.open = false
	tr := s.conn.ep.Transport
	if b.small && (tr == run.TransportPipe || tr == run.TransportUnix || tr == run.TransportUnixDG) {
		s.conn.stats.Noise += b.calls
		return
	}
	m := run.Message{Pos: b.pos, End: b.end, Proto: "burst", Chunk: -1, Bytes: int64(b.end - b.pos)}
	s.emit(&m, b.first, b.last)
	s.isHeld = false
	s.conn.out.Message(&s.held)
}

// chain is a row of candidate frames of one framing along an opaque stream.
type chain struct {
	f             *framing
	next          uint64 // where the next header should be
	on            bool
	hits, aligned int
	fit           int
	tail          bool // the last frame ends its message, in a call still to come
	long          bool // and has a 64-bit length and a body that fits
}

// Frames in a row, and calls that end with one, before an opaque stream is taken for framed.
const (
	chainHits    = 6
	chainAligned = 4
	// A longer frame is not believed here: it would end the search.
	maxChainFrame = 1 << 24
)

// chain follows candidate frames through call g and returns a decoder once one framing is proved
// and g ends with a frame.
func (s *stream) chain(g *segment) decoder {
	if s.chains == nil {
		s.chains = make([]chain, len(framings))
		for i, f := range framings {
			s.chains[i].f = f
		}
	}
	for i := range s.chains {
		c := &s.chains[i]
		if !c.on || c.next < g.pos {
			*c = chain{f: c.f, on: true, next: g.pos}
		}
		proved := c.arrived(g)
		c.follow(g)
		proved = proved || c.hits >= chainHits && c.aligned >= chainAligned && (c.fit > 0 || !c.f.fit)
		if proved && c.on && c.next == g.end {
			s.guesses = confirmAfter
			return &framed{f: c.f}
		}
	}
	return nil
}

// arrived notes that a frame which began in an earlier call ends with this one. That a 64-bit number
// was the way there is no chance.
func (c *chain) arrived(g *segment) (proved bool) {
	if !c.on || !c.tail || c.next != g.end {
		return false
	}
	c.aligned++
	c.tail = false
	return c.long
}

func (c *chain) follow(g *segment) {
	for c.next < g.end {
		b := g.captured(c.next)
		h, got := c.f.parse(b, true)
		if got != headerOK || h.command {
			c.on = false
			return
		}
		fit := c.f.fits(h, b[h.size:])
		if fit {
			c.fit++
		}
		c.next += uint64(h.size) + h.body
		if c.next-g.end > maxChainFrame && c.next > g.end {
			c.on = false
			return
		}
		c.hits++
		if c.next == g.end && !h.more {
			c.aligned++
		}
		c.tail = c.next > g.end && !h.more
		c.long = c.f == zmtpFraming && h.size == 9 && fit
	}
}
