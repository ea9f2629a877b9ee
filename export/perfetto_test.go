package export

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/diagnose"
)

func at(ns int64) correlate.Point { return bounded(ns-3, ns, ns+5) }

func visit(stage string, arrival, ready, start, finish, departure int64) correlate.Visit {
	point := func(ns int64) correlate.Point {
		if ns == 0 {
			return unknown
		}
		return at(ns)
	}
	return correlate.Visit{Stage: stage, TGID: 11, Arrival: point(arrival), Ready: point(ready), Start: point(start),
		Finish: point(finish), Departure: point(departure), Identity: correlate.IdentityExact, Activation: -1}
}

func hop(from, to string, send, recv int64) correlate.Hop {
	h := correlate.Hop{From: from, To: to, Type: "msg", Via: "unix", Send: unknown, Recv: unknown, Identity: correlate.IdentityExact, Bytes: ptr[int64](10)}
	if send != 0 {
		h.Send = seen(send)
	}
	if recv != 0 {
		h.Recv = seen(recv)
	}
	return h
}

func input(from string, h int, ns int64) correlate.Input {
	return correlate.Input{From: from, Hop: h, At: seen(ns)}
}

// odd holds what drawing is tempted to get wrong: equal times, nothing long, estimates that
// disagree, boundaries that are not known, two stages in one process.
func odd() *Report {
	first := visit("work", 1100, 1100, 1150, 1300, 1320)
	first.Chunk, first.Inputs, first.Outputs = ptr[int64](0), []correlate.Input{input("front", 0, 1100)}, []int{1}
	first.OnCPUUS = ptr(12.5)
	join := visit("work", 1200, 1300, 1300, 1300, 1400)
	join.Join, join.Inputs = true, []correlate.Input{input("front", 2, 1200), input("side", 3, 1300)}
	longer := visit("work", 1600, 1600, 1610, 1660, 1650)
	longer.Outputs = []int{4}
	late := visit("work", 1900, 1900, 1900, 1910, 1920)
	late.Inputs = []correlate.Input{input("side", 5, 1900)}
	early := visit("side", 1900, 1900, 1900, 1900, 1900)
	early.Outputs = []int{5}
	res := &correlate.Result{
		Stages: []correlate.Stage{
			{Name: "side", TGIDs: []uint32{11}}, {Name: "work", TGIDs: []uint32{11, 12}}, {Name: "front", TGIDs: []uint32{10}, Entry: true},
		},
		Requests: []correlate.RequestTimeline{{
			ID: "r-1", Source: "loadgen", State: "success", Entry: seen(1050), Reply: seen(1950), Exit: seen(2000),
			Visits: []correlate.Visit{first, join, visit("work", 1500, 1540, 1520, 1560, 1550), longer,
				visit("work", 0, 0, 1700, 1720, 1730), visit("work", 1730, 1730, 1730, 1740, 1740), visit("work", 1800, 1800, 1800, 1800, 1800), late, early},
			Hops: []correlate.Hop{hop("front", "work", 1080, 1100), hop("work", "front", 1320, 1350), hop("front", "work", 1190, 1200), hop("side", "work", 1250, 1300),
				hop("work", "front", 1650, 1690), hop("side", "work", 1900, 1900), hop("work", "front", 1980, 1970), hop("work", "", 1985, 0), hop("", "work", 0, 1060)},
			Client: &run.Request{ID: "r-1", State: "success", Status: 200, PlannedNS: ptr[int64](1000), DequeuedNS: ptr[int64](1010), SentNS: ptr[int64](1020),
				WrittenNS: ptr[int64](1030), FirstByteNS: ptr[int64](1960), EndNS: ptr[int64](2010), Events: []run.ReplyEvent{{MonoNS: 1960, Kind: "content", Bytes: 3}, {MonoNS: 2010, Kind: "done"}}},
		}, {
			ID: "r-2", State: "worker-lost", Entry: seen(1500), Reply: unknown, Exit: unknown, Visits: []correlate.Visit{visit("work", 1710, 0, 0, 0, 0)},
		}, {
			ID: "r-3", State: "success", Entry: seen(2000), Reply: seen(2500), Exit: seen(3000), InFlight: true, Notes: []string{"a", "b"},
		}},
		Activations: []correlate.Activation{
			{Stage: "work", TGID: 11, Start: at(1150), Finish: at(1300), Members: [][2]int{{0, 0}, {1, 0}}, Identity: correlate.IdentityOrdered},
			{Stage: "work", TGID: 12, Start: at(1250), Finish: at(1400), Members: [][2]int{{0, 1}}, Identity: correlate.IdentityExact},
			{Stage: "work", TGID: 12, Start: at(1500), Finish: unknown, Members: [][2]int{{0, 1}}},
		},
		Loss: []correlate.LossEntry{
			{Reason: "ring-full", What: "io", N: 3, Bytes: 30, FromNS: 1100, ToNS: 1200, Severity: "data-loss", Meaning: "the collector did not keep up"},
			{Reason: "ring-full", What: "sched", N: 2, FromNS: 1150, ToNS: 1250, Severity: "data-loss"},
			{Reason: "decode", What: "message", N: 1, Severity: "info"},
		},
		FromNS: 1000, ToNS: 3100,
	}
	res.Requests[0].Hops[3].ShmName, res.Requests[0].Hops[3].ShmBytes = "seg-1", ptr[int64](4096)
	res.Requests[0].Hops[3].ShmWrite, res.Requests[0].Hops[3].ShmRead = &[2]int64{1210, 1240}, &[2]int64{1305, 1306}
	return &Report{
		Meta:   &run.Metadata{RunID: "run-1", Clocks: run.Clocks{Start: &run.ClockReading{MonoNS: 900, RealNS: 1_700_000_000_000_000_900, BootNS: 950}}},
		Result: res, Summary: &diagnose.Summary{}, Verdict: diagnose.Verdict{Kind: diagnose.KindInconclusive},
		Series: []diagnose.StageSeries{{Stage: "work", Points: []diagnose.SeriesPoint{
			{NS: 1100, Queue: 1, OldestNS: ptr[int64](1100)}, {NS: 1150, Active: 1}, {NS: 1300, Active: 0}}}},
	}
}

