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
	o := newOverview(r)
	for i, q := range r.All() {
		o.request(i, q)
	}
	s := &Summary{
		Window:     o.window.span(),
		Stages:     o.stages.list(),
		Edges:      o.edges.list(),
		Connectors: o.connectors.list(),
		Requests:   o.requests.summary(),
	}
	batched := batches(r)
	for i := range s.Stages {
		st := &s.Stages[i]
		if b := batched[st.Stage]; b != nil {
			st.Load = *b
		} else {
			st.Load.BatchMean = stat.Unknown()
		}
		st.Load.NoActivation = st.Visits - st.inActivation
	}
	i := 0
	for name, points := range eachSeries(r) { // it names the stages as the list does
		if s.Stages[i].Stage == name {
			s.Stages[i].Load.overTime(points, s.Window)
		}
		i++
	}
	return s
}

// overview is what one pass over the requests gathers for a summary.
type overview struct {
	window     windowGather
	stages     stagesGather
	edges      hopsGather
	connectors hopsGather
	requests   requestGather
}

func newOverview(r *correlate.Result) *overview {
	o := &overview{stages: stagesGather{}, edges: hopsGather{}, connectors: hopsGather{}, requests: newRequestGather()}
	for i := range r.Stages {
		o.stages.of(r.Stages[i].Name) // a stage that nothing visited is a finding, not an omission
	}
	return o
}

func (o *overview) request(i int, q *correlate.RequestTimeline) {
	o.window.request(q)
	o.requests.request(q)
	for j := range q.Visits {
		o.stages.of(q.Visits[j].Stage).visit(i, &q.Visits[j], q.Hops)
	}
	data := dataHops(q)
	for j := range q.Hops {
		h := &q.Hops[j]
		o.connectors.hop(h, h.Type)
		if data[j] {
			o.edges.hop(h, "")
		}
	}
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

// stagesGather is all stages by name.
type stagesGather map[string]*stageGather

func (l stagesGather) of(name string) *stageGather {
	g := l[name]
	if g == nil {
		g = &stageGather{sum: StageSummary{Stage: name, Grades: newGrades(), LastInput: map[string]int{}}, lastRequest: -1, upstreams: map[string]*upstreamGather{}}
		l[name] = g
	}
	return g
}

func (l stagesGather) list() []StageSummary {
	out := make([]StageSummary, 0, len(l))
	for _, g := range l {
		s := g.sum
		s.QueueWait, s.Service, s.Residency = g.queue.dist(), g.service.dist(), g.residency.dist()
		s.JoinWait, s.IntervalWidth = g.join.dist(), g.iv.dist()
		s.Upstreams, s.FanOut, s.Chunks, s.Split = g.upstreamList(), g.out.fanOut(), g.chunks.figures(), g.split.split()
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
