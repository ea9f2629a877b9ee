package diagnose

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"

	"github.com/stageline/stageline/correlate/stat"
)

// Suspect is a place with what it takes of the requests' critical paths. Times are means per request
// over all requests judged, µs; queue and service are of stages, the next three of hops, the others
// null.
type Suspect struct {
	Kind       string   `json:"kind"`
	Where      string   `json:"where"`
	Share      stat.Num `json:"share"`    // of the requests' whole time
	ShareLo    stat.Num `json:"share_lo"` // 95 % interval, resampled by request
	ShareHi    stat.Num `json:"share_hi"`
	SlowShare  stat.Num `json:"slow_share"` // of what the slow tenth takes beyond the fast half; null when not asked
	TotalUS    stat.Num `json:"total_us"`
	QueueUS    stat.Num `json:"queue_us"`    // input held → start
	ServiceUS  stat.Num `json:"service_us"`  // start → finish
	SenderUS   stat.Num `json:"sender_us"`   // output finished → send
	CrossingUS stat.Num `json:"crossing_us"` // send → receive
	PayloadUS  stat.Num `json:"payload_us"`  // receive → payload read
	// UndividedUS is the part whose boundaries inside the place are unknown.
	UndividedUS stat.Num `json:"undivided_us"`
	// WidthUS is how far its borders with other places may lie off: half the widths of [lo, hi].
	WidthUS stat.Num `json:"width_us"`
	N       int      `json:"n"` // requests whose critical path leads through it

	column int
}

func (s *Suspect) label() string { return place{s.Kind, s.Where}.label() }

// suspects are all places, by their share of all requests' time.
func (j *judge) suspects() []Suspect {
	at, whole := j.t.means(all(len(j.cases)))
	lo, hi := j.intervals()
	out := make([]Suspect, 0, len(at))
	for i, p := range j.t.places {
		s := Suspect{Kind: p.kind, Where: p.where, Share: stat.Num(at[i] / whole), ShareLo: lo[i], ShareHi: hi[i], SlowShare: stat.Unknown(), column: i}
		s.divide(j.t.numbers[i], j.cases)
		out = append(out, s)
	}
	sort.SliceStable(out, func(a, b int) bool { return out[a].Share > out[b].Share })
	return out
}

// divide gives the parts of its time, and its widths, as means over cases.
func (s *Suspect) divide(place int, cases []*requestCase) {
	var by [parts]float64
	width := 0.0
	s.N = 0
	for _, c := range cases {
		sp := c.at(place)
		if sp == nil {
			continue
		}
		s.N++
		width += sp.width
		for i, us := range sp.by {
			by[i] += us
		}
	}
	n := float64(len(cases))
	figures := [parts]stat.Num{}
	for i := range figures {
		ofStage := part(i) == partQueue || part(i) == partService
		figures[i] = stat.Unknown()
		if part(i) == partUndivided || s.Kind == KindStage && ofStage || s.Kind == KindHop && !ofStage {
			figures[i] = stat.Num(by[i] / n)
		}
	}
	s.QueueUS, s.ServiceUS, s.SenderUS = figures[partQueue], figures[partService], figures[partSender]
	s.CrossingUS, s.PayloadUS, s.UndividedUS = figures[partCrossing], figures[partPayload], figures[partUndivided]
	s.TotalUS, s.WidthUS = stat.Num(sum(by)/n), stat.Num(width/n)
}

// intervals are the 95 % intervals of the places' shares, from resamples of the requests.
func (j *judge) intervals() (lo, hi []stat.Num) {
	n := len(j.cases)
	values := make([][]float64, len(j.t.places))
	rng := rand.New(rand.NewPCG(2, uint64(n)))
	rows := make([]int, n)
	for range rounds {
		for i := range rows {
			rows[i] = rng.IntN(n)
		}
		for i, s := range j.shares(rows) {
			values[i] = append(values[i], s)
		}
	}
	for _, v := range values {
		sort.Float64s(v)
		lo, hi = append(lo, stat.Quantile(v, 0.025)), append(hi, stat.Quantile(v, 0.975))
	}
	return lo, hi
}

// shares of the places in the time of some requests.
func (j *judge) shares(rows []int) []float64 {
	at, whole := j.t.means(rows)
	for i := range at {
		at[i] /= whole
	}
	return at
}

// excess is each place's share of what the slowest of rows, sorted slowest first, take beyond the
// faster half. The shares add up to 1.
func (j *judge) excess(rows []int) []float64 {
	slow, whole := j.t.means(rows[:min(len(rows), j.num.Tail)])
	fast, base := j.t.means(rows[len(rows)/2:])
	for i := range slow {
		slow[i] = (slow[i] - fast[i]) / math.Max(whole-base, 1e-9)
	}
	return slow
}

// leader is the place with the largest figure among those that of allows, and how many times the
// next one's it is.
func (j *judge) leader(figures []float64, of func(place) bool) (string, float64) {
	name, first, next := "none", 0.0, 0.0
	for i, f := range figures {
		switch {
		case of != nil && !of(j.t.places[i]):
		case f > first:
			name, first, next = j.t.places[i].label(), f, first
		case f > next:
			next = f
		}
	}
	if next == 0 {
		return name, math.Inf(1)
	}
	return name, first / next
}

// confirm tests a claim: the halves of the requests and most resamples must name the same place,
// the resamples with lead; and the widths of its borders must be small beside its time.
func (j *judge) confirm(top *Suspect, basis string, leads func(rows []int) (string, float64), lead float64) (Verdict, string) {
	n := len(j.cases)
	rows := all(n)
	num := j.num
	num.Basis = basis
	num.HalfFirst, _ = leads(rows[:n/2])
	num.HalfLast, _ = leads(rows[n/2:])
	num.Support = stat.Support(n, rounds, func(sample []int) bool {
		name, by := leads(sample)
		return name == top.label() && by >= lead
	})
	switch {
	case top.Kind == KindUnexplained:
		return Verdict{}, fmt.Sprintf("%.0f %% of the time of %d requests lie in no visit and no hop", 100*top.Share, n)
	case num.HalfFirst != top.label() || num.HalfLast != top.label():
		return Verdict{}, fmt.Sprintf("not stable over time: %s in the earlier half of %d requests, %s in the later", num.HalfFirst, n, num.HalfLast)
	case float64(num.Support) < minSupport:
		return Verdict{}, fmt.Sprintf("not stable: %s leads clearly in only %.0f %% of resamples of %d requests", top.label(), 100*num.Support, n)
	case top.WidthUS > maxWidth*top.TotalUS:
		return Verdict{}, fmt.Sprintf("not sure enough: %s takes %.0f %% of the time, %.1f ms a request, but its borders may lie %.1f ms off",
			top.label(), 100*top.Share, top.TotalUS/1e3, top.WidthUS/1e3)
	}
	return j.found(top, num), ""
}