func draw(t testing.TB, r *Report, o PerfettoOptions) ([]byte, PerfettoStats) {
	t.Helper()
	var b bytes.Buffer
	stats, err := Perfetto(&b, r, o)
	if err != nil {
		t.Fatal(err)
	}
	if stats.Bytes != int64(b.Len()) {
		t.Fatalf("%d bytes are claimed, %d written", stats.Bytes, b.Len())
	}
	return b.Bytes(), stats
}

func sameRows(t *testing.T, what string, got []string, want string) {
	t.Helper()
	var w []string
	for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
		w = append(w, strings.TrimSpace(line))
	}
	slices.Sort(w)
	slices.Sort(got)
	if !slices.Equal(got, w) {
		t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(w, "\n"))
	}
}

// process | lane | parent | name | begin | duration
const oddWork = `
	work | requests |  | r-1 | 1100 | 220
	work | requests | r-1 | queue wait | 1100 | 50
	work | requests | r-1 | service | 1150 | 150
	work | requests | r-1 | send | 1300 | 20
	work | requests |  | r-1 | 1200 | 200
	work | requests | r-1 | wait for inputs | 1200 | 100
	work | requests | r-1 | queue wait | 1300 | 0
	work | requests | r-1 | service | 1300 | 0
	work | requests | r-1 | send | 1300 | 100
	work | requests | send | input | 1300 | 0
	work | requests |  | r-1 | 1500 | 50
	work | requests | r-1 | wait for inputs | 1500 | 40
	work | requests |  | service | 1520 | 40
	work | requests |  | r-1 | 1600 | 60
	work | requests | r-1 | queue wait | 1600 | 10
	work | requests | r-1 | service | 1610 | 50
	work | requests | service | output | 1650 | 0
	work | requests |  | service | 1700 | 20
	work | requests |  | send | 1720 | 10
	work | requests |  | r-1 | 1730 | 10
	work | requests | r-1 | queue wait | 1730 | 0
	work | requests | r-1 | service | 1730 | 10
	work | requests | r-1 | send | 1740 | 0
	work | requests |  | r-1 | 1800 | 0
	work | requests | r-1 | queue wait | 1800 | 0
	work | requests | r-1 | service | 1800 | 0
	work | requests | r-1 | send | 1800 | 0
	work | requests |  | r-1 | 1900 | 20
	work | requests | r-1 | queue wait | 1900 | 0
	work | requests | r-1 | service | 1900 | 10
	work | requests | r-1 | send | 1910 | 10
	work | activations |  | batch of 2 | 1150 | 150
	work | activations |  | batch of 1 | 1250 | 150
	work | hops out |  | msg → front | 1320 | 30
	work | hops out |  | msg → front | 1650 | 40
	work | hops out |  | msg → front | 1980 | 0
	work | hops out |  | msg →  | 1985 | 0
	work | other messages in |  | msg → work | 1060 | 0
	work | shared memory |  | read segment | 1305 | 1`

