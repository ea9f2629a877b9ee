package main

import (
	"fmt"
	"math"
	"slices"

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
	// maxExamples is how many of each kind of fault are listed.
	maxExamples = 10
)

// errorSet collects absolute errors.
type errorSet struct {
	us      stat.Column
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
		e.us.Add(us)
		e.late.count(p, us)
	}
}

// errors describes the errors and forgets them.
func (e *errorSet) errors() stat.Errors { return stat.ErrorsOf(e.us.Take(), e.missing) }

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
	widths, scores            stat.Column
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
	examples                  map[string][]example
	at                        int // number of the request at hand
	source                    string
	beyond                    beyond
}

// beyond counts what a report has or lacks beside visits and hops that are compared.
type beyond struct {
	requests, requestsMissed, visitsInvented, hopsInvented int
	untyped, segments, hopsOutside, counted, uncounted     int
}

func (b *beyond) add(m *matching) {
	b.requests += len(m.truth.requests)
	b.requestsMissed += len(m.requestsMissed)
	b.visitsInvented += len(m.visitsInvented)
	b.hopsInvented += len(m.hopsInvented)
	b.untyped += m.untyped
	b.segments += m.segments
	b.hopsOutside += m.hopsOutside
	b.counted += m.counted
	b.uncounted += m.uncounted
}

// example is one of a kind, by the number of its request.
type example struct {
	at   int
	text string
}

func newScorer(source string, recorder bool) *scorer {
	return &scorer{
		source: source, recorder: recorder,
		identity: map[correlate.Identity]int{}, hopIdentity: map[correlate.Identity]int{},
		timing: map[correlate.Timing]int{}, hopTiming: map[correlate.Timing]int{},
		stages: map[string]*stageSet{}, examples: map[string][]example{},
	}
}

// score compares all boundaries of a truth with what was found for them.
func score(m *matching, runID string, recorder bool) *Accuracy {
	s := newScorer(m.truth.source, recorder)
	s.add(m)
	return s.result(runID)
}

// add compares the boundaries of some requests.
func (s *scorer) add(m *matching) {
	s.m = m
	for i, id := range m.truth.requests {
		s.at = m.truth.number(i)
		if slices.Contains(m.requestsMissed, s.at) {
			s.example("requests missed", "%s", id)
		}
		for _, tv := range m.truth.visits[id] {
			s.visit(tv)
		}
		for _, th := range m.truth.hops[id] {
			s.oneHop(th)
		}
	}
	for _, v := range m.visitsInvented {
		s.at = m.number[v.request]
		s.example("visits invented", "%s at %s (tgid %d)", v.request.ID, v.Stage, v.TGID)
	}
	for _, h := range m.hopsInvented {
		s.at = m.number[h.request]
		s.example("hops invented", "%s %s → %s %s", h.request.ID, h.From, h.To, h.Type)
	}
	s.beyond.add(m)
	s.m = nil
}

// example keeps the first of a kind, by the number of the request at hand.
func (s *scorer) example(kind, format string, args ...any) {
	l := s.examples[kind]
	if len(l) == maxExamples && l[len(l)-1].at <= s.at {
		return
	}
	n := len(l)
	for n > 0 && l[n-1].at > s.at {
		n--
	}
	l = slices.Insert(l, n, example{s.at, kind + ": " + fmt.Sprintf(format, args...)})
	s.examples[kind] = l[:min(len(l), maxExamples)]
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
		s.widths.Add(float64(*p.HiNS-*p.LoNS) / 1e3)
		if truth != nil { // relative to lo: nanoseconds since boot do not fit a float64's 53 bits for ever
			s.scores.Add(stat.IntervalScore(0, float64(*p.HiNS-*p.LoNS)/1e3, float64(*truth-*p.LoNS)/1e3, scoreAlpha))
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
