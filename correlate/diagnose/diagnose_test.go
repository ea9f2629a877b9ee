package diagnose

import (
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
)

func seen(ns int64) correlate.Point {
	return correlate.Point{NS: &ns, LoNS: &ns, HiNS: &ns, Timing: correlate.TimingSeen}
}

func bounded(lo, ns, hi int64) correlate.Point {
	return correlate.Point{NS: &ns, LoNS: &lo, HiNS: &hi, Timing: correlate.TimingBounded}
}

func unknown() correlate.Point { return correlate.Point{Timing: correlate.TimingUnknown} }

func ptr[T any](v T) *T { return &v }

func TestSummariseCountsWhatIsUnknown(t *testing.T) {
	r := &correlate.Result{
		Stages: []correlate.Stage{{Name: "idle"}, {Name: "join"}},
		Requests: []correlate.RequestTimeline{{
			ID: "a", Source: "loadgen", State: "success", Entry: seen(5_000), JCTUS: ptr(90.0),
			Client: &run.Request{SentNS: ptr[int64](2_000), FirstNS: ptr[int64](30_000), EndNS: ptr[int64](99_000)},
			Visits: []correlate.Visit{{
				Stage: "join", Join: true, Identity: correlate.IdentityExact,
				Inputs:  []correlate.Input{{From: "x", At: seen(10_000)}, {From: "y", At: seen(17_000)}},
				Arrival: seen(10_000), Ready: bounded(17_000, 18_000, 19_500), Start: seen(20_000), Finish: seen(50_000), Departure: seen(60_000),
			}},
			Hops: []correlate.Hop{
				{From: "join", To: "z", Type: "data", Via: "unix+shm", Send: seen(60_000), Recv: seen(60_250), Bytes: ptr[int64](100), ShmName: "s", Identity: correlate.IdentityExact},
				{From: "join", To: "z", Type: "data", Via: "unix+shm", Send: seen(61_000), Recv: unknown()},
				{From: "join", To: "z", Type: "ack", Via: "unix", Send: seen(60_000), Recv: seen(60_000), Identity: correlate.IdentityPaired},
			},
		}, {
			ID: "b", Source: "discovered", InFlight: true,
			Visits: []correlate.Visit{{Stage: "join", Ready: unknown(), Start: unknown(), Finish: unknown(), Identity: correlate.IdentityUnknown, Join: true,
				Inputs: []correlate.Input{{From: "x", At: unknown()}}}},
		}},
	}
	s := Summarise(r)
	if len(s.Stages) != 2 || s.Stages[0].Stage != "idle" || s.Stages[0].Visits != 0 || s.Stages[0].QueueWait.P50.Known() {
		t.Fatalf("a stage without visits must stay, without figures: %+v", s.Stages)
	}
	j := s.Stages[1]
	if j.Visits != 2 || j.Requests != 2 || j.Joins != 2 {
		t.Errorf("counts %+v", j)
	}
	for _, c := range []struct {
		name       string
		n, unknown int
		max, got   float64
		gotN, gotU int
	}{
		{"queue wait", 1, 1, 2, float64(j.QueueWait.Max), j.QueueWait.N, j.QueueWait.Unknown},
		{"service", 1, 1, 30, float64(j.Service.Max), j.Service.N, j.Service.Unknown},
		{"residency", 1, 1, 50, float64(j.Residency.Max), j.Residency.N, j.Residency.Unknown},
		{"join wait", 1, 1, 7, float64(j.JoinWait.Max), j.JoinWait.N, j.JoinWait.Unknown},
		{"interval width", 1, 0, 2.5, float64(j.IntervalWidth.Max), j.IntervalWidth.N, j.IntervalWidth.Unknown},
		{"client ttft", 1, 0, 28, float64(s.Requests.ClientTTFT.Max), s.Requests.ClientTTFT.N, s.Requests.ClientTTFT.Unknown},
		{"entry ttft", 1, 0, 25, float64(s.Requests.EntryTTFT.Max), s.Requests.EntryTTFT.N, s.Requests.EntryTTFT.Unknown},
		{"zero difference", 1, 0, 3, float64(s.Requests.ZeroDifference.Max), s.Requests.ZeroDifference.N, s.Requests.ZeroDifference.Unknown},
		{"first reply", 0, 1, 0, 0, s.Requests.EngineFirst.N, s.Requests.EngineFirst.Unknown},
		{"residual", 0, 1, 0, 0, s.Requests.Residual.N, s.Requests.Residual.Unknown},
	} {
		if c.got != c.max || c.gotN != c.n || c.gotU != c.unknown {
			t.Errorf("%s: max %v n %d unknown %d, want %v %d %d", c.name, c.got, c.gotN, c.gotU, c.max, c.n, c.unknown)
		}
	}
	if len(j.LastInput) != 2 || j.LastInput["y"] != 1 || j.LastInput[""] != 1 {
		t.Errorf("last inputs %v", j.LastInput)
	}
	if j.Grades.Timing[correlate.TimingSeen] != 2 || j.Grades.Timing[correlate.TimingBounded] != 1 || j.Grades.Timing[correlate.TimingUnknown] != 3 {
		t.Errorf("timing grades %v", j.Grades.Timing)
	}
	if len(s.Connectors) != 2 || s.Connectors[0].Transport != "unix" || s.Connectors[0].Transit.Max != 0 {
		t.Fatalf("connectors %+v", s.Connectors)
	}
	d := s.Connectors[1]
	if d.Transit.N != 1 || d.Transit.Unknown != 1 || d.Transit.Max != 0.25 || d.Bytes.N != 1 || d.Bytes.Unknown != 1 || d.ShmBytes.Unknown != 1 {
		t.Errorf("data connector %+v", d)
	}
	if s.Requests.InFlight != 1 || s.Requests.States["unknown"] != 1 || s.Requests.States["success"] != 1 {
		t.Errorf("requests %+v", s.Requests)
	}
}