// source process | slice | its end -> target process | slice | its begin
const oddArrows = `
	front | msg → work | 1100 -> work | r-1 | 1100
	work | r-1 | 1320 -> front | msg → front | 1350
	front | msg → work | 1200 -> work | r-1 | 1200
	side | msg → work | 1300 -> work | input | 1300
	work | output | 1650 -> front | msg → front | 1690
	side | msg → work | 1900 -> work | r-1 | 1900`

const oddRequests = `
	requests | client |  | r-1 | 1000 | 1010
	requests | client | r-1 | planned, not taken up | 1000 | 10
	requests | client | r-1 | connect | 1010 | 10
	requests | client | r-1 | send request | 1020 | 10
	requests | client | r-1 | wait for first byte | 1030 | 930
	requests | client | r-1 | reply | 1960 | 50
	requests | client | reply | content | 1960 | 0
	requests | client | reply | done | 2010 | 0
	requests | engine: entry to exit |  | r-1 | 1050 | 950
	requests | engine: entry to exit | r-1 | first reply | 1950 | 0
	requests | engine: entry to exit |  | entry | 1500 | 0
	requests | engine: entry to exit |  | r-3 | 2000 | 1000
	requests | engine: entry to exit | r-3 | first reply | 2500 | 0`

func TestPerfettoDrawsOddTimes(t *testing.T) {
	file, stats := draw(t, odd(), PerfettoOptions{})
	tr := readPerfetto(t, file)
	sameRows(t, "work", tr.rows("work"), oddWork)
	sameRows(t, "requests", tr.rows("requests"), oddRequests)
	sameRows(t, "arrows", tr.arrows(), oddArrows)
	sameRows(t, "recording", tr.rows("recording"), `
		recording | recording |  | run run-1 | 1000 | 2100
		recording | loss ledger |  | lost: ring-full | 1100 | 100
		recording | loss ledger |  | lost: ring-full | 1150 | 100
		recording | loss ledger |  | lost: decode | 1000 | 0`)
	if stats.FlowsLeftOut != 1 || stats.Negative != 3 || stats.Apart != 1 || stats.Extended != 1 || stats.Requests != 3 {
		t.Errorf("%+v", stats)
	}
	if n := uint64(len(tr.slices)); n != stats.Slices+stats.Instants || uint64(len(tr.flows)) != stats.Flows {
		t.Errorf("%d slices, %d flows read; %+v", n, len(tr.flows), stats)
	}
}

