package diagnose

import "github.com/stageline/stageline/correlate"

// place is where time can go: a stage by name, a hop as FROM:TO, the client by what it did.
type place struct{ kind, where string }

// part is what a request did at a place.
type part int

const (
	partQueue     part = iota // stage: held its last input and had not started
	partService               // stage: start → finish, or to the send of the chunk that mattered
	partSender                // hop: output finished and its send not begun: copies, credits, a busy writer
	partCrossing              // hop: send → receive
	partPayload               // hop: receive → payload read
	partUndivided             // a stage without a start, a hop without one of its ends; the client
	parts
)

// segment is a piece of a request's critical path. The segments of a path follow one another without
// a gap, so that their lengths add up to the request's time.
type segment struct {
	place
	part     part
	from, to int64 // ns
	// width is how far, in ns, the borders with other places may lie off: half of each interval.
	width int64
}

// Where time stays that no visit and no hop explains.
var unexplained = place{KindUnexplained, ""}

// Places of the client.
var (
	clientLag  = place{KindClient, "sending late"}
	clientRead = place{KindClient, "reading the reply"}
	entryHop   = place{KindHop, "client:entry"}
)

// walker follows a request backwards from its end: what it waited for at each moment is the input
// that came last, the hop that brought it, the visit that sent it.
type walker struct {
	q    *correlate.RequestTimeline
	at   int64 // everything after it is explained
	path []segment
	done []bool // visits already walked
}

// criticalPath divides a request from its planned time (else its first write, else the entry's read)
// to the client's end (else the entry's last write); false when an end of it is not known. Segments
// are last to first.
func criticalPath(q *correlate.RequestTimeline) ([]segment, bool) {
	if q.Entry.NS == nil || q.Exit.NS == nil || *q.Exit.NS <= *q.Entry.NS {
		return nil, false
	}
	w := &walker{q: q, at: *q.Exit.NS, done: make([]bool, len(q.Visits))}
	if c := q.Client; c != nil && c.EndNS != nil && *c.EndNS > w.at {
		w.path = append(w.path, segment{place: clientRead, part: partUndivided, from: w.at, to: *c.EndNS})
	}
	w.walk(w.last())
	w.back(*q.Entry.NS, unexplained, partUndivided, 0)
	if c := q.Client; c != nil && c.SentNS != nil {
		w.back(*c.SentNS, entryHop, partCrossing, 0)
		if c.PlannedNS != nil {
			w.back(*c.PlannedNS, clientLag, partUndivided, 0)
		}
	}
	return w.path, true
}

// back explains the time from `to` up to what is explained already.
func (w *walker) back(to int64, p place, what part, width int64) {
	if to >= w.at {
		return
	}
	w.path = append(w.path, segment{place: p, part: what, from: to, to: w.at, width: width})
	w.at = to
}

// last is the visit that ended last, not after the exit; -1 when none did.
func (w *walker) last() int {
	best, bestNS := -1, int64(0)
	for i := range w.q.Visits {
		v := &w.q.Visits[i]
		for _, p := range []correlate.Point{v.Departure, v.Finish} {
			if p.NS != nil && *p.NS <= w.at && (best < 0 || *p.NS > bestNS) {
				best, bestNS = i, *p.NS
			}
		}
	}
	return best
}

func (w *walker) walk(i int) {
	for i >= 0 && !w.done[i] {
		w.done[i] = true
		v := &w.q.Visits[i]
		w.visit(v)
		in := w.lastInput(v)
		if in == nil || in.Held().NS == nil {
			return
		}
		w.back(*in.Held().NS, place{KindStage, v.Stage}, partQueue, 0)
		if in.Hop < 0 || in.Hop >= len(w.q.Hops) {
			return
		}
		i = w.sender(in.Hop)
		w.hop(in, i)
	}
}

// visit explains the time back to when the visit had what it needed.
func (w *walker) visit(v *correlate.Visit) {
	p := place{KindStage, v.Stage}
	switch {
	case v.Start.NS != nil && v.Ready.NS != nil:
		w.back(*v.Start.NS, p, partService, halfWidth(v.Finish))
		w.back(*v.Ready.NS, p, partQueue, halfWidth(v.Ready))
	case v.Ready.NS != nil:
		w.back(*v.Ready.NS, p, partUndivided, halfWidth(v.Ready))
	}
}

// lastInput is the input held last of those held when the visit was ready.
func (w *walker) lastInput(v *correlate.Visit) *correlate.Input {
	var last *correlate.Input
	for i := range v.Inputs {
		in := &v.Inputs[i]
		at := in.Held().NS
		if at == nil || *at > w.at && v.Ready.NS != nil {
			continue
		}
		if last == nil || *at > *last.Held().NS {
			last = in
		}
	}
	return last
}

// hop explains the time from the input's receipt back to the end of what its sender did.
func (w *walker) hop(in *correlate.Input, sender int) {
	h := &w.q.Hops[in.Hop]
	p := place{KindHop, h.From + ":" + h.To}
	if h.Recv.NS == nil || h.Send.NS == nil {
		if sender >= 0 && w.q.Visits[sender].Finish.NS != nil {
			w.back(*w.q.Visits[sender].Finish.NS, p, partUndivided, halfWidth(w.q.Visits[sender].Finish))
		}
		return
	}
	w.back(*h.Recv.NS, p, partPayload, halfWidth(in.InHand))
	w.back(*h.Send.NS, p, partCrossing, 0)
	if sender >= 0 && w.q.Visits[sender].Finish.NS != nil {
		w.back(*w.q.Visits[sender].Finish.NS, p, partSender, halfWidth(w.q.Visits[sender].Finish))
	}
}

// sender is the visit whose output the hop is; -1 when it is not known.
func (w *walker) sender(hop int) int {
	h := &w.q.Hops[hop]
	best := -1
	for i := range w.q.Visits {
		v := &w.q.Visits[i]
		for _, o := range v.Outputs {
			if o == hop {
				return i
			}
		}
		if h.Send.NS == nil || v.Stage != h.From || v.TGID != h.FromTGID || v.Start.NS == nil || *v.Start.NS > *h.Send.NS {
			continue
		}
		if best < 0 || *v.Start.NS > *w.q.Visits[best].Start.NS {
			best = i
		}
	}
	return best
}

// halfWidth is half the interval of a bounded point, ns; 0 of a seen one.
func halfWidth(p correlate.Point) int64 {
	if p.LoNS == nil || p.HiNS == nil {
		return 0
	}
	return (*p.HiNS - *p.LoNS) / 2
}
