package diagnose

import (
	"fmt"
	"math"
	"sort"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

// Kinds of verdict.
const (
	KindStage        = "stage"
	KindHop          = "hop"
	KindClient       = "client"
	KindInconclusive = "inconclusive"
)

// What a verdict needs. They are rules of thumb, printed with each verdict, not measured constants.
const (
	minRequests = 20   // fewer say nothing about a tail
	minShare    = 0.20 // of the tail's time that a suspect's excess must take
	minLead     = 1.25 // times the runner-up's
	minSupport  = 0.80 // of the resamples of the tail in which the suspect must win
	rounds      = 200
)

// Suspect is a place where time can go, with its excess over the tail requests.
//
// The excess of a stage in one request is the time the request stood ready before it (union of
// [ready, start] over its visits) plus the service time beyond the stage's own fast service (the
// 10th percentile over all requests). The excess of a hop is its time from hand-over to receipt
// beyond the fast one of the same connector. The client's is the time a request was sent later
// than planned.
type Suspect struct {
	Kind     string   `json:"kind"`
	Where    string   `json:"where"`
	Share    stat.Num `json:"share"`      // sum of excess ÷ sum of the tail requests' time
	ExcessUS stat.Num `json:"excess_us"`  // mean per tail request
	QueueUS  stat.Num `json:"queue_us"`   // mean queue wait per tail request; hops: null
	TotalUS  stat.Num `json:"total_us"`   // mean time spent there per tail request
	FloorUS  stat.Num `json:"floor_us"`   // fast service or crossing, subtracted
	TailWith int      `json:"tail_with"`  // tail requests in which it was determined
	TailLack int      `json:"tail_lacks"` // tail requests that went there without times
}

// Verdict names where the time of the slow requests went, or says that nothing stands out.
type Verdict struct {
	Kind    string  `json:"kind"`
	Where   string  `json:"where"`
	Reason  string  `json:"reason"`
	Numbers Numbers `json:"numbers"`
}

// Numbers are the figures behind a verdict.
type Numbers struct {
	Requests  int       `json:"requests"` // complete requests judged
	LeftOut   int       `json:"left_out"` // in flight at attach, or without an end-to-end time
	Tail      int       `json:"tail"`     // slowest tenth, at least 10 requests
	TailUS    stat.Num  `json:"tail_us"`  // mean end-to-end time of the tail
	MedianUS  stat.Num  `json:"median_us"`
	Support   stat.Num  `json:"support"` // share of resamples that give the same suspect
	HalfFirst string    `json:"half_first"`
	HalfLast  string    `json:"half_last"` // first suspect of the tail's earlier and later half
	Suspects  []Suspect `json:"suspects"`  // by share, at most five
}

// Judge weighs the suspects over the slowest requests. The verdict must be the same in both halves
// of the tail in order of time and in most resamples of it, or it is inconclusive.
func Judge(r *correlate.Result, _ *Summary) Verdict {
	cases, leftOut := collectCases(r)
	num := Numbers{Requests: len(cases), LeftOut: leftOut, TailUS: stat.Unknown(), MedianUS: stat.Unknown(), Support: stat.Unknown(), Suspects: []Suspect{}}
	if len(cases) < minRequests {
		return inconclusive(num, fmt.Sprintf("only %d complete requests; a verdict on the slow ones needs %d", len(cases), minRequests))
	}
	floors := fastTimes(cases)
	tail := slowest(cases)
	num.Tail, num.MedianUS = len(tail), medianTotal(cases)
	all := rank(tail, floors)
	num.TailUS = stat.Num(meanTotal(tail))
	num.Suspects = all[:min(5, len(all))]
	if len(all) == 0 {
		return inconclusive(num, "no stage or hop of the slow requests has known times")
	}
	num.HalfFirst, num.HalfLast = name(rank(tail[:len(tail)/2], floors)), name(rank(tail[len(tail)/2:], floors))
	num.Support = stat.Support(len(tail), rounds, func(sample []int) bool {
		drawn := make([]*requestCase, len(sample))
		for i, s := range sample {
			drawn[i] = tail[s]
		}
		return name(rank(drawn, floors)) == all[0].label()
	})
	return weigh(num, all)
}

func weigh(num Numbers, all []Suspect) Verdict {
	top := all[0]
	if float64(top.Share) < minShare {
		return inconclusive(num, fmt.Sprintf("nothing stands out: the largest excess, %s, takes %.0f %% of the time of the %d slowest of %d requests (needs %.0f %%)",
			top.label(), 100*top.Share, num.Tail, num.Requests, 100*minShare))
	}
	if len(all) > 1 && float64(top.Share) < minLead*float64(all[1].Share) {
		return inconclusive(num, fmt.Sprintf("two are close: %s takes %.0f %% and %s %.0f %% of the time of the %d slowest of %d requests",
			top.label(), 100*top.Share, all[1].label(), 100*all[1].Share, num.Tail, num.Requests))
	}
	if num.HalfFirst != num.HalfLast {
		return inconclusive(num, fmt.Sprintf("not stable over time: %s in the earlier half of the slow requests, %s in the later", num.HalfFirst, num.HalfLast))
	}
	if float64(num.Support) < minSupport {
		return inconclusive(num, fmt.Sprintf("not stable: %s leads in only %.0f %% of resamples of the %d slow requests", top.label(), 100*num.Support, num.Tail))
	}
	return Verdict{Kind: top.Kind, Where: top.Where, Reason: top.reason(&num), Numbers: num}
}

func inconclusive(num Numbers, why string) Verdict {
	return Verdict{Kind: KindInconclusive, Reason: why, Numbers: num}
}

func (s *Suspect) label() string { return s.Kind + " " + s.Where }

func (s *Suspect) reason(num *Numbers) string {
	of := fmt.Sprintf("of the %d slowest of %d requests (mean %.1f ms, median of all %.1f ms)", num.Tail, num.Requests, num.TailUS/1e3, num.MedianUS/1e3)
	switch s.Kind {
	case KindStage:
		return fmt.Sprintf("waiting for it and its service beyond %.1f ms take %.0f %% of the time %s: %.1f ms waiting and %.1f ms in all per request",
			s.FloorUS/1e3, 100*s.Share, of, s.QueueUS/1e3, s.TotalUS/1e3)
	case KindHop:
		return fmt.Sprintf("its crossing beyond %.2f ms takes %.0f %% of the time %s: %.1f ms per request", s.FloorUS/1e3, 100*s.Share, of, s.TotalUS/1e3)
	}
	return fmt.Sprintf("sending later than planned takes %.0f %% of the time %s: the load generator did not keep up, the engine is not to blame", 100*s.Share, of)
}

func name(ranked []Suspect) string {
	if len(ranked) == 0 {
		return "none"
	}
	return ranked[0].label()
}

// fastTimes gives per place the 10th percentile (nearest rank) of the work time over all requests:
// what a crossing or service costs when nothing is in its way.
func fastTimes(cases []*requestCase) map[place]float64 {
	values := map[place][]float64{}
	for _, c := range cases {
		for p, s := range c.spent {
			if s.known {
				values[p] = append(values[p], s.work)
			}
		}
	}
	fast := make(map[place]float64, len(values))
	for p, v := range values {
		sort.Float64s(v)
		fast[p] = float64(stat.Quantile(v, 0.1))
	}
	return fast
}

// slowest returns the slowest tenth of the cases, at least 10 of them, in order of time.
func slowest(cases []*requestCase) []*requestCase {
	bySpan := append([]*requestCase(nil), cases...)
	sort.SliceStable(bySpan, func(a, b int) bool { return bySpan[a].total > bySpan[b].total })
	tail := bySpan[:min(len(cases), max(10, int(math.Ceil(float64(len(cases))/10))))]
	sort.SliceStable(tail, func(a, b int) bool { return tail[a].index < tail[b].index })
	return tail
}

func meanTotal(cases []*requestCase) float64 {
	var sum float64
	for _, c := range cases {
		sum += c.total
	}
	return sum / float64(len(cases))
}

func medianTotal(cases []*requestCase) stat.Num {
	v := make([]float64, 0, len(cases))
	for _, c := range cases {
		v = append(v, c.total)
	}
	return stat.Of(v, 0).P50
}

// rank sorts the suspects of some requests by the share that their excess takes.
func rank(cases []*requestCase, floors map[place]float64) []Suspect {
	type sums struct {
		excess, queue, total float64
		with, lack           int
	}
	byPlace := map[place]*sums{}
	var whole float64
	for _, c := range cases {
		whole += c.total
		for p, s := range c.spent {
			a := byPlace[p]
			if a == nil {
				a = &sums{}
				byPlace[p] = a
			}
			if !s.known {
				a.lack++
				continue
			}
			a.with++
			a.queue += s.queue
			a.total += s.queue + s.work
			a.excess += s.queue + max(0, s.work-floors[p])
		}
	}
	out := make([]Suspect, 0, len(byPlace))
	n := float64(len(cases))
	for p, a := range byPlace {
		if a.with == 0 || whole <= 0 {
			continue
		}
		s := Suspect{Kind: p.kind, Where: p.where, Share: stat.Num(a.excess / whole), ExcessUS: stat.Num(a.excess / n),
			QueueUS: stat.Num(a.queue / n), TotalUS: stat.Num(a.total / n), FloorUS: stat.Num(floors[p]), TailWith: a.with, TailLack: a.lack}
		if p.kind != KindStage {
			s.QueueUS = stat.Unknown()
		}
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Share != out[j].Share {
			return out[i].Share > out[j].Share
		}
		return out[i].label() < out[j].label()
	})
	return out
}
