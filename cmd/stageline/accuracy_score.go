package main

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

const (
	// seenAllowanceNS is how far truth may lie from a boundary graded "seen" and still be covered by
	// it: truth is stamped beside a call, the boundary is the kernel's side of the same call.
	seenAllowanceNS = 30_000
	// setApartUS is the shortest runnable time of a thread on the causal chain, inside [lo, hi], for
	// which a boundary is set apart as "machine took the CPU". The rule does not look at truth.
	setApartUS = 100
	// scoreAlpha is the share of truth that intervals may miss: they claim 99 %.
	scoreAlpha = 0.01
	// examples is how many of each kind of fault are listed.
	maxExamples = 10
)

// Accuracy is a report against the truth, the content of accuracy.json. All times are microseconds.
type Accuracy struct {
	Schema   string         `json:"schema"`
	RunID    string         `json:"run_id"`
	Source   string         `json:"truth_source"`
	Recorder bool           `json:"recorder"` // only stamps that the truth has are compared
	Identity IdentityShares `json:"identity"` // of truth's visits; a missed one is unknown
	Timing   TimingShares   `json:"timing"`   // of ready, start and finish of truth's visits
	Figures  Figures        `json:"accuracy"`
	Counts   AccuracyCounts `json:"counts"`
	Stages   []StageErrors  `json:"stages"`
	Examples []string       `json:"examples"` // of what is missed, invented or wrong
}

// IdentityShares are shares of a whole by identity grade.
type IdentityShares struct {
	Exact   stat.Num `json:"exact"`
	Paired  stat.Num `json:"paired"`
	Ordered stat.Num `json:"ordered"`
	Unknown stat.Num `json:"unknown"`
}

// TimingShares are shares of a whole by timing grade.
type TimingShares struct {
	Seen    stat.Num `json:"seen"`
	Bounded stat.Num `json:"bounded"`
	Unknown stat.Num `json:"unknown"`
}

// Figures are the headline numbers. Errors are absolute, those set apart left out.
type Figures struct {
	Hop    stat.Errors `json:"hop_us"` // of send and of receive, pooled: two for each hop of the truth
	Ready  stat.Errors `json:"ready_us"`
	Start  stat.Errors `json:"start_us"`
	Finish stat.Errors `json:"finish_us"`
	// IntervalCoverage is the share of truth's ready, start and finish inside [lo, hi]; a missing
	// boundary is not inside, a seen one covers seenAllowanceNS to both sides.
	IntervalCoverage stat.Num      `json:"interval_coverage"`
	IntervalWidth    IntervalWidth `json:"interval_width_us"` // hi − lo of bounded ones
	// IntervalScore is stat.IntervalScore at scoreAlpha of the same; a missing boundary has none.
	IntervalScore IntervalScore `json:"interval_score_us"`
	// All are the errors of ready, start and finish pooled, those set apart included.
	All           stat.Errors `json:"all_us"`
	HopsMissed    int         `json:"hops_missed"`
	HopsInvented  int         `json:"hops_invented"`
	JoinsWrong    int         `json:"joins_wrong"`
	JoinsUnknown  int         `json:"joins_unknown"`   // right inputs, but the report does not say which came last
	SetApartShare stat.Num    `json:"set_apart_share"` // of truth's ready, start and finish
}

// IntervalWidth describes hi − lo.
type IntervalWidth struct {
	N   int      `json:"n"`
	P50 stat.Num `json:"p50"`
	P99 stat.Num `json:"p99"`
	Max stat.Num `json:"max"`
}

// IntervalScore describes interval scores.
type IntervalScore struct {
	N    int      `json:"n"`
	Mean stat.Num `json:"mean"`
	P50  stat.Num `json:"p50"`
	P99  stat.Num `json:"p99"`
}

