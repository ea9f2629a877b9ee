package correlate

import (
	"cmp"
	"iter"
	"slices"
)

// Batch is an activation in figures.
type Batch struct {
	Stage    string
	Start    *int64 // ns, earliest of its members; null when one is not known
	Finish   *int64 // latest
	Members  int
	ServedNS int64 // sum of their service
	// AtOnce is the largest number of its members that were certainly served at once: all of them when
	// one message carried them, else those whose [latest start, earliest finish] overlap.
	AtOnce int
}

// Batches gives the figures of all activations, in their order.
func (r *Result) Batches() iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		if r.kept == nil {
			for i := range r.Activations {
				if !yield(r.batch(&r.Activations[i])) {
					return
				}
			}
			return
		}
		for i := range r.kept.firings {
			f := &r.kept.firings[i]
			b := Batch{Stage: r.kept.stages[f.stage], Start: &f.start, Finish: &f.finish, Members: int(f.to - f.from), ServedNS: f.served, AtOnce: int(f.most)}
			if !yield(b) {
				return
			}
		}
	}
}

func (r *Result) batch(a *Activation) Batch {
	b := Batch{Stage: a.Stage, Start: a.Start.NS, Finish: a.Finish.NS, Members: len(a.Members), AtOnce: len(a.Members)}
	var cores [][2]int64
	for _, m := range a.Members {
		v := &r.Requests[m[0]].Visits[m[1]]
		if v.Start.NS != nil && v.Finish.NS != nil {
			b.ServedNS += *v.Finish.NS - *v.Start.NS
			cores = append(cores, [2]int64{v.Start.hi(), v.Finish.lo()})
		}
	}
	if a.Identity != IdentityExact {
		b.AtOnce = atOnce(cores)
	}
	return b
}

// atOnce is the largest number of intervals that have a moment in common, 1 at least.
func atOnce(cores [][2]int64) int {
	type change struct{ ns, by int64 }
	var changes []change
	for _, c := range cores {
		if c[0] != 0 && c[1] > c[0] {
			changes = append(changes, change{c[0], 1}, change{c[1], -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.by, b.by)) })
	most, now := 1, 0
	for _, c := range changes {
		now += int(c.by)
		most = max(most, now)
	}
	return most
}
