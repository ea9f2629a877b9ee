package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
	"github.com/stageline/stageline/export"
)

func ptr[T any](v T) *T { return &v }

func seen(ns int64) correlate.Point {
	return correlate.Point{NS: &ns, LoNS: &ns, HiNS: &ns, Timing: correlate.TimingSeen}
}

func bounded(lo, ns, hi int64) correlate.Point {
	return correlate.Point{NS: &ns, LoNS: &lo, HiNS: &hi, Timing: correlate.TimingBounded}
}

// The pipeline of these tests: api (1) → a (2), b (3) → c (4); d and e share process 5.
const truthMeta = `{"t":"meta","source":"refpipe","seed":1,"api_pid":1,"stages":[{"name":"a","pids":[2]},{"name":"b","pids":[3]},{"name":"c","pids":[4,40]},{"name":"d","pids":[5]},{"name":"e","pids":[5]}]}`

const truthOne = truthMeta + `
{"t":"visit","request":"r1","stage":"c","pid":4,"chunk":null,"arrivals":[{"from":"a","ns":3000000},{"from":"b","ns":3500000}],"ready_ns":3500000,"start_ns":4000000,"finish_ns":9000000,"departure_ns":9100000}
{"t":"visit","request":"r1","stage":"a","pid":2,"chunk":null,"arrivals":[{"from":"api","ns":1100000}],"ready_ns":1100000,"start_ns":1200000,"finish_ns":2800000,"departure_ns":2900000}
{"t":"hop","request":"r1","from":"api","to":"a","type":"submit","seq":0,"chunk":null,"send_ns":1000000,"recv_ns":1100000,"bytes":10,"transport":"unix"}
{"t":"hop","request":"r1","from":"a","to":"c","type":"data_ready","seq":0,"chunk":null,"send_ns":2900000,"recv_ns":3000000,"bytes":10,"transport":"unix"}
{"t":"hop","request":"r1","from":"b","to":"c","type":"data_ready","seq":0,"chunk":null,"send_ns":3400000,"recv_ns":3500000,"bytes":10,"transport":"unix"}
{"t":"hop","request":"r1","from":"d","to":"e","type":"data_ready","seq":0,"chunk":null,"send_ns":3400000,"recv_ns":3400100,"bytes":10,"transport":"memory"}
{"t":"request","request":"r1","entry_recv_ns":900000,"entry_reply_first_ns":9200000,"entry_reply_last_ns":9300000,"state":"success"}
`

// perfect is a report that has everything of truthOne, with known errors.
func perfect() *export.Document {
	return &export.Document{
		Schema: export.JSONSchema, Meta: &run.Metadata{RunID: "run-1"},
		Stages: []export.StageDocument{
			{Stage: correlate.Stage{Name: "front", TGIDs: []uint32{1}}}, {Stage: correlate.Stage{Name: "a", TGIDs: []uint32{2}}},
			{Stage: correlate.Stage{Name: "b", TGIDs: []uint32{3}}}, {Stage: correlate.Stage{Name: "p4", TGIDs: []uint32{4}}},
		},
		Requests: []correlate.RequestTimeline{{
			ID: "x", Aliases: []correlate.Alias{{Value: "r1", Reason: "same-message"}},
			Visits: []correlate.Visit{
				{Stage: "front", TGID: 1},
				{Stage: "a", TGID: 2, Identity: correlate.IdentityExact, Inputs: []correlate.Input{{From: "front", At: seen(1_101_000), Hop: 0}},
					Ready: seen(1_110_000), Start: bounded(1_150_000, 1_220_000, 1_250_000), Finish: bounded(2_790_000, 2_830_000, 2_850_000), Departure: seen(2_901_000)},
				{Stage: "p4", TGID: 4, Identity: correlate.IdentityPaired, Inputs: []correlate.Input{{From: "a", At: seen(3_002_000), Hop: 1}, {From: "b", At: seen(3_503_000), Hop: 2}},
					Ready: seen(3_540_000), Start: bounded(3_600_000, 3_900_000, 3_950_000), Finish: seen(9_000_000), Departure: seen(9_104_000)},
			},
			Hops: []correlate.Hop{
				{From: "front", To: "a", FromTGID: 1, ToTGID: 2, Type: "submit", Send: seen(1_002_000), Recv: seen(1_101_000), Identity: correlate.IdentityExact},
				{From: "a", To: "p4", FromTGID: 2, ToTGID: 4, Type: "data_ready", Send: seen(2_903_000), Recv: seen(3_002_000), Identity: correlate.IdentityExact},
				{From: "b", To: "p4", FromTGID: 3, ToTGID: 4, Type: "data_ready", Send: seen(3_404_000), Recv: seen(3_503_000), Identity: correlate.IdentityExact},
				{From: "client", To: "front", FromTGID: 99, ToTGID: 1, Type: "POST /v1/x", Send: seen(1), Recv: seen(2)},
			},
		}},
	}
}

