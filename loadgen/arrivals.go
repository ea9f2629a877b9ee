package loadgen

import (
	"math"
	mrand "math/rand/v2"
)

// Arrival is the process that spaces the requests of an open loop.
type Arrival string

const (
	ArrivalPoisson  Arrival = "poisson"  // independent exponential gaps
	ArrivalConstant Arrival = "constant" // equal gaps
	ArrivalGamma    Arrival = "gamma"    // independent gamma gaps of shape k: CV² = 1/k
)

// unitGaps returns the generator of gaps of mean 1. The first request of an equally spaced load
// comes at once.
func unitGaps(a Arrival, k float64, seed uint64) func() float64 {
	r := mrand.New(mrand.NewPCG(seed, 0x7374616765)) // second word: any constant of our own
	switch a {
	case ArrivalConstant:
		first := true
		return func() float64 {
			if first {
				first = false
				return 0
			}
			return 1
		}
	case ArrivalGamma:
		return func() float64 { return gamma(r, k) / k }
	}
	return func() float64 { return exponential(r) }
}

func uniform(r *mrand.Rand) float64 { return float64(r.Uint64()>>11) / (1 << 53) } // [0, 1)

func exponential(r *mrand.Rand) float64 { return -math.Log1p(-uniform(r)) }

// gamma draws from the gamma distribution of shape k and scale 1 (Marsaglia and Tsang 2000; below 1
// by their boost k → k+1).
func gamma(r *mrand.Rand, k float64) float64 {
	if k < 1 {
		return gamma(r, k+1) * math.Pow(1-uniform(r), 1/k)
	}
	d := k - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if u := 1 - uniform(r); math.Log(u) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// arrivals yields the send offsets of an open loop in order. Gaps are never scaled to make the last
// one land on N/rate: that would correlate them.
type arrivals struct {
	gap func() float64
	u   float64
	clock
}

func newArrivals(cfg *Config) *arrivals {
	return &arrivals{
		gap:   unitGaps(cfg.Arrival, cfg.Burstiness, cfg.Seed),
		clock: clock{rate: cfg.Rate, segs: cfg.Shape, cycle: cfg.ShapeCycle},
	}
}

// next returns the next offset in nanoseconds, false when the shape has ended.
func (a *arrivals) next() (int64, bool) {
	a.u += a.gap()
	return a.at(a.u)
}

// draw is a number in [0, 1) that depends on the seed, a request's number and a purpose alone, so
// that what is drawn for a request is the same whoever sends it and whatever was drawn before.
func draw(seed uint64, n int, purpose uint64) float64 {
	z := mix(mix(seed ^ uint64(n)*0x9e3779b97f4a7c15 ^ purpose*0xd1342543de82ef95))
	return float64(z>>11) / (1 << 53)
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

const (
	drawClass uint64 = 1 + iota
	drawTurns
	drawGap
	drawCancel
)
