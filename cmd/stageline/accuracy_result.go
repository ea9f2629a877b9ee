package main

import (
	"sort"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
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

// Excused is what the report lacks of requests that were in flight at attach.
type Excused struct {
	Visits int `json:"visits"`
	Hops   int `json:"hops"`
	Times  int `json:"times"` // of visits and hops that it has
	Joins  int `json:"joins"`
}

func (s *scorer) result(runID string) *Accuracy {
	w, scores, b := stat.Of(s.widths.Take(), 0), s.scores.Take(), &s.beyond
	sc := stat.Of(scores, 0)
	a := &Accuracy{
		Schema: "stageline.accuracy/1", RunID: runID, Source: s.source, Recorder: s.recorder,
		Identity: identityShares(s.identity, s.visits), Timing: timingShares(s.timing, s.boundaries),
		Figures: Figures{
			Hop: s.hop.errors(), Ready: s.ready.errors(), Start: s.start.errors(), Finish: s.finish.errors(),
			IntervalCoverage: s.coverage.Share(), IntervalWidth: IntervalWidth{w.N, w.P50, w.P99, w.Max},
			IntervalScore: IntervalScore{sc.N, meanOf(scores), sc.P50, sc.P99}, All: s.all.errors(),
			HopsMissed: s.missedHops + b.uncounted, HopsInvented: b.hopsInvented, JoinsWrong: s.wrong, JoinsUnknown: s.unknownLast,
			SetApartShare: stat.Share(s.setApart, s.boundaries),
		},
		Counts: AccuracyCounts{
			Requests: b.requests, RequestsMissed: b.requestsMissed,
			Visits: s.visits, VisitsMissed: s.missedVisits, VisitsInvented: b.visitsInvented,
			Boundaries: s.boundaries, SetApart: s.setApart, Hops: s.hops, HopsUntyped: b.untyped,
			HopIdentity: identityShares(s.hopIdentity, s.hops), HopTiming: timingShares(s.hopTiming, sum(s.hopTiming)),
			HopsInMemory: s.memory, MemoryClaimed: s.memoryShown, Segments: b.segments, HopsOutside: b.hopsOutside, HopsCounted: b.counted,
			Joins: s.joins, OutsideSpan: s.outsideSpan, Excused: s.excused,
		},
		Examples: []string{},
	}
	for name, st := range s.stages {
		a.Stages = append(a.Stages, StageErrors{name, st.visits, st.missed, st.arrivals.errors(), st.ready.errors(), st.start.errors(), st.finish.errors(), st.departure.errors(), st.lateErrors()})
	}
	sort.Slice(a.Stages, func(i, j int) bool { return a.Stages[i].Stage < a.Stages[j].Stage })
	for _, kind := range []string{"requests missed", "visits missed", "visits invented", "hops missed", "hops invented", "joins wrong", "joins unknown"} {
		for _, e := range s.examples[kind] {
			a.Examples = append(a.Examples, e.text)
		}
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
