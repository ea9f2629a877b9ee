package export

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/diagnose"
)

var update = flag.Bool("update", false, "rewrite the golden files; the run still fails")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	if err == nil && bytes.Equal(want, got) {
		return
	}
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Fatalf("%s rewritten: read the difference, then run again without -update", path)
	}
	t.Fatalf("%s differs (%v); got:\n%s", path, err, got)
}

func ptr[T any](v T) *T { return &v }

func seen(ns int64) correlate.Point {
	return correlate.Point{NS: &ns, LoNS: &ns, HiNS: &ns, Timing: correlate.TimingSeen}
}

func bounded(lo, ns, hi int64) correlate.Point {
	return correlate.Point{NS: &ns, LoNS: &lo, HiNS: &hi, Timing: correlate.TimingBounded, Rule: "futex-wake"}
}

var unknown = correlate.Point{Timing: correlate.TimingUnknown}

// sample is two requests through encode → join, the second of which is only partly known.
func sample() *Report {
	res := &correlate.Result{
		Stages: []correlate.Stage{
			{Name: "encode", Rule: "bound socket path", TGIDs: []uint32{11}},
			{Name: "front", Rule: "listening socket", TGIDs: []uint32{10}, Entry: true},
			{Name: "join", Rule: "bound socket path", TGIDs: []uint32{12, 13}},
			{Name: "spare", Rule: "bound socket path", TGIDs: []uint32{14}},
		},
		Channels: []correlate.Channel{
			{From: "front", To: "encode", FromTGID: 10, ToTGID: 11, Transport: "unix", Endpoints: [2]uint32{1, 2}, Messages: 2, Received: 2, Covered: true},
			{From: "front", To: "spare", FromTGID: 10, ToTGID: 14, Transport: "tcp", Endpoints: [2]uint32{3, 4}, Messages: 5, Covered: false, Why: "TLS"},
		},
		Uncovered: []correlate.Uncovered{{From: "join", To: "front", Why: "inside one process", N: 2}},
		Loss: []correlate.LossEntry{
			{Reason: "ring-full", What: "io", N: 3, Bytes: 300, FromNS: 1_000_000, ToNS: 3_500_000, Severity: "data-loss", Meaning: "the collector did not keep up"},
		},
		Counts: correlate.Counts{Records: 997, Messages: 8, MessagesNoID: 1, MessagesPaired: 6, MessagesOneEnded: 1, Gaps: 1, Resyncs: 1, BytesUnframed: 17},
		Notes:  []run.Note{{AtNS: 5, Level: "warn", Code: "unsealed", Text: "the run is not\x1b[31m sealed"}},
		FromNS: 1_000_000, ToNS: 1_501_000_000,
	}
	res.Requests = []correlate.RequestTimeline{{
		ID: "r-1", Source: "loadgen", State: "success", Aliases: []correlate.Alias{{Value: "chatcmpl-r-1", Reason: "contains"}},
		Client: &run.Request{Source: "loadgen", ID: "r-1", State: "success", SentNS: ptr[int64](10_000_000), FirstNS: ptr[int64](40_000_000), EndNS: ptr[int64](52_000_000)},
		Entry:  seen(10_200_000), Reply: seen(39_900_000), Exit: seen(51_900_000), JCTUS: ptr(41700.0), Residual: ptr(900.5),
		Visits: []correlate.Visit{
			{Stage: "encode", TGID: 11, Inputs: []correlate.Input{{From: "front", At: seen(10_400_000), Hop: 0}}, Arrival: seen(10_400_000), Ready: seen(10_400_000),
				Start: bounded(10_450_000, 10_460_000, 10_500_000), Finish: bounded(20_000_000, 20_100_000, 20_200_000), Departure: seen(20_250_000), Identity: correlate.IdentityExact,
				Outputs: []int{2}, Activation: 0, OnCPUUS: ptr(7640.0), RunQueueUS: ptr(100.0), Blocked: []correlate.Blocked{{Reason: "timer", US: 1500, N: 3}, {Reason: "lock", US: 400, N: 1}}},
			{Stage: "join", TGID: 12, Join: true, Inputs: []correlate.Input{{From: "front", At: seen(10_500_000), Hop: 1}, {From: "encode", At: seen(20_400_000), Hop: 2}},
				Arrival: seen(10_500_000), Ready: seen(20_400_000), Start: seen(20_400_000), Finish: seen(51_000_000), Departure: seen(51_100_000), Identity: correlate.IdentityPaired, Outputs: []int{}, Activation: -1},
		},
		Hops: []correlate.Hop{
			{From: "front", To: "encode", FromTGID: 10, ToTGID: 11, Type: "submit", Via: "unix", Send: seen(10_300_000), Recv: seen(10_400_000), VisibleNS: ptr[int64](10_320_000), PickedUpNS: ptr[int64](10_390_000), Bytes: ptr[int64](240), Identity: correlate.IdentityExact},
			{From: "front", To: "join", FromTGID: 10, ToTGID: 12, Type: "submit", Via: "unix", Send: seen(10_310_000), Recv: seen(10_500_000), Bytes: ptr[int64](96), Identity: correlate.IdentityExact},
			{From: "encode", To: "join", FromTGID: 11, ToTGID: 12, Type: "data_ready", Via: "unix+shm", Send: seen(20_250_000), Recv: seen(20_400_000), Bytes: ptr[int64](310), ShmName: "psm_1", ShmBytes: ptr[int64](1 << 20),
				ShmWrite: &[2]int64{20_110_000, 20_240_000}, ShmRead: &[2]int64{20_410_000, 20_900_000}, Identity: correlate.IdentityExact},
		},
	}, {
		ID: "r-2", Source: "loadgen", State: "success", InFlight: true, Entry: unknown, Reply: unknown, Exit: unknown,
		Visits: []correlate.Visit{{Stage: "join", TGID: 13, Join: true, Inputs: []correlate.Input{{From: "encode", At: unknown, Hop: -1}}, Arrival: unknown, Ready: unknown, Start: unknown, Finish: unknown, Departure: seen(30_000_000), Identity: correlate.IdentityUnknown, Activation: -1}},
		Hops:   []correlate.Hop{{From: "encode", To: "join", FromTGID: 11, ToTGID: 13, Type: "data_ready", Via: "unix+shm", Send: unknown, Recv: seen(1_200_000), Identity: correlate.IdentityUnknown, Reason: "sent before recording began"}},
		Notes:  []string{"in flight at attach"},
	}}
	res.Activations = []correlate.Activation{{Stage: "encode", TGID: 11, Start: res.Requests[0].Visits[0].Start, Finish: res.Requests[0].Visits[0].Finish, Members: [][2]int{{0, 0}}, Identity: correlate.IdentityOrdered}}
	first := &res.Requests[0]
	first.FromEntry = correlate.NewFromEntry(first.Client, first.Entry)
	sum := diagnose.Summarise(res)
	cost := &run.Overhead{FromNS: 1_000_000, ToNS: 2_001_000_000, CountedNS: 200_000_000, KeepingNS: 45.5, DrainCPUNS: 3_000_000, RecordingCPUNS: ptr(int64(9_000_000)), AttachCPUNS: ptr(int64(180_000_000)), EndCPUNS: ptr(int64(25_000_000)), ProcessCPUNS: 214_000_000, SharesProcess: true,
		TargetCPUNS: 500_000_000, Targets: 4, TargetsEnded: 1,
		Programs: []run.ProgramCost{{Name: "sl_sys_enter", Runs: 1000, RunNS: 100_000}, {Name: "sl_sys_exit", Runs: 1001, RunNS: 150_000}, {Name: "sl_proc_exec"}}}
	return &Report{
		Meta:   &run.Metadata{Overhead: cost, Schema: run.SchemaVersion, RunID: "20260101T000000Z-0001", Tool: run.Tool{Name: "stageline", Version: "v0.0.0"}, Host: run.Host{Name: "h", Kernel: "6.1.0", CPUs: 2}},
		Result: res, Summary: sum, Verdict: diagnose.Judge(res, sum),
	}
}

