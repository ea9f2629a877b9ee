package loadgen

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Segment is a stretch of an open loop during which the rate goes linearly from From to To.
type Segment struct {
	From, To float64 // requests per second
	Lasts    time.Duration
}

// ParseShape reads a rate over time: RATExDURATION is a step, FROM..TOxDURATION a ramp, in order and
// separated by commas, as in "10x30s,10..100x60s,100x30s".
func ParseShape(s string) ([]Segment, error) {
	var out []Segment
	for part := range strings.SplitSeq(s, ",") {
		bad := func() ([]Segment, error) {
			return nil, fmt.Errorf("rates %q: want RATExDURATION or FROM..TOxDURATION, as in 10x30s,10..100x60s", part)
		}
		rates, lasts, ok := strings.Cut(strings.TrimSpace(part), "x")
		if !ok {
			return bad()
		}
		from, to, ramp := strings.Cut(rates, "..")
		if !ramp {
			to = from
		}
		var g Segment
		var err [3]error
		g.From, err[0] = strconv.ParseFloat(from, 64)
		g.To, err[1] = strconv.ParseFloat(to, 64)
		g.Lasts, err[2] = time.ParseDuration(lasts)
		for _, e := range err {
			if e != nil {
				return bad()
			}
		}
		out = append(out, g)
	}
	return out, checkShape(out)
}

func checkShape(segs []Segment) error {
	area := 0.0
	for _, g := range segs {
		if !(g.From >= 0 && g.From <= maxRate && g.To >= 0 && g.To <= maxRate) || g.Lasts <= 0 {
			return fmt.Errorf("rates: %v..%v for %v: want rates from 0 to %g a second and a duration above 0", g.From, g.To, g.Lasts, float64(maxRate))
		}
		area += g.area()
	}
	if len(segs) > 0 && area == 0 {
		return fmt.Errorf("rates: all are 0: no request would be sent")
	}
	return nil
}

// area is the number of requests that the segment holds on average.
func (g Segment) area() float64 { return (g.From + g.To) / 2 * g.Lasts.Seconds() }

// within returns the seconds after which the segment has offered a requests, 0 ≤ a ≤ area: the root
// of From·t + (To−From)/(2·Lasts)·t² = a, in the form that does not cancel.
func (g Segment) within(a float64) float64 {
	slope := (g.To - g.From) / g.Lasts.Seconds()
	root := math.Sqrt(max(0, g.From*g.From+2*slope*a))
	if g.From+root == 0 {
		return 0
	}
	return min(2*a/(g.From+root), g.Lasts.Seconds())
}

// clock turns operational time (in which requests come at a mean of one a unit) into time since the
// start, so that one process of unit rate serves every shape. Calls must not go back.
type clock struct {
	rate  float64 // constant rate; 0: segments
	segs  []Segment
	cycle bool

	i      int
	atS    float64 // start of segment i, seconds
	before float64 // requests offered before segment i
}

// at returns the nanosecond at which the operational time u is reached; false when the shape ends
// before.
func (c *clock) at(u float64) (int64, bool) {
	if c.rate > 0 {
		// By division of the whole, so that rounding does not add up over a long run.
		return int64(math.Round(u / c.rate * 1e9)), true
	}
	for {
		if c.i == len(c.segs) {
			if !c.cycle {
				return 0, false
			}
			c.i = 0
		}
		g := c.segs[c.i]
		// An arrival at the very end of a segment belongs to the next one that offers anything.
		if a := u - c.before; a < g.area() {
			return int64(math.Round((c.atS + g.within(a)) * 1e9)), true
		}
		c.before += g.area()
		c.atS += g.Lasts.Seconds()
		c.i++
	}
}
