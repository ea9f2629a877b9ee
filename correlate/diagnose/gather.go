package diagnose

import (
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

// gather collects values and counts what is unknown.
type gather struct {
	values  stat.Column
	unknown int
}

func (g *gather) add(us float64, ok bool) {
	if !ok {
		g.unknown++
		return
	}
	g.values.Add(us)
}

// count adds a number of bytes, unknown when it is null.
func (g *gather) count(n *int64) {
	if n == nil {
		g.unknown++
		return
	}
	g.values.Add(float64(*n))
}

func (g *gather) between(a, b correlate.Point) { g.add(between(a, b)) }

// dist describes the values and forgets them.
func (g *gather) dist() stat.Dist { return stat.Of(g.values.Take(), g.unknown) }