func segment() correlate.Hop {
	return correlate.Hop{From: "a", To: "p4", FromTGID: 2, ToTGID: 4, Type: "segment", Via: "shm", Send: seen(2_850_000), Recv: seen(3_100_000)}
}

func truthFrom(t *testing.T, lines string) *truth {
	t.Helper()
	path := filepath.Join(t.TempDir(), "truth.jsonl")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, err := readTruth(path)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func compare(t *testing.T, d *export.Document, lines string) *Accuracy {
	t.Helper()
	return score(match(d, truthFrom(t, lines)), d.Meta.RunID, false)
}

// errs shows n/missing p50 max.
func errs(e stat.Errors) string {
	return fmt.Sprintf("%d/%d %s %s", e.N, e.Missing, us(e.P50), us(e.Max))
}

func TestAccuracyOfCompleteReport(t *testing.T) {
	a := compare(t, perfect(), truthOne)
	f, c := &a.Figures, &a.Counts
	for _, x := range []struct {
		name      string
		got, want any
	}{
		{"hop_us", errs(f.Hop), "6/0 2.0 4.0"}, // 2 1 3 2 4 3
		{"ready_us", errs(f.Ready), "2/0 10.0 40.0"},
		{"start_us", errs(f.Start), "2/0 20.0 100.0"},
		{"finish_us", errs(f.Finish), "2/0 0.0 30.0"},
		// c's ready is seen 40 µs off, c's start lies 50 µs after hi: 4 of 6 inside.
		{"coverage", pct(f.IntervalCoverage), "66.67 %"},
		{"width", fmt.Sprintf("%d %s %s", f.IntervalWidth.N, us(f.IntervalWidth.P50), us(f.IntervalWidth.Max)), "3 100.0 350.0"},
		{"missed", f.HopsMissed, 0}, {"invented", f.HopsInvented, 0}, {"joins wrong", f.JoinsWrong, 0}, {"joins", c.Joins, 1},
		{"exact", pct(a.Identity.Exact), "50.00 %"}, {"paired", pct(a.Identity.Paired), "50.00 %"}, {"unknown", pct(a.Identity.Unknown), "0.00 %"},
		{"seen", pct(a.Timing.Seen), "50.00 %"}, {"bounded", pct(a.Timing.Bounded), "50.00 %"},
		{"memory", c.HopsInMemory, 1}, {"memory shown", c.MemoryClaimed, 0}, {"outside", c.HopsOutside, 1},
		{"visits invented", c.VisitsInvented, 0}, {"set apart", us(f.SetApartShare), "0.0"},
		{"c arrivals", errs(a.Stages[1].Arrivals), "2/0 2.0 3.0"}, {"c departure", errs(a.Stages[1].Departure), "1/0 4.0 4.0"},
		{"examples", len(a.Examples), 0},
	} {
		if x.got != x.want {
			t.Errorf("%s: got %v, want %v", x.name, x.got, x.want)
		}
	}
}

// Each row changes the complete report and states what must change in the figures.
func TestAccuracyOfFaultyReports(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(q *correlate.RequestTimeline)
		got    func(a *Accuracy) string
		want   string
	}{
		{"missing hop", func(q *correlate.RequestTimeline) { q.Hops = q.Hops[:2] },
			func(a *Accuracy) string {
				return fmt.Sprint(errs(a.Figures.Hop), " ", a.Figures.HopsMissed, a.Figures.HopsInvented)
			}, "6/2 2.0 inf 1 0"},
		{"invented hop", func(q *correlate.RequestTimeline) { q.Hops = append(q.Hops, q.Hops[1]) },
			func(a *Accuracy) string {
				return fmt.Sprint(errs(a.Figures.Hop), " ", a.Figures.HopsMissed, a.Figures.HopsInvented, " ", a.Examples)
			}, "6/0 2.0 4.0 0 1 [hops invented: x a → p4 data_ready]"},
		{"other message type", func(q *correlate.RequestTimeline) { q.Hops[1].Type = "submit" },
			func(a *Accuracy) string { return fmt.Sprint(a.Figures.HopsMissed, a.Figures.HopsInvented) }, "1 1"},
		{"type the decoder cannot name", func(q *correlate.RequestTimeline) { q.Hops[1].Type = "burst" },
			func(a *Accuracy) string {
				return fmt.Sprint(a.Figures.HopsMissed, a.Figures.HopsInvented, a.Counts.HopsUntyped)
			}, "0 0 1"},
		{"chunk that the truth does not state", func(q *correlate.RequestTimeline) { q.Hops[1].Chunk = ptr[int64](3) },
			func(a *Accuracy) string { return fmt.Sprint(a.Figures.HopsMissed, a.Figures.HopsInvented) }, "0 0"},
		{"wrong process", func(q *correlate.RequestTimeline) { q.Hops[1].FromTGID = 3 },
			func(a *Accuracy) string { return fmt.Sprint(a.Figures.HopsMissed, a.Figures.HopsInvented) }, "1 1"},
		{"one end unknown", func(q *correlate.RequestTimeline) { q.Hops[1].Recv = correlate.Point{Timing: correlate.TimingUnknown} },
			func(a *Accuracy) string { return fmt.Sprint(errs(a.Figures.Hop), " ", a.Figures.HopsMissed) }, "6/1 3.0 inf 0"},
		{"memory hop shown", func(q *correlate.RequestTimeline) {
			q.Hops = append(q.Hops, correlate.Hop{From: "d", To: "e", FromTGID: 5, ToTGID: 5, Type: "data_ready", Send: seen(3_400_000), Recv: seen(3_400_100)})
		}, func(a *Accuracy) string { return fmt.Sprint(a.Figures.HopsInvented, a.Counts.MemoryClaimed) }, "0 1"},
		{"segment beside a message", func(q *correlate.RequestTimeline) { q.Hops = append(q.Hops, segment()) },
			func(a *Accuracy) string { return fmt.Sprint(a.Figures.HopsInvented, a.Counts.Segments) }, "0 1"},
		{"second segment beside one message", func(q *correlate.RequestTimeline) { q.Hops = append(q.Hops, segment(), segment()) },
			func(a *Accuracy) string { return fmt.Sprint(a.Figures.HopsInvented, a.Counts.Segments) }, "1 1"},
		{"segment where no message went", func(q *correlate.RequestTimeline) {
			h := segment()
			h.To, h.ToTGID = "b", 3
			q.Hops = append(q.Hops, h)
		}, func(a *Accuracy) string { return fmt.Sprint(a.Figures.HopsInvented, a.Counts.Segments) }, "1 0"},
		{"missing visit", func(q *correlate.RequestTimeline) { q.Visits = q.Visits[:2] },
			func(a *Accuracy) string {
				return fmt.Sprint(errs(a.Figures.Ready), " ", errs(a.Figures.Finish), " ", pct(a.Identity.Unknown), pct(a.Timing.Unknown), pct(a.Figures.IntervalCoverage), " ", a.Figures.JoinsWrong)
			}, "2/1 10.0 inf 2/1 30.0 inf 50.00 %50.00 %50.00 % 1"},
		{"unknown boundary", func(q *correlate.RequestTimeline) {
			q.Visits[1].Start = correlate.Point{Timing: correlate.TimingUnknown}
		},
			func(a *Accuracy) string {
				return fmt.Sprint(errs(a.Figures.Start), " ", pct(a.Figures.IntervalCoverage))
			}, "2/1 100.0 inf 50.00 %"},
		{"invented visit", func(q *correlate.RequestTimeline) { q.Visits = append(q.Visits, q.Visits[1]) },
			func(a *Accuracy) string { return fmt.Sprint(a.Counts.VisitsMissed, a.Counts.VisitsInvented) }, "0 1"},
		{"wrong last input", func(q *correlate.RequestTimeline) { q.Visits[2].Inputs[0].At = seen(3_600_000) },
			func(a *Accuracy) string { return fmt.Sprint(a.Figures.JoinsWrong, a.Examples) }, "1 [joins wrong: r1 at c: another input is last]"},
		{"input lacking", func(q *correlate.RequestTimeline) { q.Visits[2].Inputs = q.Visits[2].Inputs[1:] },
			func(a *Accuracy) string { return fmt.Sprint(a.Figures.JoinsWrong, a.Figures.JoinsUnknown) }, "1 0"},
		{"input too many", func(q *correlate.RequestTimeline) {
			q.Visits[2].Inputs = append(q.Visits[2].Inputs, correlate.Input{From: "front", At: seen(1), Hop: -1})
		}, func(a *Accuracy) string { return fmt.Sprint(a.Figures.JoinsWrong) }, "1"},
		{"arrival unknown", func(q *correlate.RequestTimeline) { q.Visits[2].Inputs[0].At = correlate.Point{} },
			func(a *Accuracy) string {
				return fmt.Sprint(a.Figures.JoinsWrong, a.Figures.JoinsUnknown, " ", errs(a.Stages[1].Arrivals))
			}, "0 1 2/1 3.0 inf"},
		{"other request", func(q *correlate.RequestTimeline) { q.Aliases = nil },
			func(a *Accuracy) string {
				return fmt.Sprint(a.Counts.RequestsMissed, a.Figures.HopsMissed, a.Figures.HopsInvented, a.Counts.VisitsInvented)
			}, "1 3 3 2"},
		{"set apart", func(q *correlate.RequestTimeline) { q.Visits[2].Start.RunnableUS = ptr(100.0) },
			func(a *Accuracy) string {
				return fmt.Sprint(errs(a.Figures.Start), " ", pct(a.Figures.IntervalCoverage), pct(a.Figures.SetApartShare))
			}, "1/0 20.0 20.0 80.00 %16.67 %"},
		{"runnable too short to set apart", func(q *correlate.RequestTimeline) { q.Visits[2].Start.RunnableUS = ptr(99.9) },
			func(a *Accuracy) string { return errs(a.Figures.Start) }, "2/0 20.0 100.0"},
		{"seen is never set apart", func(q *correlate.RequestTimeline) { q.Visits[2].Ready.RunnableUS = ptr(500.0) },
			func(a *Accuracy) string { return errs(a.Figures.Ready) }, "2/0 10.0 40.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := perfect()
			c.change(&d.Requests[0])
			if got := c.got(compare(t, d, truthOne)); got != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestNullTruthIsInfiniteUnlessRecorder(t *testing.T) {
	lines := strings.Replace(truthOne, `"start_ns":1200000,`, `"start_ns":null,`, 1)
	tr := truthFrom(t, lines)
	d := perfect()
	if a := score(match(d, tr), "", false); errs(a.Figures.Start) != "2/1 100.0 inf" || a.Counts.Boundaries != 6 {
		t.Errorf("null counts: %s of %d", errs(a.Figures.Start), a.Counts.Boundaries)
	}
	if a := score(match(d, tr), "", true); errs(a.Figures.Start) != "1/0 100.0 100.0" || a.Counts.Boundaries != 5 {
		t.Errorf("recorder skips it: %s of %d", errs(a.Figures.Start), a.Counts.Boundaries)
	}
}

// Of three equal messages the report lacks the middle one: the others must keep their own truth.
func TestHopsOfOneKindAlignByTime(t *testing.T) {
	lines := truthMeta + "\n"
	for i := range 3 {
		lines += fmt.Sprintf(`{"t":"hop","request":"r1","from":"a","to":"c","type":"stream","seq":%d,"chunk":null,"send_ns":%d,"recv_ns":%d,"transport":"unix"}`+"\n", i, 1_000_000*(i+1), 1_000_000*(i+1)+50_000)
	}
	d := perfect()
	q := &d.Requests[0]
	q.Visits, q.Hops = nil, nil
	for _, at := range []int64{3_001_000, 1_001_000} { // order of the list does not matter
		q.Hops = append(q.Hops, correlate.Hop{From: "a", To: "p4", FromTGID: 2, ToTGID: 4, Type: "stream", Send: seen(at), Recv: seen(at + 50_000)})
	}
	a := compare(t, d, lines)
	if got := fmt.Sprint(errs(a.Figures.Hop), " ", a.Figures.HopsMissed, a.Figures.HopsInvented); got != "6/2 1.0 inf 1 0" {
		t.Fatal(got)
	}
}

// Two stages in one process: a report that names the process only has one visit for two.
func TestStagesThatShareAProcess(t *testing.T) {
	lines := truthMeta + `
{"t":"visit","request":"r1","stage":"d","pid":5,"arrivals":[],"ready_ns":1000,"start_ns":2000,"finish_ns":3000,"departure_ns":4000}
{"t":"visit","request":"r1","stage":"e","pid":5,"arrivals":[],"ready_ns":5000,"start_ns":6000,"finish_ns":7000,"departure_ns":8000}
`
	d := perfect()
	q := &d.Requests[0]
	q.Hops = nil
	q.Visits = []correlate.Visit{{Stage: "p5", TGID: 5, Ready: seen(1000), Start: seen(2000), Finish: seen(7000)}}
	a := compare(t, d, lines)
	if got := fmt.Sprint(a.Counts.VisitsMissed, a.Counts.VisitsInvented, " ", errs(a.Figures.Finish)); got != "1 0 2/1 4.0 inf" {
		t.Fatal(got)
	}
	q.Visits = []correlate.Visit{{Stage: "e", TGID: 5, Ready: seen(5000), Finish: seen(7000)}, {Stage: "d", TGID: 5, Ready: seen(1000), Finish: seen(3000)}}
	a = compare(t, d, lines)
	if got := fmt.Sprint(a.Counts.VisitsMissed, " ", errs(a.Figures.Finish)); got != "0 2/0 0.0 0.0" {
		t.Fatal(got)
	}
}

func TestChunkedVisitsAndReplicas(t *testing.T) {
	lines := truthMeta + "\n"
	for k := range 3 {
		lines += fmt.Sprintf(`{"t":"visit","request":"r1","stage":"c","pid":40,"chunk":%d,"arrivals":[],"ready_ns":%d,"start_ns":%d,"finish_ns":%d}`+"\n", k, k*1000, k*1000+10, k*1000+20)
	}
	d := perfect()
	q := &d.Requests[0]
	q.Hops = nil
	visit := func(chunk *int64, at int64) correlate.Visit {
		return correlate.Visit{Stage: "replica", TGID: 40, Chunk: chunk, Ready: seen(at), Start: seen(at + 10), Finish: seen(at + 20)}
	}
	q.Visits = []correlate.Visit{visit(ptr[int64](2), 2000), visit(ptr[int64](0), 0), visit(nil, 1000)}
	a := compare(t, d, lines)
	if got := fmt.Sprint(a.Counts.VisitsMissed, a.Counts.VisitsInvented, " ", errs(a.Figures.Ready)); got != "0 0 3/0 0.0 0.0" {
		t.Fatal(got)
	}
	q.Visits[2].Chunk = ptr[int64](7)
	a = compare(t, d, lines)
	if got := fmt.Sprint(a.Counts.VisitsMissed, a.Counts.VisitsInvented); got != "1 1" {
		t.Fatal(got)
	}
}

func TestReadTruthSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ lines, says string }{
		{"", "names 0 stages and 0 requests"},
		{truthMeta, "0 requests"},
		{truthMeta + "\n{\"t\":\"visit\"", "line 2"},
		{truthMeta + "\n{\"t\":\"span\",\"request\":\"r\"}", `unknown kind "span"`},
		{truthMeta + "\n{\"t\":\"hop\",\"from\":\"a\"}", "without a request"},
	} {
		path := filepath.Join(t.TempDir(), "truth.jsonl")
		if err := os.WriteFile(path, []byte(c.lines), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readTruth(path); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: got %v, want %q", c.lines, err, c.says)
		}
	}
}

func TestAlign(t *testing.T) {
	at := func(v ...int64) (out []*int64) {
		for _, x := range v {
			if x < 0 {
				out = append(out, nil)
			} else {
				out = append(out, &x)
			}
		}
		return out
	}
	for _, c := range []struct {
		a, b []*int64
		want string
	}{
		{at(), at(), "[]"},
		{at(1, 2), at(), "[-1 -1]"},
		{at(1, 2), at(50, 60), "[0 1]"},
		{at(10, 20, 30), at(11, 31), "[0 -1 1]"},
		{at(10, 30), at(1, 11, 29, 99), "[1 2]"},
		{at(10), at(-1, 10), "[0]"}, // an unknown time costs nothing
		{at(10, 20, 30), at(29), "[-1 -1 0]"},
	} {
		if got := fmt.Sprint(align(c.a, c.b)); got != c.want {
			t.Errorf("align: got %s, want %s", got, c.want)
		}
	}
}
