package loadgen

import (
	"math"
	"math/bits"
	"slices"
)

const (
	// exactValues is how many values of a series are kept as they are. A longer series is counted in
	// buckets of 1/1024 of their value: a million requests take no more memory than a tenth of that.
	exactValues = 1 << 16
	bucketBits  = 10
)

// series collects values in nanoseconds.
type series struct {
	ns      []int64  // while they are few
	buckets []uint64 // then
	n       int
	sum     float64
	max     int64
	missing int
}

func (s *series) between(from, to *int64) {
	if from != nil && to != nil {
		s.add(*to - *from)
	}
}

func (s *series) add(v int64) {
	if s.n == 0 || v > s.max {
		s.max = v
	}
	s.n++
	s.sum += float64(v)
	if s.buckets == nil {
		s.ns = append(s.ns, v)
		if len(s.ns) > exactValues {
			s.compress()
		}
		return
	}
	s.count(v)
}

func (s *series) compress() {
	s.buckets = make([]uint64, bucketOf(math.MaxInt64)+1)
	for _, v := range s.ns {
		s.count(v)
	}
	s.ns = nil
}

func (s *series) count(v int64) { s.buckets[bucketOf(max(v, 0))]++ }

// bucketOf numbers the buckets: values below 2^11 have one each, the others share one with those that
// agree in their 11 leading bits.
func bucketOf(v int64) int {
	e := max(0, bits.Len64(uint64(v))-bucketBits-1)
	return e<<bucketBits + int(v>>e)
}

// bucketValue is the middle of a bucket.
func bucketValue(i int) int64 {
	e := max(0, i>>bucketBits-1)
	low := int64(i-e<<bucketBits) << e
	return low + (int64(1)<<e)/2
}

// mean is null-able: false without values.
func (s *series) mean() (float64, bool) { return s.sum / float64(s.n), s.n > 0 }

// dist takes percentiles by nearest rank over values and missing ones together.
func (s *series) dist() *Dist {
	slices.Sort(s.ns)
	total := s.n + s.missing
	at := func(q float64) *float64 {
		i := int(math.Ceil(q*float64(total))) - 1
		if i < 0 || i >= s.n {
			return nil
		}
		ms := float64(s.rank(i)) / 1e6
		return &ms
	}
	d := &Dist{N: s.n, Missing: s.missing, P50: at(.5), P90: at(.9), P95: at(.95), P99: at(.99), Max: at(1)}
	if mean, ok := s.mean(); ok && s.missing == 0 {
		ms := mean / 1e6
		d.Mean = &ms
	}
	return d
}

// rank is the i-th smallest value, from 0; the values kept as they are must be sorted.
func (s *series) rank(i int) int64 {
	switch {
	case i == s.n-1:
		return s.max
	case s.buckets == nil:
		return s.ns[i]
	}
	left := uint64(i)
	for b, c := range s.buckets {
		if left < c {
			return min(bucketValue(b), s.max)
		}
		left -= c
	}
	return s.max
}
