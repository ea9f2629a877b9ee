package diagnose

import (
	"fmt"
	"math"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

func stageOf(t *testing.T, s *Summary, name string) *StageSummary {
	t.Helper()
	for i := range s.Stages {
		if s.Stages[i].Stage == name {
			return &s.Stages[i]
		}
	}
	t.Fatalf("no stage %s in %+v", name, s.Stages)
	return nil
}

func near(a stat.Num, b float64) bool { return math.Abs(float64(a)-b) < 1e-9 }

// Two visits over a window of 100 µs: one is ready at 10, starts at 20 and finishes at 60; the other
// is ready at 15, starts at 40 and finishes at 80.
func TestStageLoad(t *testing.T) {
	r := resultOf(visitOf(10_000, 20_000, 60_000), visitOf(15_000, 40_000, 80_000), visitOf(1, -1, -1))
	r.Requests[0].Entry, r.Requests[0].Exit = seen(1_000), seen(101_000)
	r.Activations = []correlate.Activation{{Stage: "s", Start: seen(20_000), Finish: seen(80_000), Members: [][2]int{{0, 0}, {1, 0}}, Identity: correlate.IdentityOrdered}}
	r.Requests[0].Visits[0].Activation, r.Requests[1].Visits[0].Activation = 0, 0
	s := Summarise(r)
	if s.Window == nil || *s.Window != [2]int64{1_000, 101_000} {
		t.Fatalf("window %v", s.Window)
	}
	l := stageOf(t, s, "s").Load
	// queue: 1 in 10–15, 2 in 15–20, 1 in 20–40; the oldest is 0–10 µs old in 10–20, then 5–25 in 20–40
	if !near(l.QueueMean, 0.35) || l.QueueMax != 2 || !near(l.OldestMaxUS, 25) || !near(l.OldestMeanUS, (5*10+15*20)/30.0) {
		t.Errorf("queue %+v", l)
	}
	if !near(l.ActiveMean, 0.8) || !near(l.Utilisation, 0.6) {
		t.Errorf("activity %+v", l)
	}
	if l.Activations != 1 || l.NoActivation != 1 || !near(l.BatchMean, 80.0/60) || l.BatchMax != 2 {
		t.Errorf("batches %+v", l)
	}
	idle := stageOf(t, s, "idle").Load
	if idle.QueueMean.Known() || idle.Utilisation.Known() || idle.BatchMean.Known() || idle.Activations != 0 {
		t.Errorf("a stage without visits has no figures: %+v", idle)
	}
}

func TestBatchMaxIsOfWhatIsCertain(t *testing.T) {
	wide := visitOf(0, 30_000, 90_000)
	wide.Start = bounded(5_000, 30_000, 61_000)
	for _, c := range []struct {
		identity correlate.Identity
		want     int
	}{{correlate.IdentityOrdered, 2}, {correlate.IdentityExact, 3}} {
		r := resultOf(visitOf(0, 10_000, 50_000), visitOf(0, 40_000, 60_000), wide)
		r.Activations = []correlate.Activation{{Stage: "s", Start: seen(10_000), Finish: seen(90_000), Members: [][2]int{{0, 0}, {1, 0}, {2, 0}}, Identity: c.identity}}
		got := 0
		for b := range r.Batches() {
			got = b.AtOnce
		}
		if got != c.want {
			t.Errorf("%s: %d at once, want %d", c.identity, got, c.want)
		}
	}
}

func TestServiceSplitShares(t *testing.T) {
	a, b := visitOf(0, 0, 100_000), visitOf(0, 0, 300_000)
	a.OnCPUUS, a.RunQueueUS, a.Blocked = ptr(60.0), ptr(10.0), []correlate.Blocked{{Reason: "timer", US: 30, N: 2}}
	b.OnCPUUS, b.RunQueueUS, b.Blocked = ptr(100.0), ptr(0.0), []correlate.Blocked{{Reason: "timer", US: 50, N: 1}, {Reason: "io", US: 150, N: 9}}
	s := stageOf(t, Summarise(resultOf(a, b, visitOf(0, 0, 50_000))), "s").Split
	if s.N != 2 || s.Unknown != 1 || !near(s.OnCPU, 0.4) || !near(s.RunQueue, 0.025) {
		t.Errorf("%+v", s)
	}
	if got := fmt.Sprint(s.Blocked); got != "[{io 0.375 1} {timer 0.2 2}]" {
		t.Errorf("blocked %s", got)
	}
	if s := stageOf(t, Summarise(resultOf(visitOf(0, 0, 9))), "s").Split; s.OnCPU.Known() || s.Unknown != 1 {
		t.Errorf("nothing known: %+v", s)
	}
}

func TestEdgesAndConnectors(t *testing.T) {
	r := resultOf(visitOf(0, 10, 20))
	q := &r.Requests[0]
	q.Hops = []correlate.Hop{
		{From: "s", To: "x", FromTGID: 1, ToTGID: 2, Type: "data", Via: "tcp", Transport: run.TransportTCP, Send: seen(10_000), Recv: seen(19_000),
			VisibleNS: ptr[int64](12_000), PickedUpNS: ptr[int64](15_000), Bytes: ptr[int64](100)},
		{From: "s", To: "x", FromTGID: 1, ToTGID: 2, Type: "more", Via: "tcp", Transport: run.TransportTCP, Send: seen(20_000), Recv: seen(23_000),
			PickedUpNS: ptr[int64](13_000)},
		{From: "s", To: "y", FromTGID: 1, ToTGID: 3, Type: "data", Via: "unix+shm", Transport: run.TransportUnix, Send: seen(30_000), Recv: seen(31_000),
			Bytes: ptr[int64](10), ShmName: "p", ShmBytes: ptr[int64](5000), ShmRead: &[2]int64{32_000, 42_000}},
		{From: "x", To: "s", FromTGID: 2, ToTGID: 1, Type: "ack", Via: "tcp", Transport: run.TransportTCP, Send: seen(40_000), Recv: unknown()},
		{From: "s", To: "z", FromTGID: 1, ToTGID: 0, Type: "segment", Via: "shm", Transport: run.TransportShm, Send: seen(50_000), Recv: unknown(),
			Bytes: ptr[int64](7000), ShmName: "q", ShmBytes: ptr[int64](7000)},
	}
	q.Visits[0].Outputs = []int{0, 1, 2, 4}
	s := Summarise(r)
	text := func(l []Connector) (out string) {
		for _, c := range l {
			out += fmt.Sprintf("%s>%s %s %q %s n=%d transit=%v visible=%v/%d pickup=%v/%d copy=%v/%d delivery=%v/%d handed=%d; ", c.From, c.To, c.Transport, c.Type, c.Path,
				c.Transit.N, c.Transit.Max, c.Visible.Max, c.Visible.N, c.Pickup.Max, c.Pickup.N, c.Copy.Max, c.Copy.N, c.Delivery.Max, c.Delivery.N, c.Handed)
		}
		return out
	}
	want := `s>x tcp "" same host n=2 transit=9 visible=2/1 pickup=5/2 copy=4/2 delivery=NaN/0 handed=100; ` +
		`s>y unix+shm "" same host n=1 transit=1 visible=NaN/0 pickup=NaN/0 copy=NaN/0 delivery=12/1 handed=5010; ` +
		`s>z shm "" unknown n=0 transit=NaN visible=NaN/0 pickup=NaN/0 copy=NaN/0 delivery=NaN/0 handed=7000; `
	if got := text(s.Edges); got != want {
		t.Errorf("edges\n%s\nwant\n%s", got, want)
	}
	if len(s.Connectors) != 5 || s.Connectors[4].Type != "ack" {
		t.Errorf("connectors %s", text(s.Connectors))
	}
	f := stageOf(t, s, "s").FanOut
	if f.Visits != 1 || f.Outputs != 4 || !near(f.Mean, 4) || !near(f.Targets, 3) || f.Bytes != 12110 || f.BytesUnknown != 1 {
		t.Errorf("fan-out %+v", f)
	}
	if got := fmt.Sprint(f.To); got != "[{x 2 100} {y 1 5010} {z 1 7000}]" {
		t.Errorf("to %s", got)
	}
}

func TestUpstreamsOfJoins(t *testing.T) {
	join := func(at ...correlate.Input) correlate.Visit {
		v := visitOf(0, 10, 20)
		v.Join, v.Inputs = true, at
		return v
	}
	in := func(from string, p correlate.Point) correlate.Input { return correlate.Input{From: from, At: p} }
	s := stageOf(t, Summarise(resultOf(
		join(in("a", seen(1_000)), in("b", seen(5_000)), in("b", seen(9_000))), // b: a companion
		join(in("b", seen(1_000)), in("a", seen(2_000))),
		join(in("a", seen(1_000)), in("b", unknown())),
	)), "s")
	var got string
	for _, u := range s.Upstreams {
		got += fmt.Sprintf("%s joins %d inputs %d last %d offset n %d unknown %d max %v; ", u.From, u.Joins, u.Inputs, u.Last, u.Offset.N, u.Offset.Unknown, u.Offset.Max)
	}
	if want := "a joins 3 inputs 3 last 1 offset n 2 unknown 1 max 1; b joins 3 inputs 4 last 1 offset n 2 unknown 1 max 8; "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestChunkGaps(t *testing.T) {
	chunk := func(n, finish int64) correlate.Visit {
		v := visitOf(0, 0, finish)
		v.Chunk = &n
		return v
	}
	r := resultOf(chunk(0, 5_000))
	// 1 came before 0 in the list; the finish of 3 is not known; 5 is missing
	r.Requests[0].Visits = []correlate.Visit{chunk(1, 9_000), chunk(0, 5_000), chunk(2, 16_000), chunk(3, -1), chunk(4, 30_000), chunk(6, 90_000)}
	c := stageOf(t, Summarise(r), "s").Chunks
	if c == nil || c.N != 6 || c.Requests != 1 || c.Gap.N != 2 || c.Gap.Unknown != 3 || c.Gap.Max != 7 {
		t.Errorf("%+v", c)
	}
	if c := stageOf(t, Summarise(resultOf(visitOf(0, 0, 1))), "s").Chunks; c != nil {
		t.Errorf("no chunks: %+v", c)
	}
}
