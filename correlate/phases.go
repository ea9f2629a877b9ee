package correlate

import (
	"slices"
	"sort"
)

// readable is the arrival of data on a TCP socket: bytes that its reader had not copied then.
type readable struct{ ns, bytes int64 }

// arrived notes data that became readable; events come nearly in order of time.
func (e *endpoint) arrived(r readable) {
	i := len(e.readable)
	for i > 0 && e.readable[i-1].ns > r.ns {
		i--
	}
	e.readable = slices.Insert(e.readable, i, r)
}

func (e *endpoint) sweepReadable(horizon int64) {
	i := 0
	for i < len(e.readable) && e.readable[i].ns < horizon {
		i++
	}
	if i*2 > len(e.readable) {
		e.readable = slices.Clone(e.readable[i:])
	}
}

// phases adds to hops when their message was seen to be in the receiver's queue and when its reader
// called for it.
func phases(l []hop) {
	for i := range l {
		h := &l[i]
		if h.c == nil || h.c.recv == nil {
			continue
		}
		if ns := h.c.recv.FirstEnterNS; ns > 0 {
			h.PickedUpNS = ptr(ns)
		}
		if ns := h.visible(); ns != 0 {
			h.VisibleNS = ptr(ns)
		}
	}
}

// visible is the first event by which the last byte of the message stood in the receiver's queue, 0
// none. The kernel states how much was there to read; what had been read by then is known from the
// calls that had returned, so that the moment may be later than the true one and never earlier.
func (h *hop) visible() int64 {
	e, from, to := h.c.to, h.Send.lo(), h.Recv.hi()
	if e == nil || !e.PosAbsolute || from == 0 || to == 0 {
		return 0
	}
	end := e.absolute(h.c.recv.End)
	i := sort.Search(len(e.readable), func(i int) bool { return e.readable[i].ns >= from })
	for ; i < len(e.readable) && e.readable[i].ns <= to; i++ {
		r := e.readable[i]
		if had, ok := e.received.readBy(r.ns); ok && had+uint64(r.bytes) >= end && had <= end {
			return r.ns
		}
	}
	return 0
}

// readBy is how far the stream had been read by the calls that returned before ns.
func (h *half) readBy(ns int64) (pos uint64, ok bool) {
	i := sort.Search(len(h.marks), func(i int) bool { return h.marks[i].exit > ns })
	switch {
	case i > 0:
		return h.marks[i-1].end, true
	case len(h.marks) > 0:
		return h.marks[0].start, true // the call that was under way
	}
	return 0, false
}
