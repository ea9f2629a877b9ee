package diagnose

import (
	"sort"

	"github.com/stageline/stageline/correlate"
)

// requestCase is one complete request as the judge sees it: its time, divided over places.
type requestCase struct {
	total float64 // µs, planned time (else first write, else entry) to end
	spent map[place]*spent
}

// spent is a request's time on its critical path at one place, µs.
type spent struct {
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

// collectCases takes the requests whose beginning was seen and whose both ends are known, in order
// of time.
func collectCases(r *correlate.Result) (cases []*requestCase, leftOut int) {
	for i := range r.Requests {
		q := &r.Requests[i]
		path, ok := criticalPath(q)
		if q.InFlight || !ok {
			leftOut++
			continue
		}
		c := &requestCase{spent: map[place]*spent{}}
		for _, s := range path {
			us := float64(s.to-s.from) / 1e3
			c.total += us
			sp := c.spent[s.place]
			if sp == nil {
				sp = &spent{}
				c.spent[s.place] = sp
			}
			sp.by[s.part] += us
			sp.width += float64(s.width) / 1e3
		}
		cases = append(cases, c)
	}
	return cases, leftOut
}

// table is the cases in rows of figures, one column a place, so that resampling is a sum over rows.
type table struct {
	places []place
	total  []float64   // by case
	at     [][]float64 // by case, then by place
}

func newTable(cases []*requestCase) *table {
	t := &table{}
	column := map[place]int{}
	for _, c := range cases {
		for p := range c.spent {
			if _, ok := column[p]; !ok {
				column[p] = 0
				t.places = append(t.places, p)
			}
		}
	}
	sort.Slice(t.places, func(a, b int) bool { return t.places[a].label() < t.places[b].label() })
	for i, p := range t.places {
		column[p] = i
	}
	for _, c := range cases {
		row := make([]float64, len(t.places))
		for p, s := range c.spent {
			row[column[p]] = s.total()
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
