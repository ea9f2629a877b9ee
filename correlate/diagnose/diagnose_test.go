package diagnose

import (
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
