package diagnose

import (
	"cmp"
	"slices"

	"github.com/stageline/stageline/correlate"
)

// Count holds from NS (CLOCK_MONOTONIC) to the next one.
type Count struct {
	NS int64
	N  int
}

// Counts over time, one point at each change.
type Counts struct {
	InFlight []Count            // requests between entry and exit; one without either is in no count
	Batch    map[string][]Count // by stage: requests in the activations that are under way
}

// Running counts what is under way in a timeline.
func Running(res *correlate.Result) Counts {
	var requests []jump
	for _, q := range res.All() {
		requests = during(requests, q.Entry.NS, q.Exit.NS, 1)
	}
	stages := map[string][]jump{}
	for a := range res.Batches() {
		stages[a.Stage] = during(stages[a.Stage], a.Start, a.Finish, a.Members)
	}
	out := Counts{InFlight: integrate(requests), Batch: map[string][]Count{}}
	for name, jumps := range stages {
		out.Batch[name] = integrate(jumps)
	}
	return out
}

// jump adds by to a count at ns.
type jump struct {
	ns int64
	by int
}

// during adds n between two times when both are known and in order.
func during(to []jump, begin, end *int64, n int) []jump {
	if begin == nil || end == nil || *end < *begin {
		return to
	}
	return append(to, jump{*begin, n}, jump{*end, -n})
}

// integrate sums jumps up; jumps at the same time make one point.
func integrate(jumps []jump) []Count {
	slices.SortStableFunc(jumps, func(a, b jump) int { return cmp.Compare(a.ns, b.ns) })
	var out []Count
	n := 0
	for i, c := range jumps {
		n += c.by
		if i+1 < len(jumps) && jumps[i+1].ns == c.ns {
			continue
		}
		if len(out) == 0 || out[len(out)-1].N != n {
			out = append(out, Count{c.ns, n})
		}
	}
	return out
}
