package loadgen

import (
	"fmt"
	"math"
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// Dist is a distribution over requests (over gaps and tokens where its name says so), in milliseconds
// or in the unit of its name. Attempts that failed before they reached the measured point count as
// infinitely late: a percentile that falls among them is unbounded, and null here. Requests to which
// the figure does not apply, and those for which it is not known, are counted and in no percentile.
type Dist struct {
	N             int      `json:"n"`       // measured values
	Missing       int      `json:"missing"` // attempts that never reached the point
	NotApplicable int      `json:"not_applicable,omitempty"`
	Unknown       int      `json:"unknown,omitempty"`
	P50           *float64 `json:"p50"`
	P90           *float64 `json:"p90"`
	P95           *float64 `json:"p95"`
	P99           *float64 `json:"p99"`
	Max           *float64 `json:"max"`
	Mean          *float64 `json:"mean"` // of the measured values; null when attempts are missing
	CV            *float64 `json:"cv"`   // standard deviation ÷ mean of the measured values
}

// Summary is what one load amounted to. Warm-up requests are counted in Warmup alone, retries in
// Retries: a planned request is one attempt group and counts once, by its last attempt. Latencies are
// given from the actual send and, in open loop, from the planned send: the second includes the time
// a request waited because the generator or its cap held it back.
type Summary struct {
	ScheduleHash  string         `json:"schedule_sha256"`
	Open          bool           `json:"open_loop"`
	Stopped       bool           `json:"stopped_early"`
	StartNS       int64          `json:"start_mono_ns"`
	EndNS         int64          `json:"end_mono_ns"`
	Warmup        int            `json:"warmup"`
	Planned       int            `json:"planned"`
	Sent          int            `json:"sent"`
	Success       int            `json:"success"`
	NotApplicable int            `json:"not_applicable"` // of a modality that the model lacks: no failure
	Retries       int            `json:"retries"`        // attempts beyond the first
	States        map[string]int `json:"states"`
	NewConns      int            `json:"new_connections"`
	Coalesced     int            `json:"coalesced_events"` // content events without a time of their own

	PlannedRate  *float64 `json:"planned_rate"`  // of the schedule as drawn, per second
	AchievedRate *float64 `json:"achieved_rate"` // sends per second between first and last send
	Throughput   *float64 `json:"throughput"`    // successes per second from the first send to the last end

	SendLag Dist `json:"send_lag_ms"` // open loop: planned → sent; closed loop: taken up → sent

	FirstFromSend  *Dist `json:"first_content_from_send_ms"`
	TTFTFromSend   *Dist `json:"ttft_from_send_ms"` // null when no reply is streamed text
	TTFTFromPlan   *Dist `json:"ttft_from_plan_ms"` // open loop
	AnswerFromSend *Dist `json:"first_answer_from_send_ms"`
	AnswerFromPlan *Dist `json:"first_answer_from_plan_ms"`
	TTFAFromSend   *Dist `json:"ttfa_from_send_ms"` // null when no audio is asked for
	TTFAFromPlan   *Dist `json:"ttfa_from_plan_ms"`
	JCTFromSend    *Dist `json:"jct_from_send_ms"` // to the end of the reply
	JCTFromPlan    *Dist `json:"jct_from_plan_ms"` // open loop
	TPOT           *Dist `json:"tpot_ms"`          // mean per token of one request
	ITL            *Dist `json:"itl_ms"`           // by token, over all requests
	ChunkGap       *Dist `json:"chunk_gap_ms"`     // between reads with content, over all requests
	MaxGap         *Dist `json:"largest_chunk_gap_ms"`
	GapCV          *Dist `json:"chunk_gap_cv"`
	RTFFromSend    *Dist `json:"rtf_from_send"`
	RTFFromPlan    *Dist `json:"rtf_from_plan"`
	Underruns      *Dist `json:"underruns"`
	Stall          *Dist `json:"stall_ms"`
	LongestStall   *Dist `json:"longest_stall_ms"`

	Goodput  *Goodput      `json:"goodput"` // null without an SLO
	Layers   []Layer       `json:"layers"`
	Compat   *Compat       `json:"compatibility_m1_m8"` // null without text
	Verified []run.Quality `json:"verified_audio,omitempty"`

	FirstError  string       `json:"first_error,omitempty"`
	Generator   Generator    `json:"generator"` // whether the load was sent as planned
	Definitions []Definition `json:"definitions"`
}

// figures collects one figure over requests.
type figures struct {
	series
	na, unknown int
	square      float64
}

func (f *figures) take(v Figure) {
	switch v.Standing {
	case Known:
		f.value(v.Value)
	case Failed:
		f.missing++
	case NotApplicable:
		f.na++
	case Unknown:
		f.unknown++
	}
}

func (f *figures) value(v int64) {
	f.series.add(v)
	f.square += float64(v) * float64(v)
}

// dist is null for a figure that no request has.
func (f *figures) dist() *Dist {
	if f.n+f.missing+f.unknown == 0 {
		return nil
	}
	d := f.series.dist()
	d.NotApplicable, d.Unknown = f.na, f.unknown
	if mean, ok := f.mean(); ok && f.n > 1 && mean > 0 {
		cv := math.Sqrt(max(0, f.square/float64(f.n)-mean*mean)) / mean
		d.CV = &cv
	}
	return d
}

// tally builds a Summary request by request.
type tally struct {
	sum       Summary
	plan      *Plan
	generator generatorTally
	want      Expect
	slo       *SLO
	lag       series
	all       [len(metrics)]figures
	good      *goodTally
	layers    *layerTally
	compat    *compatTally
	groups    map[string]int64 // first write of attempt groups that are not over

	firstPlan, lastPlan int64
	firstSent, lastSent int64
	firstEnd, lastEnd   int64
}

func newTally(p *Plan, startNS int64) *tally {
	c := &p.cfg
	t := &tally{
		sum:    Summary{ScheduleHash: p.ScheduleHash(), Open: p.Open(), StartNS: startNS, States: map[string]int{}},
		plan:   p,
		want:   c.expects(),
		slo:    &c.Client.SLO,
		good:   newGoodTally(&c.Client.SLO),
		compat: newCompatTally(c),
		groups: map[string]int64{},
	}
	t.layers = newLayerTally(t.slo)
	return t
}

func (t *tally) add(r *run.Request) {
	s := &t.sum
	t.generator.add(r)
	if r.NewConn != nil && *r.NewConn {
		s.NewConns++
	}
	if r.Class == classWarmup {
		if !r.Retried {
			s.Warmup++
		}
		return
	}
	if r.Attempt > 1 {
		s.Retries++
	}
	if r.Retried {
		if _, ok := t.groups[r.Group]; !ok && r.SentNS != nil {
			t.groups[r.Group] = *r.SentNS
		}
		span(&t.firstSent, &t.lastSent, r.SentNS)
		return
	}
	r = t.wholeGroup(r)
	t.count(r)
	m := Measure(r, t.want)
	s.Coalesced += m.Coalesced
	for i := range metrics {
		if metrics[i].of != nil {
			t.all[i].take(metrics[i].of(&m))
		}
	}
	if done(r) {
		for _, g := range m.Gaps {
			t.all[metricGap].value(g)
		}
	}
	t.all[metricITL].unknown += int(m.ITLStanding.unknown())
	t.all[metricITL].na += int(m.ITLStanding.notApplicable())
	for _, v := range m.ITLs {
		t.all[metricITL].value(v)
	}
	t.good.add(r, &m)
	t.layers.add(r, &m)
	t.compat.add(r)
}

func (f Figure) unknown() int       { return count(f.Standing == Unknown) }
func (f Figure) notApplicable() int { return count(f.Standing == NotApplicable) }

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wholeGroup gives the last attempt of a group the first write of the group: waiting for another
// attempt is part of the request's time.
func (t *tally) wholeGroup(r *run.Request) *run.Request {
	at, ok := t.groups[r.Group]
	if !ok {
		return r
	}
	delete(t.groups, r.Group)
	whole := *r
	whole.SentNS = &at
	return &whole
}

func (t *tally) count(r *run.Request) {
	s := &t.sum
	s.Planned++
	s.States[r.State]++
	switch {
	case r.State == run.StateSuccess:
		s.Success++
	case r.State == run.StateNotApplicable:
		s.NotApplicable++
	case s.FirstError == "" && r.State != run.StateClientCancelled:
		s.FirstError = r.State + ": " + r.Error
	}
	span(&t.firstPlan, &t.lastPlan, r.PlannedNS)
	span(&t.firstEnd, &t.lastEnd, r.EndNS)
	if r.SentNS == nil {
		return
	}
	s.Sent++
	span(&t.firstSent, &t.lastSent, r.SentNS)
	if r.PlannedNS != nil {
		t.lag.between(r.PlannedNS, r.SentNS)
	} else {
		t.lag.between(r.DequeuedNS, r.SentNS)
	}
}

func span(first, last, at *int64) {
	if at == nil {
		return
	}
	if *first == 0 || *at < *first {
		*first = *at
	}
	*last = max(*last, *at)
}

func rate(n int, first, last int64) *float64 {
	if n < 2 || last <= first {
		return nil
	}
	r := float64(n-1) / (float64(last-first) / 1e9)
	return &r
}

func (t *tally) summary(endNS int64) Summary {
	s := t.sum
	s.EndNS = endNS
	s.Generator = t.generator.result(t.plan)
	s.AchievedRate = rate(s.Sent, t.firstSent, t.lastSent)
	seconds := 0.0
	if t.firstSent != 0 && t.lastEnd > t.firstSent {
		seconds = float64(t.lastEnd-t.firstSent) / 1e9
		v := float64(s.Success) / seconds
		s.Throughput = &v
	}
	s.SendLag = *t.lag.dist()
	if s.Open {
		s.PlannedRate = rate(s.Planned, t.firstPlan, t.lastPlan)
	}
	for i := range metrics {
		*metrics[i].into(&s) = t.all[i].dist()
	}
	s.Goodput = t.good.result(s.Open, seconds)
	s.Layers = t.layers.result(s.Open, seconds)
	s.Compat = t.compat.result()
	s.Definitions = s.definitions()
	return s
}

// AllFailed says whether requests failed and none succeeded. What the plan gives up, and what the
// model lacks, is no failure.
func (s *Summary) AllFailed() bool { return s.Success == 0 && s.FirstError != "" }

// outcome is the success rate's denominator in words.
func (s *Summary) outcome() string {
	n := s.Planned - s.NotApplicable
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f %% of %d", float64(s.Success)/float64(n)*100, n)
}

// Definition is what a name in the summary means.
type Definition struct {
	Name    string `json:"name"`
	Meaning string `json:"meaning"`
}

func (s *Summary) definitions() []Definition {
	out := slices.Clone(commonDefinitions)
	for i := range metrics {
		d := metrics[i].text
		if *metrics[i].into(s) != nil && d != "" {
			out = append(out, Definition{metrics[i].name, d})
		}
	}
	if s.Goodput != nil {
		out = append(out, Definition{"goodput", "requests that keep every bound of the SLO; one to which a bound does not apply, or for which it is not known, is not judged and no pass"})
	}
	if s.Compat != nil {
		out = append(out, compatDefinitions...)
	}
	return out
}
