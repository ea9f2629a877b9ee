package stat

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is a figure with the interval in which it lies at the stated confidence.
type Interval struct {
	N  int `json:"n"` // values behind it
	At Num `json:"at"`
	Lo Num `json:"lo"` // unknown with fewer than MinResampled values
	Hi Num `json:"hi"`
}

// MinResampled is the number of values from which an interval is given: with fewer, resamples repeat
// the same few values and the interval is far too narrow.
const MinResampled = 5

// Holds reports whether v lies in the interval; an unknown interval holds everything.
func (i Interval) Holds(v float64) bool {
	return !i.Lo.Known() || !i.Hi.Known() || float64(i.Lo) <= v && v <= float64(i.Hi)
}

// MedianOf is the median of values (the mean of the middle two of an even number) with its
// percentile-bootstrap interval over rounds resamples. The seed is fixed: the same data give the
// same answer.
func MedianOf(values []float64, rounds int, confidence float64) Interval {
	i := Interval{N: len(values), At: Unknown(), Lo: Unknown(), Hi: Unknown()}
	if len(values) == 0 {
		return i
	}
	i.At = Num(median(slices.Clone(values)))
	if len(values) < MinResampled || rounds == 0 {
		return i
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(values))))
	sample, medians := make([]float64, len(values)), make([]float64, rounds)
	for r := range medians {
		for k := range sample {
			sample[k] = values[rng.IntN(len(values))]
		}
		medians[r] = median(sample)
	}
	slices.Sort(medians)
	tail := (1 - confidence) / 2
	i.Lo = Num(medians[int(tail*float64(rounds-1))])
	i.Hi = Num(medians[int(math.Ceil((1-tail)*float64(rounds-1)))])
	return i
}

// median sorts values.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