// busy has enough requests for a verdict and percentiles.
func busy() *Report {
	r := sample()
	one := r.Result.Requests[0]
	r.Result.Loss, r.Result.Notes = nil, nil
	r.Result.Requests, r.Result.Activations = nil, nil
	for i := range int64(100) {
		q := one
		at := i * 100_000_000
		wait := (i % 10 / 9) * 80_000_000
		q.ID = fmt.Sprintf("r-%03d", i)
		c := *one.Client
		c.SentNS, c.FirstNS, c.EndNS = ptr(at), ptr(at+25_000_000+wait), ptr(at+30_000_000+wait)
		q.Entry, q.JCTUS, q.Residual = seen(at+200_000), ptr(29_700+float64(wait)/1e3), ptr(float64(i))
		q.Reply, q.Exit = seen(at+24_900_000+wait), seen(at+29_900_000+wait)
		q.Client = &c
		q.FromEntry = correlate.NewFromEntry(&c, q.Entry)
		q.Visits = []correlate.Visit{{Stage: "join", TGID: 12, Ready: seen(at + 1_000_000), Start: seen(at + 1_000_000 + wait), Finish: seen(at + 29_000_000 + wait), Departure: seen(at + 29_100_000 + wait), Identity: correlate.IdentityExact, Activation: -1}}
		q.Hops = nil
		r.Result.Requests = append(r.Result.Requests, q)
	}
	r.Summary = diagnose.Summarise(r.Result)
	r.Verdict = diagnose.Judge(r.Result, r.Summary)
	return r
}

