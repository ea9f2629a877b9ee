package loadgen

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/stageline/stageline/collector/run"
)

// Dist is a distribution in milliseconds. Attempts that failed before they reached the measured
// point count as infinitely late: a percentile that falls among them is unbounded, and null here.
type Dist struct {
	N       int      `json:"n"`       // measured values
	Missing int      `json:"missing"` // attempts that never reached the point
	P50     *float64 `json:"p50"`
	P90     *float64 `json:"p90"`
	P95     *float64 `json:"p95"`
	P99     *float64 `json:"p99"`
	Max     *float64 `json:"max"`
}

// Summary is what one load amounted to. Warm-up requests are counted in Warmup alone. Latencies are
// given from the actual send and, in open loop, from the planned send: the second includes the time
// a request waited because the generator or its cap held it back.
type Summary struct {
	ScheduleHash string         `json:"schedule_sha256"`
	Open         bool           `json:"open_loop"`
	Stopped      bool           `json:"stopped_early"`
	StartNS      int64          `json:"start_mono_ns"`
	EndNS        int64          `json:"end_mono_ns"`
	Warmup       int            `json:"warmup"`
	Planned      int            `json:"planned"`
	Sent         int            `json:"sent"`
	Success      int            `json:"success"`
	States       map[string]int `json:"states"`
	NewConns     int            `json:"new_connections"`
	Coalesced    int            `json:"coalesced_events"` // content events without a time of their own

	PlannedRate  *float64 `json:"planned_rate"`  // of the schedule as drawn, per second
	AchievedRate *float64 `json:"achieved_rate"` // sends per second between first and last send

	SendLag      Dist   `json:"send_lag_ms"`        // open loop: planned → sent; closed loop: taken up → sent
	TTFTFromSend *Dist  `json:"ttft_from_send_ms"`  // null when the reply is not streamed
	TTFTFromPlan *Dist  `json:"ttft_from_plan_ms"`  // open loop
	JCTFromSend  *Dist  `json:"jct_from_send_ms"`   // to the end of the reply
	JCTFromPlan  *Dist  `json:"jct_from_plan_ms"`   // open loop
	ChunkGap     *Dist  `json:"chunk_gap_ms"`       // between reads with content, over all requests
	ITL          *Dist  `json:"itl_ms_per_request"` // mean per token of one request: (last − first)/(tokens − 1)
	FirstError   string `json:"first_error,omitempty"`

	Generator Generator `json:"generator"` // whether the load was sent as planned
}

// tally builds a Summary request by request.
type tally struct {
	sum                 Summary
	plan                *Plan
	generator           generatorTally
	stream              bool
	lag, gap, itl       series
	ttftSend, ttftPlan  series
	jctSend, jctPlan    series
	firstPlan, lastPlan int64
	firstSent, lastSent int64
}

func newTally(p *Plan, startNS int64) *tally {
	return &tally{
		sum:    Summary{ScheduleHash: p.ScheduleHash(), Open: p.Open(), StartNS: startNS, States: map[string]int{}},
		plan:   p,
		stream: p.cfg.Stream || p.cfg.Reply != ReplyChat,
	}
}

func (t *tally) add(r *run.Request) {
	s := &t.sum
	t.generator.add(r)
	if r.NewConn != nil && *r.NewConn {
		s.NewConns++
	}
	if r.Class == classWarmup {
		s.Warmup++
		return
	}
	s.Planned++
	s.States[r.State]++
	if r.State == run.StateSuccess {
		s.Success++
	} else if s.FirstError == "" && r.State != run.StateClientCancelled {
		s.FirstError = r.State + ": " + r.Error
	}
	span(&t.firstPlan, &t.lastPlan, r.PlannedNS)
	if r.SentNS != nil {
		s.Sent++
		span(&t.firstSent, &t.lastSent, r.SentNS)
		if r.PlannedNS != nil {
			t.lag.between(r.PlannedNS, r.SentNS)
		} else {
			t.lag.between(r.DequeuedNS, r.SentNS)
		}
	}
	t.latencies(r)
	t.gaps(r)
}

