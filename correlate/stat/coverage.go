package stat

import "math/rand/v2"

// Coverage counts how many of N boundaries lay inside the interval that was given for them. A
// boundary without an interval is one of N and not Inside.
type Coverage struct {
	N      int
	Inside int
}

// Add counts one boundary.
func (c *Coverage) Add(inside bool) {
	c.N++
	if inside {
		c.Inside++
	}
}

// Share is Inside/N, unknown when there was nothing to cover.
func (c Coverage) Share() Num { return Share(c.Inside, c.N) }

// Share is part/whole, unknown when whole is 0.
func Share(part, whole int) Num {
	if whole == 0 {
		return Unknown()
	}
	return Num(float64(part) / float64(whole))
}

// Support draws rounds resamples of n items (indices, with replacement) and returns the share of
// them for which agrees is true. The seed is fixed: the same data give the same answer.
func Support(n, rounds int, agrees func(sample []int) bool) Num {
	if n == 0 || rounds == 0 {
		return Unknown()
	}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	sample := make([]int, n)
	yes := 0
	for range rounds {
		for i := range sample {
			sample[i] = rng.IntN(n)
		}
		if agrees(sample) {
			yes++
		}
	}
	return Share(yes, rounds)
}