func TestPerfettoOrdersAndNamesProcesses(t *testing.T) {
	file, _ := draw(t, odd(), PerfettoOptions{})
	tr := readPerfetto(t, file)
	var ps []*readTrack
	for _, d := range tr.tracks {
		if d.process != "" {
			ps = append(ps, d)
		}
	}
	slices.SortFunc(ps, func(a, b *readTrack) int { return int(a.rank) - int(b.rank) })
	var got []string
	for _, p := range ps {
		got = append(got, p.process+" "+strings.Join(p.labels, ","))
	}
	// The entry comes first, then side and work by first arrival; "" is the other end of the last hop.
	want := []string{"recording ", "requests ", "front pid 10", "work pid 11,pid 12", "side pid 11", "unknown "}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if tr.tracks[0] == nil {
		t.Error("no root track: the UI would not keep the order")
	}
	if tr.clocks[clockReal] != 1_700_000_000_000_000_900 || tr.clocks[clockBoot] != 950 {
		t.Errorf("clocks %v", tr.clocks)
	}
}

func TestPerfettoAnnotates(t *testing.T) {
	file, _ := draw(t, odd(), PerfettoOptions{})
	tr := readPerfetto(t, file)
	find := func(process, name string, begin int64) *readEvent {
		t.Helper()
		for _, s := range tr.slices {
			if s.Process == process && s.Name == name && s.Begin == begin {
				return s.event
			}
		}
		t.Fatalf("no %s %s at %d", process, name, begin)
		return nil
	}
	for _, c := range []struct {
		e    *readEvent
		want map[string]any
	}{
		{find("work", "service", 1150), map[string]any{"begin": "bounded: futex-wake", "begin_lo_ns": int64(-3), "begin_hi_ns": int64(5),
			"end": "bounded: futex-wake", "end_lo_ns": int64(-3), "end_hi_ns": int64(5)}},
		{find("work", "r-1", 1100), map[string]any{"chunk": int64(0), "identity": "exact", "pid": int64(11), "begin": "bounded: futex-wake"}},
		{find("work", "r-1", 1600), map[string]any{"drawn": faultNegative + "; " + faultLonger}},
		{find("work", "service", 1520), map[string]any{"drawn": faultApart, "request": "r-1"}},
		{find("work", "service", 1700), map[string]any{"request": "r-1"}},
		{find("work", "batch of 2", 1150), map[string]any{"batch": int64(2), "members": []any{"r-1", "r-2"}, "identity": "ordered"}},
		{find("side", "msg → work", 1250), map[string]any{"begin": "seen", "end": "seen", "transport": "unix", "bytes": int64(10), "segment_bytes": int64(4096), "begin_lo_ns": nil}},
		{find("work", "msg → front", 1980), map[string]any{"drawn": "as an instant: the receive is estimated before the send"}},
		{find("side", "write segment", 1210), map[string]any{"segment": "seg-1"}},
		{find("requests", "r-3", 2000), map[string]any{"reason": "in flight when recording began", "note": "b"}},
		{find("requests", "entry", 1500), map[string]any{"request": "r-2", "state": "worker-lost"}},
		{find("recording", "lost: decode", 1000), map[string]any{"n": int64(1), "severity": "info", "drawn": "when this was lost is not known: shown at the begin of the recording"}},
	} {
		for k, want := range c.want {
			if got := c.e.notes[k]; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s at %d: %s is %v, want %v", c.e.name, c.e.ns, k, got, want)
			}
		}
	}
	if a, b := find("work", "r-1", 1100), find("requests", "r-1", 1050); a.correlation == 0 || a.correlation != b.correlation || a.correlation == find("requests", "r-3", 2000).correlation {
		t.Errorf("correlation ids %d, %d", a.correlation, b.correlation)
	}
}

