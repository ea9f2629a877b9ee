package diagnose

import (
	"slices"
	"sort"

	"github.com/stageline/stageline/correlate"
)

// requestCase is one complete request as the judge sees it: its time, divided over places.
type requestCase struct {
	total float64 // µs, planned time (else first write, else entry) to end
	spent []spent // in the order in which its path, followed back, came to the places
}

// spent is a request's time on its critical path at one place, µs.
type spent struct {
	place int // number
	by    [parts]float64
	width float64 // half the widths of the borders with other places
}

func (s *spent) total() float64 { return sum(s.by) }

func sum(by [parts]float64) (us float64) {
	for _, v := range by {
		us += v
	}
	return us
}

// at is the time at a place; null when the path does not lead there.
func (c *requestCase) at(place int) *spent {
	for i := range c.spent {
		if c.spent[i].place == place {
			return &c.spent[i]
		}
	}
	return nil
}

// caseGather takes the requests whose beginning was seen and whose both ends are known, in order of
// time.
type caseGather struct {
	cases   []*requestCase
	leftOut int
	places  []place
	numbers map[place]int
}

func (g *caseGather) request(q *correlate.RequestTimeline) {
	path, ok := criticalPath(q)
	if q.InFlight || !ok {
		g.leftOut++
		return
	}
	c := &requestCase{}
	for _, s := range path {
		us := float64(s.to-s.from) / 1e3
		c.total += us
		n := g.number(s.place)
		sp := c.at(n)
		if sp == nil {
			c.spent = append(c.spent, spent{place: n})
			sp = &c.spent[len(c.spent)-1]
		}
		sp.by[s.part] += us
		sp.width += float64(s.width) / 1e3
	}
	c.spent = slices.Clip(c.spent)
	g.cases = append(g.cases, c)
}

func (g *caseGather) number(p place) int {
	n, ok := g.numbers[p]
	if !ok {
		n = len(g.places)
		g.numbers[p], g.places = n, append(g.places, p)
	}
	return n
}

// table is the cases in rows of figures, one column a place, so that resampling is a sum over rows.
type table struct {
	places  []place
	numbers []int       // of the places in the cases
	total   []float64   // by case
	at      [][]float64 // by case, then by place
}

func (g *caseGather) table() *table {
	t := &table{numbers: all(len(g.places))}
	sort.Slice(t.numbers, func(a, b int) bool { return g.places[t.numbers[a]].label() < g.places[t.numbers[b]].label() })
	column := make([]int, len(g.places))
	for i, n := range t.numbers {
		column[n] = i
		t.places = append(t.places, g.places[n])
	}
	figures := make([]float64, len(g.cases)*len(t.places))
	for _, c := range g.cases {
		row := figures[:len(t.places):len(t.places)]
		figures = figures[len(t.places):]
		for i := range c.spent {
			row[column[c.spent[i].place]] = c.spent[i].total()
		}
		t.total, t.at = append(t.total, c.total), append(t.at, row)
	}
	return t
}

// means are the mean time at each place and the mean whole time of some rows.
func (t *table) means(rows []int) (at []float64, whole float64) {
	at = make([]float64, len(t.places))
	for _, r := range rows {
		whole += t.total[r]
		for i, us := range t.at[r] {
			at[i] += us
		}
	}
	n := float64(len(rows))
	for i := range at {
		at[i] /= n
	}
	return at, whole / n
}

// bySpan are the rows in order of their whole time, slowest first.
func (t *table) bySpan() []int {
	rows := all(len(t.total))
	sort.SliceStable(rows, func(a, b int) bool { return t.total[rows[a]] > t.total[rows[b]] })
	return rows
}

func all(n int) []int {
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	return rows
}

func (p place) label() string {
	if p.where == "" {
		return p.kind
	}
	return p.kind + " " + p.where
}
