package correlate

import (
	"slices"
	"sort"

	"github.com/stageline/stageline/collector/run"
)

// endpoint is one process's end of a transport, with what is still unmatched of its two streams.
type endpoint struct {
	run.Endpoint
	peer     *endpoint // nil: not seen (outside, or not yet)
	sent     half      // what processes wrote here
	received half      // what processes read here
	conn     *httpConn // set once it carried HTTP from outside
	byTGID   [2]uint32 // last process that sent, received here
	carries  bool      // carried messages with ids
	closedNS int64
	readable []readable  // TCP: arrivals of data, by time
	starts   []callStart // TCP: first calls while no peer is known
}

// half is one direction at one endpoint.
type half struct {
	waiting []*crossing // unmatched, oldest first; may hold matched ones until swept
	byPos   map[uint64]*crossing
	byKey   map[contentKey]*crossing // unmatched with ids, for alignment; nil value: ambiguous
	marks   []mark                   // progress of calls, for bounds of lost ends
	lost    uint64                   // gaps by lost records

	// alignment, kept at the receiving half: receiver position + base = sender position
	aligned bool
	base    int64
	votes   map[int64]int
}

// mark says that the call [enter, exit] moved the bytes [start, end) of the stream.
type mark struct {
	start, end  uint64
	enter, exit int64
}

// crossing is one message on its way: one or both of its ends.
type crossing struct {
	seq        uint64
	send, recv *run.Message
	from, to   *endpoint // nil when that end is not a target's
	into       *crossing // fused into another: this one is void
	hidden     bool      // may be the other end of one that is shown
	tied       []tie
}

// ns orders crossings.
func (c *crossing) ns() int64 {
	if c.send != nil && c.send.FirstEnterNS > 0 {
		return c.send.FirstEnterNS
	}
	if c.recv != nil {
		return messageNS(c.recv)
	}
	return messageNS(c.send)
}

// any returns the end that was seen, the sender's first.
func (c *crossing) any() *run.Message {
	if c.send != nil {
		return c.send
	}
	return c.recv
}

// addEndpoint takes an announcement. An endpoint is announced again under its id when more is known
// of it, as of a unix socket whose peer had not been accepted at first.
func (t *Timeline) addEndpoint(r run.Endpoint) {
	e := t.endpoints[r.ID]
	if e == nil {
		e = &endpoint{}
		t.endpoints[r.ID] = e
	}
	e.Endpoint = r
	if e.peer != nil {
		return
	}
	switch r.Transport {
	case run.TransportPipe:
		e.peer = e
	case run.TransportUnix:
		if r.Inode != 0 {
			t.unixByIno[r.Inode] = e
		}
		if p := t.unixByIno[r.PeerInode]; r.PeerInode != 0 && p != nil && p.peer == nil {
			t.join(e, p)
			return
		}
		for _, id := range []uint64{r.Inode} { // the peer may know us though we did not know it
			if p := t.unixByIno[waitingKey(id)]; p != nil && p.peer == nil {
				t.join(e, p)
			}
		}
		if e.peer == nil && r.PeerInode != 0 {
			t.unixByIno[waitingKey(r.PeerInode)] = e
		}
	case run.TransportTCP:
		t.addTCP(e)
	}
}

// waitingKey files an endpoint under the inode of the peer it waits for. Socket inodes are 32-bit
// numbers in practice, so the top bit is free.
func waitingKey(ino uint64) uint64 { return ino | 1<<63 }

// join makes two endpoints a channel and matches what both already hold.
func (t *Timeline) join(a, b *endpoint) {
	a.peer, b.peer = b, a
	t.rematch(a)
	t.rematch(b)
}

// used notes which process uses the endpoint and how far the stream got.
func (e *endpoint) used(r *run.IO) {
	h := &e.sent
	if r.Dir == run.Recv {
		h = &e.received
	}
	e.byTGID[r.Dir-1] = r.TGID
	if e.Transport == run.TransportEventFD || r.EnterNS == 0 {
		return
	}
	h.mark(mark{e.absolute(r.Pos), e.absolute(r.Pos) + uint64(r.Ret), r.EnterNS, r.ExitNS})
}

