package diagnose

import (
	"math"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

// gather collects values and counts what is unknown.
type gather struct {
	values  column
	unknown int
}

func (g *gather) add(us float64, ok bool) {
	if !ok {
		g.unknown++
		return
	}
	g.values.add(us)
}

// count adds a number of bytes, unknown when it is null.
func (g *gather) count(n *int64) {
	if n == nil {
		g.unknown++
		return
	}
	g.values.add(float64(*n))
}

func (g *gather) between(a, b correlate.Point) { g.add(between(a, b)) }

// dist describes the values and forgets them.
func (g *gather) dist() stat.Dist { return stat.Of(g.values.take(), g.unknown) }

// column keeps figures exactly, in four bytes each where they are whole thousandths below 2³² (times
// in µs that were ns, up to 4.29 s, and sizes up to 4.29 MB). It grows without copying.
type column struct {
	parts [][]uint32
	wide  []float64
	n     int
}

// columnPart is how many figures a part of a column has at most.
const columnPart = 4096

func (c *column) add(v float64) {
	k := math.Round(v * 1e3)
	if !(k >= 0 && k <= math.MaxUint32) || k/1e3 != v {
		c.wide = append(c.wide, v)
		return
	}
	if n := len(c.parts); n == 0 || len(c.parts[n-1]) == cap(c.parts[n-1]) {
		c.parts = append(c.parts, make([]uint32, 0, min(max(c.n/2, 8), columnPart)))
	}
	part := &c.parts[len(c.parts)-1]
	*part = append(*part, uint32(k))
	c.n++
}

// take returns the figures, in no order, and forgets them.
func (c *column) take() []float64 {
	out := make([]float64, 0, c.n+len(c.wide))
	for _, p := range c.parts {
		for _, k := range p {
			out = append(out, float64(k)/1e3)
		}
	}
	out = append(out, c.wide...)
	*c = column{}
	return out
}