// script describes a run of n equal requests in milliseconds.
type script struct {
	n       int
	lag     func(i int) int64 // planned → sent
	queue   func(i int) int64 // at "work"
	service func(i int) int64 // at "work"
	hop     func(i int) int64 // work:out
	credit  int64             // between finish of "work" and the send
}

func flat(ms int64) func(int) int64 { return func(int) int64 { return ms } }

func (s script) result() *correlate.Result {
	const ms = int64(1e6)
	r := &correlate.Result{}
	for i := range s.n {
		at := int64(i) * 1000 * ms
		planned := at
		at += s.lag(i) * ms
		sent, ready := at, at+ms
		start := ready + s.queue(i)*ms
		finish := start + s.service(i)*ms
		send := finish + s.credit*ms
		recv := send + s.hop(i)*ms
		end := recv + 5*ms
		r.Requests = append(r.Requests, correlate.RequestTimeline{
			Client: &run.Request{PlannedNS: &planned, SentNS: &sent, EndNS: &end},
			Visits: []correlate.Visit{
				{Stage: "work", TGID: 7, Ready: seen(ready), Start: seen(start), Finish: seen(finish), Departure: seen(send)},
				{Stage: "out", TGID: 8, Ready: seen(recv), Start: seen(recv), Finish: seen(end), Departure: seen(end)},
			},
			Hops: []correlate.Hop{{From: "work", To: "out", FromTGID: 7, Send: seen(send), Recv: seen(recv)}},
		})
	}
	return r
}

func TestJudge(t *testing.T) {
	// A tenth of the requests is slow, spread over the run.
	slow := func(fast, slow int64) func(int) int64 {
		return func(i int) int64 {
			if i%10 == 3 {
				return slow
			}
			return fast
		}
	}
	early := func(i int) int64 { return slow(0, 100)(i) * int64(b2i(i < 100)) }
	late := func(i int) int64 { return slow(0, 100)(i) * int64(b2i(i >= 100)) }
	for _, c := range []struct {
		name        string
		s           script
		kind, where string
		says        string
	}{
		{"queue", script{200, flat(0), slow(0, 100), flat(20), flat(0), 0}, KindStage, "work", "100.0 ms waiting"},
		{"queue always", script{200, flat(0), flat(60), flat(20), flat(0), 0}, KindStage, "work", "60.0 ms waiting"},
		{"service", script{200, flat(0), flat(0), slow(20, 150), flat(0), 0}, KindStage, "work", "beyond 20.0 ms"},
		{"hop", script{200, flat(0), flat(0), flat(20), slow(1, 100), 0}, KindHop, "work:out", "crossing beyond 1.00 ms"},
		{"client", script{200, slow(0, 100), flat(0), flat(20), flat(0), 0}, KindClient, "send lag", "load generator"},
		{"even", script{200, flat(0), flat(0), flat(50), flat(1), 0}, KindInconclusive, "", "nothing stands out"},
		{"two close", script{200, flat(0), slow(0, 50), flat(20), slow(0, 50), 0}, KindInconclusive, "", "two are close"},
		{"moves", script{200, flat(0), early, flat(20), func(i int) int64 { return late(i) * 7 / 5 }, 0}, KindInconclusive, "", "not stable over time"},
		{"few", script{19, flat(0), flat(90), flat(20), flat(0), 0}, KindInconclusive, "", "only 19 complete requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.s.result()
			v := Judge(r, Summarise(r))
			if v.Kind != c.kind || v.Where != c.where || !strings.Contains(v.Reason, c.says) {
				t.Fatalf("got %s %q: %s\n%+v", v.Kind, v.Where, v.Reason, v.Numbers)
			}
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// An output that waits for a credit after its stage finished is charged to the hop.
func TestJudgeChargesCreditWaitToHop(t *testing.T) {
	s := script{200, flat(0), flat(0), flat(20), flat(0), 0}
	r := s.result()
	for i := range r.Requests {
		if i%10 != 3 {
			continue
		}
		q := &r.Requests[i]
		const d = int64(100e6)
		*q.Hops[0].Send.NS += d
		q.Hops[0].Recv = seen(*q.Hops[0].Recv.NS + d)
		q.Visits[0].Departure = seen(*q.Hops[0].Send.NS)
		*q.Client.EndNS += d
	}
	if v := Judge(r, nil); v.Kind != KindHop || v.Where != "work:out" {
		t.Fatalf("got %s %q: %s", v.Kind, v.Where, v.Reason)
	}
}

func TestInFlightRequestsAreNotJudged(t *testing.T) {
	r := script{40, flat(0), flat(60), flat(20), flat(0), 0}.result()
	for i := range 25 {
		r.Requests[i].InFlight = true
	}
	v := Judge(r, nil)
	if v.Kind != KindInconclusive || v.Numbers.Requests != 15 || v.Numbers.LeftOut != 25 {
		t.Fatalf("%+v", v)
	}
}

func TestUnion(t *testing.T) {
	for _, c := range []struct {
		iv   []interval
		want float64
	}{
		{nil, 0},
		{[]interval{{1000, 1000}}, 0},
		{[]interval{{5000, 9000}, {1000, 6000}}, 8},
		{[]interval{{0, 10000}, {2000, 3000}}, 10},
		{[]interval{{0, 1000}, {4000, 5000}}, 2},
		{[]interval{{3000, 1000}, {1000, 2000}}, 1}, // a negative one counts nothing
	} {
		if got := union(c.iv); got != c.want {
			t.Errorf("union: got %v, want %v", got, c.want)
		}
	}
}