// AccuracyCounts say what the figures are made of.
type AccuracyCounts struct {
	Requests       int            `json:"requests"` // of the truth
	RequestsMissed int            `json:"requests_missed"`
	Visits         int            `json:"visits"`
	VisitsMissed   int            `json:"visits_missed"`
	VisitsInvented int            `json:"visits_invented"`
	Boundaries     int            `json:"boundaries"` // ready, start, finish
	SetApart       int            `json:"set_apart"`
	Hops           int            `json:"hops"` // of the truth, across process borders
	HopsUntyped    int            `json:"hops_of_unnamed_type"`
	HopIdentity    IdentityShares `json:"hop_identity"`
	HopTiming      TimingShares   `json:"hop_timing"`               // of send and receive
	HopsInMemory   int            `json:"hops_in_memory"`           // of the truth, inside a process: uncovered by design
	MemoryClaimed  int            `json:"hops_in_memory_shown"`     // of those, in the report all the same
	Segments       int            `json:"segments_beside_messages"` // of the report: at most one for each message of the truth
	HopsCounted    int            `json:"hops_known_by_count"`      // of the report: messages that the truth counts by type and has no stamps for
	HopsOutside    int            `json:"hops_outside_truth"`       // of the report, to or from a process truth does not know
	OutsideSpan    int            `json:"outside_span"`             // of the truth: visits and hops not wholly inside the recording, not judged (--within)
	Excused        Excused        `json:"excused"`                  // what else is not judged (--within)
	Joins          int            `json:"joins"`                    // truth's visits with two or more upstreams outside their process
}

// StageErrors are the errors at one stage of the truth.
type StageErrors struct {
	Stage     string      `json:"stage"`
	Visits    int         `json:"visits"`
	Missed    int         `json:"missed"`
	Arrivals  stat.Errors `json:"arrivals_us"`
	Ready     stat.Errors `json:"ready_us"`
	Start     stat.Errors `json:"start_us"`
	Finish    stat.Errors `json:"finish_us"`
	Departure stat.Errors `json:"departure_us"`
	// Late are the boundaries with errors over lateUS, by what the report says held threads up there.
	Late []LateErrors `json:"late"`
}

// errorSet collects absolute errors.
type errorSet struct {
	us      []float64
	missing int
	late    LateErrors
}

// boundary adds the error of p against truth. A null truth is an infinite error, unless skipNull
// says that the log lacks such stamps by nature.
func (e *errorSet) boundary(p correlate.Point, truth *int64, skipNull bool) {
	switch {
	case truth == nil && skipNull:
	case truth == nil || p.NS == nil:
		e.missing++
	default:
		us := math.Abs(float64(*p.NS-*truth)) / 1e3
		e.us = append(e.us, us)
		e.late.count(p, us)
	}
}

func (e *errorSet) errors() stat.Errors { return stat.ErrorsOf(slices.Clone(e.us), e.missing) }

// Excused is what the report lacks of requests that were in flight at attach.
type Excused struct {
	Visits int `json:"visits"`
	Hops   int `json:"hops"`
	Times  int `json:"times"` // of visits and hops that it has
	Joins  int `json:"joins"`
}

type stageSet struct {
	visits, missed                            int
	arrivals, ready, start, finish, departure errorSet
}

// scorer adds up a matching.
type scorer struct {
	m        *matching
	recorder bool

	hop, ready, start, finish errorSet
	all                       errorSet // ready, start and finish with those set apart
	coverage                  stat.Coverage
	widths, scores            []float64
	boundaries, setApart      int
	identity, hopIdentity     map[correlate.Identity]int
	timing, hopTiming         map[correlate.Timing]int
	visits, hops, memory      int
	missedVisits, missedHops  int
	memoryShown               int
	outsideSpan               int
	underWay                  bool // what the report lacks of the request at hand is not judged; see matching.underWay
	excused                   Excused
	joins, wrong, unknownLast int
	stages                    map[string]*stageSet
	examples                  map[string][]string
}

// score compares all boundaries of the truth with what was found for them.
func score(m *matching, runID string, recorder bool) *Accuracy {
	s := &scorer{
		m: m, recorder: recorder,
		identity: map[correlate.Identity]int{}, hopIdentity: map[correlate.Identity]int{},
		timing: map[correlate.Timing]int{}, hopTiming: map[correlate.Timing]int{},
		stages: map[string]*stageSet{}, examples: map[string][]string{},
	}
	for _, id := range m.truth.requests {
		for _, tv := range m.truth.visits[id] {
			s.visit(tv)
		}
		for _, th := range m.truth.hops[id] {
			s.oneHop(th)
		}
	}
	for _, id := range m.requestsMissed {
		s.example("requests missed", "%s", id)
	}
	for _, v := range m.visitsInvented {
		s.example("visits invented", "%s at %s (tgid %d)", v.request.ID, v.Stage, v.TGID)
	}
	for _, h := range m.hopsInvented {
		s.example("hops invented", "%s %s → %s %s", h.request.ID, h.From, h.To, h.Type)
	}
	return s.result(runID)
}