// mark keeps progress in order of position; calls come nearly so.
func (h *half) mark(m mark) {
	h.marks = append(h.marks, m)
	for i := len(h.marks) - 1; i > 0 && h.marks[i-1].end > m.end; i-- {
		h.marks[i-1], h.marks[i] = h.marks[i], h.marks[i-1]
	}
}

func (e *endpoint) gap(g *run.Gap) {
	h := &e.sent
	if g.Dir == run.Recv {
		h = &e.received
	}
	if g.Cause == run.GapLost {
		h.lost++
	}
}

// absolute folds a kernel sequence number to 32 bits: the two ends may have been unwrapped from
// different starting points.
func (e *endpoint) absolute(pos uint64) uint64 {
	if e.PosAbsolute {
		return pos & 0xffffffff
	}
	return pos
}

// senderPos is a receiver's position as its sender counts it.
func (r *endpoint) senderPos(pos uint64) (uint64, bool) {
	if r.PosAbsolute {
		return pos & 0xffffffff, true
	}
	if !r.received.aligned {
		return 0, false
	}
	return pos + uint64(r.received.base), true
}

// wait files an unmatched end.
func (h *half) wait(e *endpoint, c *crossing) {
	if h.byPos == nil {
		h.byPos, h.byKey = map[uint64]*crossing{}, map[contentKey]*crossing{}
	}
	m := c.any()
	h.byPos[e.absolute(m.Pos)] = c
	h.waiting = append(h.waiting, c)
	if len(m.IDs) > 0 {
		k := keyOf(m)
		if _, dup := h.byKey[k]; dup {
			h.byKey[k] = nil
		} else {
			h.byKey[k] = c
		}
	}
}

// sweep drops ends that were matched, and those whose other end can no longer come; it returns the
// latter.
func (h *half) sweep(before int64, limit int) (unmatched []*crossing) {
	keep := h.waiting[:0]
	excess := len(h.waiting) - limit
	for i, c := range h.waiting {
		m := c.any()
		if c.into == nil && (c.send == nil || c.recv == nil) && messageNS(m) >= before && i >= excess {
			keep = append(keep, c)
			continue
		}
		if c.into == nil && (c.send == nil || c.recv == nil) {
			unmatched = append(unmatched, c)
		}
		if len(m.IDs) > 0 {
			delete(h.byKey, keyOf(m))
		}
		for _, x := range [...]*run.Message{c.send, c.recv} {
			if x != nil && h.byPos[x.Pos] == c {
				delete(h.byPos, x.Pos)
			}
			if x != nil && h.byPos[x.Pos&0xffffffff] == c {
				delete(h.byPos, x.Pos&0xffffffff)
			}
		}
	}
	clear(h.waiting[len(keep):])
	h.waiting = keep
	return unmatched
}

// sweepMarks drops progress from before ns.
func (h *half) sweepMarks(ns int64) {
	i := 0
	for i < len(h.marks) && h.marks[i].exit < ns {
		i++
	}
	if i > 0 && i*2 >= len(h.marks) {
		h.marks = slices.Clone(h.marks[i:])
	}
}

// reached returns the first call that moved the stream to pos or beyond.
func (h *half) reached(pos uint64) (mark, bool) {
	i := sort.Search(len(h.marks), func(i int) bool { return h.marks[i].end >= pos })
	if i == len(h.marks) {
		return mark{}, false
	}
	return h.marks[i], true
}

// before returns the last call that ended at or before pos.
func (h *half) before(pos uint64) (mark, bool) {
	i := sort.Search(len(h.marks), func(i int) bool { return h.marks[i].end > pos })
	if i == 0 {
		return mark{}, false
	}
	return h.marks[i-1], true
}
