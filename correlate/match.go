package correlate

import (
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// contentKey recognises one message at both ends of a stream whose positions are not aligned yet.
type contentKey struct {
	id, typ string
	chunk   int64
	bytes   uint64
}

// tie joins a crossing to a request; the flags say at which end its id stood.
type tie struct {
	req            *request
	atSend, atRecv bool
	weak           bool // by an alias that is not in the request's own bytes
}

// align takes a stated base.
func (t *Timeline) align(b *run.Base) {
	s, r := t.endpoints[b.Sender], t.endpoints[b.Receiver]
	if s == nil || r == nil || b.Votes <= b.Against {
		return
	}
	if r.peer == nil && s.peer == nil && s != r {
		s.peer, r.peer = r, s
	}
	r.received.aligned, r.received.base = true, b.Base
	t.rematch(s)
}

// cross files one end of a message and fuses it with the other end when that is there.
func (t *Timeline) cross(e *endpoint, m *run.Message) *crossing {
	t.seq++
	c := &crossing{seq: t.seq}
	var mine, other *half
	if m.Dir == run.Send {
		c.send, c.from, c.to = m, e, e.peer
		mine = &e.sent
	} else {
		c.recv, c.to, c.from = m, e, e.peer
		mine = &e.received
	}
	if p := e.peer; p != nil {
		other = &p.received
		if m.Dir == run.Recv {
			other = &p.sent
		}
		if o := t.otherEnd(e, other, m); o != nil {
			t.fuse(o, c)
			return o
		}
	}
	mine.wait(e, c)
	if e.peer != nil && len(m.IDs) > 0 {
		t.voteBase(e, c)
	}
	return c.live()
}

// live follows fusions to the crossing that stands.
func (c *crossing) live() *crossing {
	for c.into != nil {
		c = c.into
	}
	return c
}

// otherEnd looks for the unmatched other end of m in the peer's half.
func (t *Timeline) otherEnd(e *endpoint, other *half, m *run.Message) *crossing {
	var key uint64
	if m.Dir == run.Recv {
		p, ok := e.senderPos(m.Pos)
		if !ok {
			return nil
		}
		key = p
	} else {
		if !e.peer.PosAbsolute && !e.peer.received.aligned {
			return nil
		}
		key = e.absolute(m.Pos)
		if !e.PosAbsolute {
			key -= uint64(e.peer.received.base)
		}
	}
	o := other.byPos[key]
	if o == nil || o.into != nil {
		return nil
	}
	s, r := m, o.recv
	if m.Dir == run.Recv {
		s, r = o.send, m
	}
	if s == nil || r == nil {
		return nil
	}
	if !same(s, r) {
		t.conflicts++
		return nil
	}
	delete(other.byPos, key)
	return o
}

// same checks that two ends at one position can be one message: same extent unless a decoder lost
// its way, not received before it was sent, ids that do not contradict.
func same(s, r *run.Message) bool {
	const lostWay = run.MsgTruncated | run.MsgResynced | run.MsgGuessed
	if s.End-s.Pos != r.End-r.Pos && (s.Flags|r.Flags)&lostWay == 0 {
		return false
	}
	if r.LastExitNS > 0 && s.FirstEnterNS > 0 && r.LastExitNS < s.FirstEnterNS {
		return false
	}
	if len(s.IDs) == 0 || len(r.IDs) == 0 || (s.Flags|r.Flags)&lostWay != 0 {
		return true
	}
	for _, a := range s.IDs {
		for _, b := range r.IDs {
			if a.Value == b.Value {
				return true
			}
		}
	}
	return false
}

// fuse puts the end that c holds into o.
func (t *Timeline) fuse(o, c *crossing) {
	t.counts.MessagesPaired += 2
	if c.send != nil {
		o.send, o.from = c.send, c.from
	}
	if c.recv != nil {
		o.recv, o.to = c.recv, c.to
	}
	if o.from == nil && o.to != nil {
		o.from = o.to.peer
	}
	if o.to == nil && o.from != nil {
		o.to = o.from.peer
	}
	c.into = o
	if ch := t.channelOf(o); ch != nil {
		ch.Messages++
		ch.Received++
	}
	for _, x := range c.tied {
		o.tie(x)
		x.req.adopt(o)
	}
}

// tie joins the crossing to a request once; flags add up.
func (c *crossing) tie(x tie) {
	for i := range c.tied {
		if c.tied[i].req == x.req {
			c.tied[i].atSend = c.tied[i].atSend || x.atSend
			c.tied[i].atRecv = c.tied[i].atRecv || x.atRecv
			c.tied[i].weak = c.tied[i].weak && x.weak
			return
		}
	}
	c.tied = append(c.tied, x)
}

func keyOf(m *run.Message) contentKey {
	return contentKey{m.IDs[0].Value, m.Type, m.Chunk, m.End - m.Pos}
}

// voteBase aligns a stream by its own content: the same message, recognised by id, type, chunk and
// length, that stands exactly once at each end states the base. Two such messages must agree,
// unless the base is 0 and the stream was seen from its first byte.
func (t *Timeline) voteBase(e *endpoint, c *crossing) {
	m := c.any()
	s, r := e, e.peer
	if m.Dir == run.Recv {
		s, r = e.peer, e
	}
	h := &r.received
	if r.PosAbsolute || h.aligned {
		return
	}
	o := r.received.byKey[keyOf(m)]
	if m.Dir == run.Recv {
		o = s.sent.byKey[keyOf(m)]
	}
	mine := s.sent.byKey[keyOf(m)]
	if m.Dir == run.Recv {
		mine = r.received.byKey[keyOf(m)]
	}
	if o == nil || mine != c || o.into != nil {
		return
	}
	sm, rm := c.send, o.recv
	if m.Dir == run.Recv {
		sm, rm = o.send, c.recv
	}
	if sm == nil || rm == nil || !same(sm, rm) {
		return
	}
	if h.votes == nil {
		h.votes = map[int64]int{}
	}
	base := int64(sm.Pos - rm.Pos)
	h.votes[base]++
	need := 2
	if base == 0 && fromStart(s, r) {
		need = 1
	}
	if len(h.votes) == 1 && h.votes[base] >= need || h.votes[base] >= 5 && h.votes[base] > 4*(sum(h.votes)-h.votes[base]) {
		h.aligned, h.base, h.votes = true, base, nil
		t.rematch(s)
	}
}

func sum(m map[int64]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// fromStart reports that the first message at both ends stands at position 0 and its framing was
// seen, not inferred.
func fromStart(s, r *endpoint) bool {
	const inferred = run.MsgGuessed | run.MsgResynced | run.MsgInFlight
	first := func(h *half) bool {
		c := h.byPos[0]
		return c != nil && c.any().Flags&inferred == 0
	}
	return first(&s.sent) && first(&r.received)
}

// rematch tries every unmatched receive against sends of s, after the two became comparable.
func (t *Timeline) rematch(s *endpoint) {
	r := s.peer
	if r == nil {
		return
	}
	for _, c := range s.sent.waiting {
		if c.send != nil {
			c.to = r
		}
	}
	for _, c := range r.received.waiting {
		if c.into != nil || c.recv == nil || c.send != nil {
			continue
		}
		c.from = s
		o := t.otherEnd(r, &s.sent, c.recv)
		if o == nil {
			continue
		}
		delete(r.received.byPos, r.absolute(c.recv.Pos))
		t.fuse(o, c)
	}
	if r.PosAbsolute || r.received.aligned {
		return
	}
	for _, c := range slices.Clone(r.received.waiting) {
		if c.into == nil && c.send == nil && len(c.recv.IDs) > 0 && !r.received.aligned {
			t.voteBase(r, c)
		}
	}
}
