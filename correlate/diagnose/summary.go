// Package diagnose condenses a timeline into figures per stage, connector and request, and judges
// where the time of the slow requests went.
//
// Figures are microseconds unless their name says otherwise. A figure that could not be determined
// for a visit, hop or request is counted as unknown beside the distribution of those that could; it
// never enters the distribution as a zero.
package diagnose

import (
	"sort"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

// Summary is a timeline in figures. Its slices are sorted by name, so that equal timelines give
// equal summaries.
type Summary struct {
	// Window is the time under load, over which Stages[].Load is taken; null when nothing was seen.
	Window     *[2]int64      `json:"load_window_ns"`
	Stages     []StageSummary `json:"stages"`
	Edges      []Connector    `json:"edges"`      // data alone, all message types together
	Connectors []Connector    `json:"connectors"` // by message type, control messages too
	Requests   RequestSummary `json:"requests"`
}

// Grades counts points or records by grade.
type Grades struct {
	Identity map[correlate.Identity]int `json:"identity"`
	Timing   map[correlate.Timing]int   `json:"timing"`
}

func newGrades() Grades {
	return Grades{
		Identity: map[correlate.Identity]int{correlate.IdentityExact: 0, correlate.IdentityPaired: 0, correlate.IdentityOrdered: 0, correlate.IdentityUnknown: 0},
		Timing:   map[correlate.Timing]int{correlate.TimingSeen: 0, correlate.TimingBounded: 0, correlate.TimingUnknown: 0},
	}
}

func (g Grades) identity(i correlate.Identity) {
	if i == "" {
		i = correlate.IdentityUnknown
	}
	g.Identity[i]++
}

func (g Grades) timing(points ...correlate.Point) {
	for _, p := range points {
		if p.Timing == "" || p.NS == nil {
			g.Timing[correlate.TimingUnknown]++
			continue
		}
		g.Timing[p.Timing]++
	}
}

// StageSummary is one stage over all its visits.
type StageSummary struct {
	Stage     string    `json:"stage"`
	Visits    int       `json:"visits"`
	Requests  int       `json:"requests"`      // requests that visited it
	Joins     int       `json:"joins"`         // visits with more than one distinct upstream
	QueueWait stat.Dist `json:"queue_wait_us"` // ready → start
	Service   stat.Dist `json:"service_us"`    // start → finish
	Residency stat.Dist `json:"residency_us"`  // arrival → departure
	JoinWait  stat.Dist `json:"join_wait_us"`  // first → last input, joins only
	// Joins by the upstream whose input arrived last; "" counts those in which it is not known.
	LastInput map[string]int `json:"last_input,omitempty"`
	Upstreams []Upstream     `json:"upstreams,omitempty"` // of joins, by name
	FanOut    FanOut         `json:"fan_out"`
	Chunks    *Chunks        `json:"chunks"` // null: it does not fire per chunk
	Load      StageLoad      `json:"load"`
	Split     ServiceSplit   `json:"service_split"`
	// Width of [lo, hi] of the bounded ones among ready, start and finish.
	IntervalWidth stat.Dist `json:"interval_width_us"`
	Grades        Grades    `json:"grades"` // identity of visits; timing of ready, start and finish

	inActivation int // visits
}

// gather collects values and counts what is unknown.
type gather struct {
	values  []float64
	unknown int
}

func (g *gather) add(us float64, ok bool) {
	if !ok {
		g.unknown++
		return
	}
	g.values = append(g.values, us)
}

// count adds a number of bytes, unknown when it is null.
func (g *gather) count(n *int64) {
	if n == nil {
		g.unknown++
		return
	}
	g.values = append(g.values, float64(*n))
}

func (g *gather) between(a, b correlate.Point) { g.add(between(a, b)) }

func (g *gather) dist() stat.Dist { return stat.Of(g.values, g.unknown) }

// between is b−a in microseconds.
func between(a, b correlate.Point) (float64, bool) {
	return betweenNS(a.NS, b.NS)
}

func betweenNS(a, b *int64) (float64, bool) {
	if a == nil || b == nil {
		return 0, false
	}
	return float64(*b-*a) / 1e3, true
}

// Summarise reads a finished timeline; it does not change it.
func Summarise(r *correlate.Result) *Summary {
	s := &Summary{
		Window:     loadWindow(r),
		Stages:     summariseStages(r),
		Edges:      edges(r),
		Connectors: connectors(r),
		Requests:   summariseRequests(r),
	}
	series, batched := Series(r), batches(r) // both name the stages as summariseStages does
	for i := range s.Stages {
		st := &s.Stages[i]
		if b := batched[st.Stage]; b != nil {
			st.Load = *b
		} else {
			st.Load.BatchMean = stat.Unknown()
		}
		st.Load.NoActivation = st.Visits - st.inActivation
		st.Load.overTime(series[i].Points, s.Window)
	}
	return s
}

type stageGather struct {
	sum                                 StageSummary
	lastRequest                         int
	queue, service, residency, join, iv gather
	upstreams                           map[string]*upstreamGather
	out                                 fanOutGather
	chunks                              chunkGather
	split                               splitGather
}

func summariseStages(r *correlate.Result) []StageSummary {
	byName := map[string]*stageGather{}
	get := func(name string) *stageGather {
		g := byName[name]
		if g == nil {
			g = &stageGather{sum: StageSummary{Stage: name, Grades: newGrades(), LastInput: map[string]int{}}, lastRequest: -1, upstreams: map[string]*upstreamGather{}}
			byName[name] = g
		}
		return g
	}
	for _, s := range r.Stages {
		get(s.Name) // a stage that nothing visited is a finding, not an omission
	}
	for i := range r.Requests {
		for j := range r.Requests[i].Visits {
			v := &r.Requests[i].Visits[j]
			get(v.Stage).visit(i, v, r.Requests[i].Hops)
		}
	}
	out := make([]StageSummary, 0, len(byName))
	for _, g := range byName {
		s := g.sum
		s.QueueWait, s.Service, s.Residency = g.queue.dist(), g.service.dist(), g.residency.dist()
		s.JoinWait, s.IntervalWidth = g.join.dist(), g.iv.dist()
		s.Upstreams, s.FanOut, s.Chunks, s.Split = g.upstreamList(), g.out.fanOut(), g.chunks.chunks(), g.split.split()
		out = append(out, s)
	}
	sort.Slice(out, func(a, b int) bool { return out[a].Stage < out[b].Stage })
	return out
}

func (g *stageGather) visit(request int, v *correlate.Visit, hops []correlate.Hop) {
	g.sum.Visits++
	if g.lastRequest != request {
		g.sum.Requests++
		g.lastRequest = request
	}
	g.queue.between(v.Ready, v.Start)
	g.service.between(v.Start, v.Finish)
	g.residency.between(v.Arrival, v.Departure)
	if v.Join {
		g.sum.Joins++
		g.join.add(joinWait(v))
		g.sum.LastInput[lastInput(v)]++
		g.inputs(v)
	}
	if v.Activation >= 0 {
		g.sum.inActivation++
	}
	g.out.visit(v, hops)
	g.chunks.visit(request, v)
	g.split.visit(v)
	for _, p := range []correlate.Point{v.Ready, v.Start, v.Finish} {
		if p.Timing == correlate.TimingBounded && p.LoNS != nil && p.HiNS != nil {
			g.iv.add(betweenNS(p.LoNS, p.HiNS))
		}
	}
	g.sum.Grades.identity(v.Identity)
	g.sum.Grades.timing(v.Ready, v.Start, v.Finish)
}

// joinWait is the time from the first to the last input; unknown when one input's arrival is.
func joinWait(v *correlate.Visit) (float64, bool) {
	if len(v.Inputs) == 0 {
		return 0, false
	}
	var first, last *int64
	for i := range v.Inputs {
		at := v.Inputs[i].Held().NS
		if at == nil {
			return 0, false
		}
		if first == nil || *at < *first {
			first = at
		}
		if last == nil || *at > *last {
			last = at
		}
	}
	return betweenNS(first, last)
}

// lastInput names the upstream whose input came last, "" when that is not known.
func lastInput(v *correlate.Visit) string {
	if in := v.Last(); in != nil {
		return in.From
	}
	return ""
}