func TestPerfettoCounters(t *testing.T) {
	r := odd()
	r.Series[0].Points[1].NS, r.Series[0].Points[2].NS = 25_001_100, 25_001_300 // a wait of 25 ms
	r.Result.Requests[0].Exit = seen(25_002_000)
	file, _ := draw(t, r, PerfettoOptions{})
	tr := readPerfetto(t, file)
	counter := func(key string) (out []string) {
		for _, e := range tr.counters[key] {
			out = append(out, fmt.Sprintf("%d %g", e.ns, e.value))
		}
		return out
	}
	for key, want := range map[string]string{
		"work | queue depth | visits":              "1100 1,25001100 0,25001300 0",
		"work | active | visits":                   "1100 0,25001100 1,25001300 0",
		"work | oldest wait | ms":                  "1100 0,10001100 10,20001100 20,25001100 25,25001100 0,25001300 0",
		"work | batch | requests":                  "1150 2,1250 3,1300 1,1400 0",
		"requests | requests in flight | requests": "1050 1,2000 2,3000 1,25002000 0",
	} {
		if got := strings.Join(counter(key), ","); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

func TestPerfettoCuts(t *testing.T) {
	for _, c := range []struct {
		o        PerfettoOptions
		requests int
		inFlight string
	}{
		{PerfettoOptions{FromNS: 2005, ToNS: 2100}, 2, "2005 1"},
		{PerfettoOptions{FromNS: 2011}, 1, "2011 1,3000 0"},
		{PerfettoOptions{ToNS: 1400}, 1, "1050 1"},
		{PerfettoOptions{Last: 1}, 1, "2000 1,3000 0"},
		{PerfettoOptions{FromNS: 4000}, 0, "4000 0"},
	} {
		file, stats := draw(t, odd(), c.o)
		tr := readPerfetto(t, file)
		var got []string
		for _, e := range tr.counters["requests | requests in flight | requests"] {
			got = append(got, fmt.Sprintf("%d %g", e.ns, e.value))
		}
		if stats.Requests != c.requests || strings.Join(got, ",") != c.inFlight {
			t.Errorf("%+v: %d requests, in flight %q", c.o, stats.Requests, got)
		}
		if len(tr.rows("recording")) != 4 {
			t.Errorf("%+v: the ledger is cut: %q", c.o, tr.rows("recording"))
		}
	}
}

// Without a clock reading, in a file that is cut off or compressed, the timeline is still read.
func TestPerfettoWithoutClocksAndCompressed(t *testing.T) {
	r := odd()
	r.Meta.Clocks.Start = nil
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := Perfetto(z, r, PerfettoOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	u, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	file, err := io.ReadAll(u)
	if err != nil {
		t.Fatal(err)
	}
	tr := readPerfetto(t, file)
	if _, ok := tr.clocks[clockReal]; ok || tr.clocks[clockMono] != 1000 {
		t.Errorf("clocks %v: none but the monotonic one is known", tr.clocks)
	}
	sameRows(t, "arrows", tr.arrows(), oddArrows)
}

type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(b), nil
}

func TestPerfettoReportsWriteErrors(t *testing.T) {
	if _, err := Perfetto(&failing{100}, odd(), PerfettoOptions{}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Fatalf("got %v", err)
	}
}

// Text from the engine cannot break the file: Perfetto refuses strings that are not UTF-8.
func TestPerfettoCleansNames(t *testing.T) {
	r := odd()
	r.Result.Requests[0].ID = "r\xff\x1b"
	file, _ := draw(t, r, PerfettoOptions{})
	if !bytes.Contains(file, []byte("r??")) || bytes.Contains(file, []byte(r.Result.Requests[0].ID)) {
		t.Fatal("the id is written as it came, or not at all")
	}
}

func TestAnnotationNamesTakeOneByte(t *testing.T) {
	if n := len(annotations); n > 128 {
		t.Fatalf("%d names: their numbers take two bytes, which annotate does not reckon with", n)
	}
	for i := range annotations {
		if i > 0 && annotations[i].name == "" {
			t.Errorf("annotation %d has no name", i)
		}
	}
}
