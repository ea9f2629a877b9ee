package loadgen

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

func at(ns int64) *int64 { return &ns }

// 90 successes of 1 … 90 ms and 10 timeouts: the 90th percentile is the slowest success, and what
// lies above is unbounded.
func TestFailureAdjustedPercentiles(t *testing.T) {
	tl := newTally(mustPlan(t, open(10, 100, nil)), 0)
	for i := int64(1); i <= 90; i++ {
		tl.add(&run.Request{State: run.StateSuccess, PlannedNS: at(0), SentNS: at(5e5), FirstNS: at(i * 1e6), LastNS: at(i * 1e6), EndNS: at(i * 1e6)})
	}
	for range 10 {
		tl.add(&run.Request{State: run.StateDeadlineExceeded, Error: "late", PlannedNS: at(0), SentNS: at(5e5), EndNS: at(1e9)})
	}
	tl.add(&run.Request{State: run.StateSuccess, Class: classWarmup, SentNS: at(0), EndNS: at(1e12)})
	s := tl.summary(2e9)
	d := s.JCTFromPlan
	if d.N != 90 || d.Missing != 10 || *d.P50 != 50 || *d.P90 != 90 || d.P95 != nil || d.P99 != nil || d.Max != nil {
		t.Errorf("JCT from plan %+v", d)
	}
	if *s.JCTFromSend.P90 != 89.5 || *s.SendLag.Max != 0.5 {
		t.Errorf("JCT from send %v, lag %v", *s.JCTFromSend.P90, *s.SendLag.Max)
	}
	if s.Planned != 100 || s.Warmup != 1 || s.States[run.StateDeadlineExceeded] != 10 || s.FirstError != "deadline-exceeded: late" {
		t.Errorf("summary %+v", s)
	}
	var b bytes.Buffer
	if err := s.Text(&b); err != nil || !strings.Contains(b.String(), "unbounded") || !strings.Contains(b.String(), "planned 100, sent 100, success 90 (and 1 warm-up)") {
		t.Errorf("error %v, text\n%s", err, b.String())
	}
}

func TestGapsAndTokenTime(t *testing.T) {
	tl := newTally(mustPlan(t, open(10, 1, nil)), 0)
	ev := func(ms int64, kind string) run.ReplyEvent { return run.ReplyEvent{MonoNS: ms * 1e6, Kind: kind} }
	tl.add(&run.Request{
		State: run.StateSuccess, SentNS: at(1), FirstNS: at(450e6), LastNS: at(850e6), EndNS: at(900e6), Tokens: at(5),
		Events: []run.ReplyEvent{ev(100, "role"), ev(450, "content"), ev(450, "content"), ev(650, "content"), ev(850, "content"), ev(900, "finish")},
	})
	s := tl.summary(0)
	if g := s.ChunkGap; g.N != 2 || *g.P50 != 200 || *g.Max != 200 || s.Coalesced != 1 {
		t.Errorf("gaps %+v, coalesced %d; want two of 200 ms and one coalesced", g, s.Coalesced)
	}
	if s.TPOT.N != 1 || *s.TPOT.P50 != 100 {
		t.Errorf("time per token %+v, want 100 ms", s.TPOT)
	}
	// One token has no time between tokens.
	tl.add(&run.Request{State: run.StateSuccess, SentNS: at(1), FirstNS: at(2), LastNS: at(2), EndNS: at(3), Tokens: at(1)})
	if s = tl.summary(0); s.TPOT.N != 1 || s.TPOT.NotApplicable != 1 {
		t.Errorf("a one-token reply has a time per token: %+v", s.TPOT)
	}
}
