package stat

import "math"

// Column keeps figures exactly, in four bytes each where they are whole thousandths below 2³² (times
// in µs that were ns, up to 4.29 s, and sizes up to 4.29 MB). It grows without copying.
type Column struct {
	parts [][]uint32
	wide  []float64
	n     int
}

// columnPart is how many figures a part of a Column has at most.
const columnPart = 4096

// Add adds a figure.
func (c *Column) Add(v float64) {
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

// Take returns the figures, in no order, and forgets them.
func (c *Column) Take() []float64 {
	out := make([]float64, 0, c.n+len(c.wide))
	for _, p := range c.parts {
		for _, k := range p {
			out = append(out, float64(k)/1e3)
		}
	}
	out = append(out, c.wide...)
	*c = Column{}
	return out
}