func text(t *testing.T, r *Report, detail ...bool) []byte {
	var b bytes.Buffer
	if err := Text(&b, r, TextOptions{Requests: 3, Detail: len(detail) > 0}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTextGolden(t *testing.T)     { golden(t, "partial.txt", text(t, sample())) }
func TestTextBusyGolden(t *testing.T) { golden(t, "busy.txt", text(t, busy())) }
func TestTextDetailGolden(t *testing.T) {
	golden(t, "detail.txt", text(t, sample(), true))
}

func TestJSONGolden(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, sample()); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b.Bytes()) {
		t.Fatal("not JSON")
	}
	golden(t, "partial.json", b.Bytes())
}

func TestTextIsNarrowAndPlain(t *testing.T) {
	for _, line := range strings.Split(string(text(t, sample(), true))+string(text(t, busy())), "\n") {
		if n := utf8.RuneCountInString(line); n > 115 {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.ContainsRune(line, 0x1b) {
			t.Errorf("escape sequence in %q", line)
		}
	}
}

// Whatever a run holds in its texts, the report has no control character but its own ends of lines, and
// no line that a name made up.
func TestTextOfHostileRunIsPlain(t *testing.T) {
	const evil = "\x1b[2J\u009b1m\u202e\nVERDICT  none\r"
	r := sample()
	r.Result.Loss = append(r.Result.Loss, correlate.LossEntry{Severity: evil, Reason: evil, What: evil, Meaning: evil})
	r.Meta.RunID, r.Meta.Host.Name = evil, evil
	for i := range r.Summary.Edges {
		r.Summary.Edges[i].Transport, r.Summary.Edges[i].Path = evil, evil
	}
	r.Verdict.Where, r.Verdict.Reason = evil, evil
	out := string(text(t, r, true))
	if n := strings.Count(out, "\nVERDICT"); n != 1 {
		t.Errorf("%d verdicts", n)
	}
	if i := strings.IndexFunc(out, func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
		t.Errorf("not plain: %q", out[max(0, i-30):min(len(out), i+30)])
	}
}

// A rune that comes in parts is one, and what is none does not pass.
func TestPlainTakesAnyParts(t *testing.T) {
	const in, want = "a→b\x1b[31m\u009b\t世\n\xff\xe4z", "a→b?[31m?\t世\n??z"
	for size := 1; size <= len(in); size++ {
		var b strings.Builder
		w := Plain(&b)
		for rest := in; rest != ""; rest = rest[min(size, len(rest)):] {
			part := rest[:min(size, len(rest))]
			if n, err := io.WriteString(w, part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if b.String() != want {
			t.Errorf("by %d bytes: %q, want %q", size, b.String(), want)
		}
	}
}

func TestTextOpensWithLoss(t *testing.T) {
	out := string(text(t, sample()))
	loss, verdict := strings.Index(out, "LOSS LEDGER"), strings.Index(out, "VERDICT")
	if loss < 0 || loss > verdict {
		t.Fatalf("loss ledger at %d, verdict at %d", loss, verdict)
	}
	if strings.Contains(string(text(t, busy())), "LOSS LEDGER") {
		t.Fatal("an empty ledger is printed")
	}
}

func TestReadDocumentRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, sample()); err != nil {
		t.Fatal(err)
	}
	first := b.String()
	d, err := ReadDocument(strings.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	if want := NewDocument(sample()); !reflect.DeepEqual(d.Requests[0].Visits, want.Requests[0].Visits) || d.Stages[2].TGIDs[1] != 13 || d.Channels[1].Why != "TLS" {
		t.Fatalf("read back %+v", d)
	}
	_, err = ReadDocument(strings.NewReader(strings.Replace(first, JSONSchema, "stageline.report/2", 1)))
	if err == nil || !strings.Contains(err.Error(), "stageline.report/2") {
		t.Fatalf("another schema: %v", err)
	}
}