// latencies counts a success with its values, a reply that the client itself abandoned only as far
// as it came, and anything else as missing.
func (t *tally) latencies(r *run.Request) {
	ok, cancelled := r.State == run.StateSuccess, r.State == run.StateClientCancelled
	switch {
	case ok || cancelled && r.FirstNS != nil:
		t.ttftSend.between(r.SentNS, r.FirstNS)
		t.ttftPlan.between(r.PlannedNS, r.FirstNS)
	case !cancelled:
		t.ttftSend.missing++
		t.ttftPlan.missing++
	}
	switch {
	case ok:
		t.jctSend.between(r.SentNS, r.EndNS)
		t.jctPlan.between(r.PlannedNS, r.EndNS)
		if r.Tokens != nil && *r.Tokens > 1 && *r.LastNS > *r.FirstNS {
			t.itl.add((*r.LastNS - *r.FirstNS) / (*r.Tokens - 1))
		}
	case !cancelled:
		t.jctSend.missing++
		t.jctPlan.missing++
	}
}

// gaps takes the times between successive reads that completed content; events of one read have no
// gap between them.
func (t *tally) gaps(r *run.Request) {
	last := int64(0)
	for i := range r.Events {
		e := &r.Events[i]
		if e.Kind != "content" && e.Kind != "reasoning" && e.Kind != "audio" {
			continue
		}
		if e.MonoNS == last {
			t.sum.Coalesced++
			continue
		}
		if last != 0 && r.State == run.StateSuccess {
			t.gap.add(e.MonoNS - last)
		}
		last = e.MonoNS
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
	s.SendLag = *t.lag.dist()
	s.JCTFromSend = t.jctSend.dist()
	if t.stream {
		s.TTFTFromSend, s.ChunkGap, s.ITL = t.ttftSend.dist(), t.gap.dist(), t.itl.dist()
	}
	if s.Open {
		s.PlannedRate = rate(s.Planned, t.firstPlan, t.lastPlan)
		s.JCTFromPlan = t.jctPlan.dist()
		if t.stream {
			s.TTFTFromPlan = t.ttftPlan.dist()
		}
	}
	return s
}

// Text writes the summary as a table; every percentile stands beside its n.
func (s *Summary) Text(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "requests\tplanned %d, sent %d, success %d", s.Planned, s.Sent, s.Success)
	if s.Warmup > 0 {
		fmt.Fprintf(tw, " (and %d warm-up)", s.Warmup)
	}
	if s.Stopped {
		fmt.Fprint(tw, ", stopped early")
	}
	fmt.Fprintln(tw)
	for _, st := range slices.Sorted(maps.Keys(s.States)) {
		fmt.Fprintf(tw, "  %s\t%d\n", st, s.States[st])
	}
	if s.FirstError != "" {
		fmt.Fprintf(tw, "first error\t%s\n", s.FirstError)
	}
	fmt.Fprintf(tw, "rate\tplanned %s/s, achieved %s/s\n", orNone(s.PlannedRate), orNone(s.AchievedRate))
	if s.Coalesced > 0 {
		fmt.Fprintf(tw, "coalesced\t%d content events shared a read with the one before: no gap of their own\n", s.Coalesced)
	}
	fmt.Fprintln(tw, "\nms\tn\tfailed\tp50\tp90\tp95\tp99\tmax")
	lag := "send lag (plan → sent)"
	if !s.Open {
		lag = "send lag (taken up → sent)"
	}
	s.SendLag.row(tw, lag)
	s.Generator.Lag.row(tw, "of that the generator's own")
	s.Generator.ReadLag.row(tw, "arrival → read (in no figure)")
	s.TTFTFromSend.row(tw, "TTFT from send")
	s.TTFTFromPlan.row(tw, "TTFT from plan")
	s.JCTFromSend.row(tw, "JCT from send")
	s.JCTFromPlan.row(tw, "JCT from plan")
	s.ChunkGap.row(tw, "chunk gap")
	s.ITL.row(tw, "time per token, a request")
	for _, why := range s.Generator.Because {
		fmt.Fprintf(tw, "\nINVALID: %s\n", why)
	}
	return tw.Flush()
}

func (d *Dist) row(w io.Writer, name string) {
	if d == nil || d.N+d.Missing == 0 {
		return
	}
	cell := func(v *float64) string {
		if v == nil {
			return "unbounded"
		}
		return fmt.Sprintf("%.3f", *v)
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", name, d.N, d.Missing,
		cell(d.P50), cell(d.P90), cell(d.P95), cell(d.P99), cell(d.Max))
}

func orNone(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *v)
}