func (s *scorer) example(kind, format string, args ...any) {
	if len(s.examples[kind]) < maxExamples {
		s.examples[kind] = append(s.examples[kind], kind+": "+fmt.Sprintf(format, args...))
	}
}

func chunkText(c *int64) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf(" chunk %d", *c)
}

func (s *scorer) stage(name string) *stageSet {
	if s.stages[name] == nil {
		s.stages[name] = &stageSet{}
	}
	return s.stages[name]
}

func (s *scorer) visit(tv *truthVisit) {
	found := s.m.visits[tv]
	s.underWay = s.m.underWay(tv.Request)
	switch {
	case tv.outside:
		s.outsideSpan++
		return
	case found == nil && s.underWay:
		s.excused.Visits++
		return
	}
	st := s.stage(tv.Stage)
	s.visits++
	st.visits++
	var v correlate.Visit // a missed visit is one in which everything is unknown
	if found == nil {
		s.missedVisits++
		st.missed++
		s.example("visits missed", "%s at %s%s", tv.Request, tv.Stage, chunkText(tv.Chunk))
	} else {
		v = *found.Visit
	}
	s.identity[identityOf(v.Identity)]++
	s.boundary(v.Ready, tv.Ready, &s.ready, &st.ready)
	s.boundary(v.Start, tv.Start, &s.start, &st.start)
	s.boundary(v.Finish, tv.Finish, &s.finish, &st.finish)
	if !s.lacks(v.Departure, tv.Departure) {
		st.departure.boundary(v.Departure, tv.Departure, s.recorder)
	}
	s.arrivals(tv, found, &st.arrivals)
	s.join(tv, found)
}

func identityOf(i correlate.Identity) correlate.Identity {
	if i == "" {
		return correlate.IdentityUnknown
	}
	return i
}

func timingOf(p correlate.Point) correlate.Timing {
	if p.NS == nil || p.Timing == "" {
		return correlate.TimingUnknown
	}
	return p.Timing
}

// boundary scores one of ready, start and finish.
func (s *scorer) boundary(p correlate.Point, truth *int64, sets ...*errorSet) {
	if truth == nil && s.recorder || s.lacks(p, truth) {
		return
	}
	s.boundaries++
	s.timing[timingOf(p)]++
	s.all.boundary(p, truth, s.recorder)
	// Against an engine's own recorder every cell is complete: nothing is set apart.
	if !s.recorder && timingOf(p) == correlate.TimingBounded && p.RunnableUS != nil && *p.RunnableUS >= setApartUS {
		s.setApart++
		return
	}
	for _, e := range sets {
		e.boundary(p, truth, s.recorder)
	}
	s.coverage.Add(truth != nil && covers(p, *truth))
	if timingOf(p) == correlate.TimingBounded && p.LoNS != nil && p.HiNS != nil {
		s.widths = append(s.widths, float64(*p.HiNS-*p.LoNS)/1e3)
		if truth != nil { // relative to lo: nanoseconds since boot do not fit a float64's 53 bits for ever
			s.scores = append(s.scores, stat.IntervalScore(0, float64(*p.HiNS-*p.LoNS)/1e3, float64(*truth-*p.LoNS)/1e3, scoreAlpha))
		}
	}
}

// lacks: the report does not say when, of a request whose gaps are counted and not judged.
func (s *scorer) lacks(p correlate.Point, truth *int64) bool {
	if p.NS != nil || !s.underWay || truth == nil && s.recorder {
		return false
	}
	s.excused.Times++
	return true
}

func covers(p correlate.Point, truth int64) bool {
	switch timingOf(p) {
	case correlate.TimingSeen:
		return *p.NS-seenAllowanceNS <= truth && truth <= *p.NS+seenAllowanceNS
	case correlate.TimingBounded:
		return p.LoNS != nil && p.HiNS != nil && *p.LoNS <= truth && truth <= *p.HiNS
	}
	return false
}

