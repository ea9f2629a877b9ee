package export

import (
	"github.com/stageline/stageline/correlate"
)

// cut chooses the requests to draw, and sets the time to which counters are cut.
func (t *timeline) cut(o PerfettoOptions) []bool {
	t.fromNS, t.toNS = o.FromNS, o.ToNS
	if t.toNS == 0 {
		t.toNS = 1<<63 - 1
	}
	type span struct {
		request    int
		begin, end int64
	}
	var last []span // the last so many, in a ring; all: no ring
	n := 0
	chosen := make([]bool, t.r.Result.Len())
	for i, q := range t.r.Result.All() {
		begin, end, ok := extent(q)
		if !ok || end < t.fromNS || begin > t.toNS {
			continue
		}
		chosen[i] = true
		switch s := (span{i, begin, end}); {
		case o.Last <= 0:
		case n < o.Last:
			last = append(last, s)
		default:
			chosen[last[n%o.Last].request] = false
			last[n%o.Last] = s
		}
		n++
	}
	if o.Last <= 0 || o.Last >= n {
		return chosen
	}
	from, to := int64(1<<63-1), int64(0)
	for _, s := range last {
		from, to = min(from, s.begin), max(to, s.end)
	}
	t.fromNS, t.toNS = max(t.fromNS, from), min(t.toNS, to)
	return chosen
}

// extentOf collects the first and the last of some times.
type extentOf struct {
	from, to int64
	any      bool
}

func (e *extentOf) add(ns *int64) {
	if ns == nil {
		return
	}
	if !e.any {
		e.from, e.to, e.any = *ns, *ns, true
		return
	}
	e.from, e.to = min(e.from, *ns), max(e.to, *ns)
}

// extent is the time from the first to the last known event of a request; ok is false when none is.
func extent(q *correlate.RequestTimeline) (from, to int64, ok bool) {
	var e extentOf
	e.add(q.Entry.NS)
	e.add(q.Exit.NS)
	if c := q.Client; c != nil {
		e.add(c.PlannedNS)
		e.add(c.SentNS)
		e.add(c.EndNS)
	}
	for i := range q.Visits {
		v := &q.Visits[i]
		for _, p := range [...]*correlate.Point{&v.Arrival, &v.Ready, &v.Start, &v.Finish, &v.Departure} {
			e.add(p.NS)
		}
	}
	for i := range q.Hops {
		e.add(q.Hops[i].Send.NS)
		e.add(q.Hops[i].Recv.NS)
	}
	return e.from, e.to, e.any
}
