package correlate

import (
	"cmp"
	"fmt"
	"slices"
)

// uncovered names the hops of the graph that the kernel cannot see: between stages of one process,
// and through segments that two processes keep mapped.
// n has those inside processes.
func (t *Timeline) uncovered(r *Result, n map[Uncovered]int) []Uncovered {
	t.ringPaths(r, n)
	out := []Uncovered{}
	for u, k := range n {
		u.N = k
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Uncovered) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Why, b.Why))
	})
	return out
}

// hiddenInside finds, in one request, a stage that got input but sent nothing beside a stage of
// the same process that sent something but got no input.
func hiddenInside(r *RequestTimeline, n map[Uncovered]int) {
	for i := range r.Visits {
		a := &r.Visits[i]
		if len(a.Inputs) == 0 || sentBy(r, a) {
			continue
		}
		for j := range r.Visits {
			b := &r.Visits[j]
			if b.TGID == a.TGID && b.Stage != a.Stage && len(b.Inputs) == 0 {
				n[Uncovered{From: a.Stage, To: b.Stage, Why: fmt.Sprintf("both stages are in process %d", a.TGID)}]++
			}
		}
	}
}

// sentBy reports that the stage of a visit sent a message of the request.
func sentBy(r *RequestTimeline, v *Visit) bool {
	for i := range r.Hops {
		if r.Hops[i].From == v.Stage && r.Hops[i].FromTGID == v.TGID && v.Departure.NS != nil {
			return true
		}
	}
	return false
}
