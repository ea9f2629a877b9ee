package diagnose

import (
	"fmt"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

// Kinds of verdict and of suspect. Unexplained is a suspect only.
const (
	KindStage        = "stage"
	KindHop          = "hop"
	KindClient       = "client"
	KindUnexplained  = "unexplained"
	KindInconclusive = "inconclusive"
)

// What a verdict needs. They are rules of thumb, the same for every engine and load, and printed with
// the verdict they led to.
const (
	minRequests = 20
	// A stage does work, so that some stage always takes most of the time: it is named when it takes
	// a third of it, and twice as much as the next.
	minShare = 1.0 / 3
	minLead  = 2
	// A hop does none: a tenth of the time is much, and the other hops show what hops cost here.
	minHopShare = 0.10
	minHopLead  = 3
	// The slow requests are asked about on their own when they take twice the time of the fast half.
	minTailRatio = 2
	minTailShare = 0.5
	minTailLead  = 2
	minSupport   = 0.90 // of the resamples of the requests, in which the place must lead
	maxWidth     = 0.5  // of a place's time, that may be the widths of its borders
	rounds       = 200
)

// Verdict names what holds requests up, or says that nothing stands out.
type Verdict struct {
	Kind   string `json:"kind"`
	Where  string `json:"where"`
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason"`
	Advice string `json:"advice"` // what to look at next
	// Evidence is what was measured at the place itself.
	Evidence []Figure `json:"evidence"`
	Numbers  Numbers  `json:"numbers"`
}

// Numbers are the figures behind a verdict.
type Numbers struct {
	Requests    int       `json:"requests"` // complete requests judged
	LeftOut     int       `json:"left_out"` // in flight at attach, or without a known end
	MeanUS      stat.Num  `json:"mean_us"`  // whole time of the requests judged
	MedianUS    stat.Num  `json:"median_us"`
	Tail        int       `json:"tail"`        // slowest tenth, at least 10 requests
	TailUS      stat.Num  `json:"tail_us"`     // their mean whole time
	FastUS      stat.Num  `json:"fast_us"`     // mean whole time of the faster half
	Unexplained stat.Num  `json:"unexplained"` // share of the time in no visit and no hop
	Basis       string    `json:"basis"`       // what Suspects compares: "all", "slow" or ""
	Support     stat.Num  `json:"support"`     // share of resamples in which the first suspect leads
	HalfFirst   string    `json:"half_first"`  // first suspect among the earlier half of the requests
	HalfLast    string    `json:"half_last"`   // and among the later
	Suspects    []Suspect `json:"suspects"`    // by share of all requests' time, at most six
	Readers     []Reader  `json:"readers"`     // processes that left messages unread
}

// Judge looks for what holds requests up, in this order: a stage (or the client) that takes most of
// all requests' time; a process that stops reading; a hop that takes far more than other hops; a
// place that makes the slow requests slow. The first that its rule confirms is the verdict.
//
// Time is counted on the critical path only: waiting for an input counts where that input was. A
// claim must hold in both halves of the requests in order of time and in most resamples of them.
func Judge(r *correlate.Result, _ *Summary) Verdict {
	g := caseGather{numbers: map[place]int{}}
	for _, q := range r.All() {
		g.request(q)
	}
	j := &judge{result: r, cases: g.cases, num: Numbers{Requests: len(g.cases), LeftOut: g.leftOut, MeanUS: stat.Unknown(), MedianUS: stat.Unknown(),
		TailUS: stat.Unknown(), FastUS: stat.Unknown(), Unexplained: stat.Unknown(), Support: stat.Unknown(), Suspects: []Suspect{}, Readers: []Reader{}}}
	if len(g.cases) < minRequests {
		return j.inconclusive(fmt.Sprintf("only %d complete requests; a verdict needs %d", len(g.cases), minRequests), "record more requests")
	}
	j.t = g.table()
	j.prepare()
	why := ""
	for _, rule := range []func() (Verdict, string){j.dominant, j.reader, j.hop, j.slowOnes} {
		v, not := rule()
		if not == "" {
			return v
		}
		if why == "" {
			why = not // of the first rule: it speaks of all requests
		}
	}
	return j.inconclusive(why, "a higher load or more requests may bring one forth; the suspects below are in order of their time")
}

type judge struct {
	result *correlate.Result
	cases  []*requestCase
	t      *table
	num    Numbers
	all    []Suspect // by share of all requests' time
}

func (j *judge) prepare() {
	rows := j.t.bySpan()
	n := len(rows)
	j.num.Tail = min(n, max(10, (n+9)/10))
	j.num.MedianUS = stat.Of(append([]float64(nil), j.t.total...), 0).P50
	at, whole := j.t.means(all(n))
	_, tail := j.t.means(rows[:j.num.Tail])
	_, fast := j.t.means(rows[n/2:])
	j.num.MeanUS, j.num.TailUS, j.num.FastUS = stat.Num(whole), stat.Num(tail), stat.Num(fast)
	j.num.Unexplained = 0
	for i, p := range j.t.places {
		if p == unexplained {
			j.num.Unexplained = stat.Num(at[i] / whole)
		}
	}
	j.all = j.suspects()
	j.num.Suspects = j.all[:min(6, len(j.all))]
	j.num.Readers = unreadTimes(j.result)
}

func (j *judge) inconclusive(why, advice string) Verdict {
	return Verdict{Kind: KindInconclusive, Reason: why, Advice: advice, Evidence: []Figure{}, Numbers: j.num}
}

// dominant is the place that takes most of all requests' time.
func (j *judge) dominant() (Verdict, string) {
	if len(j.all) == 0 {
		return Verdict{}, "no stage or hop has known times"
	}
	top := &j.all[0]
	if top.Share < minShare {
		return Verdict{}, fmt.Sprintf("nothing stands out: %s takes most of the time of %d requests, %.0f %% (a verdict needs %.0f %%)",
			top.label(), j.num.Requests, 100*top.Share, 100*minShare)
	}
	if len(j.all) > 1 && float64(top.Share) < minLead*float64(j.all[1].Share) {
		return Verdict{}, fmt.Sprintf("two are close: %s takes %.0f %% and %s %.0f %% of the time of %d requests",
			top.label(), 100*top.Share, j.all[1].label(), 100*j.all[1].Share, j.num.Requests)
	}
	return j.confirm(top, "all", func(rows []int) (string, float64) { return j.leader(j.shares(rows), nil) }, minLead*0.8)
}

// hop is the hop that takes far more than the others do.
func (j *judge) hop() (Verdict, string) {
	var hops []*Suspect
	for i := range j.all {
		if j.all[i].Kind == KindHop {
			hops = append(hops, &j.all[i])
		}
	}
	if len(hops) == 0 || hops[0].Share < minHopShare {
		return Verdict{}, "no hop takes much"
	}
	if len(hops) > 1 && float64(hops[0].Share) < minHopLead*float64(hops[1].Share) {
		return Verdict{}, fmt.Sprintf("hops are slow, and no one of them stands out: %s takes %.0f %%, %s %.0f %%", hops[0].Where, 100*hops[0].Share, hops[1].Where, 100*hops[1].Share)
	}
	isHop := func(p place) bool { return p.kind == KindHop }
	return j.confirm(hops[0], "all", func(rows []int) (string, float64) { return j.leader(j.shares(rows), isHop) }, minHopLead*0.8)
}

// slowOnes is the place where the slow requests lose what they take beyond the fast half.
func (j *judge) slowOnes() (Verdict, string) {
	if j.num.TailUS < minTailRatio*j.num.FastUS {
		return Verdict{}, "the slow requests are not much slower"
	}
	rows := j.t.bySpan()
	excess := j.excess(rows)
	var top, next *Suspect
	for i := range j.all {
		s := &j.all[i]
		s.SlowShare = stat.Num(excess[s.column])
		if top == nil || s.SlowShare > top.SlowShare {
			top, next = s, top
		} else if next == nil || s.SlowShare > next.SlowShare {
			next = s
		}
	}
	if top.Kind == KindUnexplained || top.SlowShare < minTailShare || next != nil && top.SlowShare < minTailLead*next.SlowShare {
		return Verdict{}, "the slow requests lose their time at several places"
	}
	inSlow := make([]*requestCase, 0, j.num.Tail)
	for _, row := range rows[:j.num.Tail] {
		inSlow = append(inSlow, j.cases[row])
	}
	what := *top
	what.divide(j.t.numbers[top.column], inSlow) // of the slow ones: the mean of all hides what is theirs
	return j.confirm(&what, "slow", func(rows []int) (string, float64) {
		sub := *j.t
		sub.total, sub.at = nil, nil
		for _, r := range rows {
			sub.total, sub.at = append(sub.total, j.t.total[r]), append(sub.at, j.t.at[r])
		}
		return j.leader((&judge{t: &sub, num: Numbers{Tail: max(1, (len(rows)+9)/10)}}).excess(sub.bySpan()), nil)
	}, minTailLead*0.8)
}