func (s *scorer) oneHop(th *truthHop) {
	found := s.m.hops[th]
	if th.memory() {
		s.memory++
		if found != nil {
			s.memoryShown++
		}
		return
	}
	s.underWay = s.m.underWay(th.Request)
	switch {
	case th.outside:
		s.outsideSpan++
		return
	case found == nil && s.underWay:
		s.excused.Hops++
		return
	}
	s.hops++
	var h correlate.Hop
	if found == nil {
		s.missedHops++
		s.example("hops missed", "%s %s → %s %s%s", th.Request, th.From, th.To, th.Type, chunkText(th.Chunk))
	} else {
		h = *found.Hop
	}
	s.hopIdentity[identityOf(h.Identity)]++
	for _, end := range []struct {
		p     correlate.Point
		truth *int64
	}{{h.Send, th.Send}, {h.Recv, th.Recv}} {
		if end.truth == nil && s.recorder || s.lacks(end.p, end.truth) {
			continue
		}
		s.hopTiming[timingOf(end.p)]++
		s.hop.boundary(end.p, end.truth, s.recorder)
	}
}

func (s *scorer) result(runID string) *Accuracy {
	w, sc := stat.Of(s.widths, 0), stat.Of(s.scores, 0)
	a := &Accuracy{
		Schema: "stageline.accuracy/1", RunID: runID, Source: s.m.truth.source, Recorder: s.recorder,
		Identity: identityShares(s.identity, s.visits), Timing: timingShares(s.timing, s.boundaries),
		Figures: Figures{
			Hop: s.hop.errors(), Ready: s.ready.errors(), Start: s.start.errors(), Finish: s.finish.errors(),
			IntervalCoverage: s.coverage.Share(), IntervalWidth: IntervalWidth{w.N, w.P50, w.P99, w.Max},
			IntervalScore: IntervalScore{sc.N, meanOf(s.scores), sc.P50, sc.P99}, All: s.all.errors(),
			HopsMissed: s.missedHops + s.m.uncounted, HopsInvented: len(s.m.hopsInvented), JoinsWrong: s.wrong, JoinsUnknown: s.unknownLast,
			SetApartShare: stat.Share(s.setApart, s.boundaries),
		},
		Counts: AccuracyCounts{
			Requests: len(s.m.truth.requests), RequestsMissed: len(s.m.requestsMissed),
			Visits: s.visits, VisitsMissed: s.missedVisits, VisitsInvented: len(s.m.visitsInvented),
			Boundaries: s.boundaries, SetApart: s.setApart, Hops: s.hops, HopsUntyped: s.m.untyped,
			HopIdentity: identityShares(s.hopIdentity, s.hops), HopTiming: timingShares(s.hopTiming, sum(s.hopTiming)),
			HopsInMemory: s.memory, MemoryClaimed: s.memoryShown, Segments: s.m.segments, HopsOutside: s.m.hopsOutside, HopsCounted: s.m.counted,
			Joins: s.joins, OutsideSpan: s.outsideSpan, Excused: s.excused,
		},
		Examples: []string{},
	}
	for name, st := range s.stages {
		a.Stages = append(a.Stages, StageErrors{name, st.visits, st.missed, st.arrivals.errors(), st.ready.errors(), st.start.errors(), st.finish.errors(), st.departure.errors(), st.lateErrors()})
	}
	sort.Slice(a.Stages, func(i, j int) bool { return a.Stages[i].Stage < a.Stages[j].Stage })
	for _, kind := range []string{"requests missed", "visits missed", "visits invented", "hops missed", "hops invented", "joins wrong", "joins unknown"} {
		a.Examples = append(a.Examples, s.examples[kind]...)
	}
	return a
}

func identityShares(n map[correlate.Identity]int, whole int) IdentityShares {
	return IdentityShares{
		stat.Share(n[correlate.IdentityExact], whole), stat.Share(n[correlate.IdentityPaired], whole),
		stat.Share(n[correlate.IdentityOrdered], whole), stat.Share(n[correlate.IdentityUnknown], whole),
	}
}

func timingShares(n map[correlate.Timing]int, whole int) TimingShares {
	return TimingShares{stat.Share(n[correlate.TimingSeen], whole), stat.Share(n[correlate.TimingBounded], whole), stat.Share(n[correlate.TimingUnknown], whole)}
}

func sum(n map[correlate.Timing]int) (whole int) {
	for _, k := range n {
		whole += k
	}
	return whole
}

func meanOf(values []float64) stat.Num {
	if len(values) == 0 {
		return stat.Unknown()
	}
	var whole float64
	for _, v := range values {
		whole += v
	}
	return stat.Num(whole / float64(len(values)))
}
