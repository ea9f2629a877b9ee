package correlate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever the disorder, events leave in the order of a sort.
func TestEventQueueSorts(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		spread := int64(1) << (seed % 16)
		var q eventQueue
		var all, got []event
		drain := func(upTo int64) {
			for {
				e, ok := q.pop(upTo)
				if !ok {
					return
				}
				got = append(got, e)
			}
		}
		for k := range uint64(5003) {
			e := event{ns: int64(k) + r.Int64N(spread), seq: k}
			all = append(all, e)
			q.push(e)
			if k%97 == 0 {
				drain(int64(k) - spread)
			}
		}
		drain(1 << 62)
		slices.SortFunc(all, func(a, b event) int { return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.seq, b.seq)) })
		if !slices.Equal(got, all) {
			t.Errorf("spread %d: not in order", spread)
		}
	}
}
