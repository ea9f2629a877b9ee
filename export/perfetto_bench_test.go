package export

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/diagnose"
)

var keep = flag.String("timeline", "", "TestPerfettoLarge: file to keep the timeline of 5000 requests in")

// pipeline is a chain of stages with a fork, a join, a stage that streams tokens to the entry and one
// that fires once a chunk, at a steady rate: 12 visits and 28 hops a request.
func pipeline(n int) *Report {
	res := &correlate.Result{FromNS: 1e9, ToNS: 1e9 + int64(n)*20e6 + 1e9}
	for i, name := range []string{"api", "front", "pixels", "ears", "join", "llm", "talker", "wave"} {
		res.Stages = append(res.Stages, correlate.Stage{Name: name, Rule: "bound socket path", TGIDs: []uint32{uint32(100 + i)}, Entry: i == 0})
	}
	series := map[string]*diagnose.StageSeries{}
	for i := range res.Stages {
		series[res.Stages[i].Name] = &diagnose.StageSeries{Stage: res.Stages[i].Name}
	}
	for i := range n {
		q := pipelineRequest(i)
		for v := range q.Visits {
			s := series[q.Visits[v].Stage]
			s.Points = append(s.Points, diagnose.SeriesPoint{NS: *q.Visits[v].Ready.NS, Queue: 1, OldestNS: q.Visits[v].Ready.NS}, diagnose.SeriesPoint{NS: *q.Visits[v].Start.NS, Active: 1})
		}
		res.Requests = append(res.Requests, q)
	}
	r := &Report{Meta: &run.Metadata{RunID: "run-1"}, Result: res, Summary: diagnose.Summarise(res), Verdict: diagnose.Verdict{Kind: diagnose.KindInconclusive}}
	for i := range res.Stages {
		r.Series = append(r.Series, *series[res.Stages[i].Name])
	}
	return r
}

type pipelineMaker struct {
	q  correlate.RequestTimeline
	at int64
}

// send adds a hop and makes it an output of from and an input of to.
func (m *pipelineMaker) send(from, to int, send int64) {
	f, t := &m.q.Visits[from], &m.q.Visits[to]
	h := hop(f.Stage, t.Stage, m.at+send, m.at+send+40_000)
	h.Type, h.Bytes = "data", ptr(send%4096)
	f.Outputs = append(f.Outputs, len(m.q.Hops))
	t.Inputs = append(t.Inputs, correlate.Input{From: f.Stage, Hop: len(m.q.Hops), At: h.Recv, Chunk: t.Chunk})
	m.q.Hops = append(m.q.Hops, h)
}

func (m *pipelineMaker) visit(stage string, arrival, ready, start, finish, departure int64) {
	v := visit(stage, m.at+arrival, m.at+ready, m.at+start, m.at+finish, m.at+departure)
	for _, p := range []*correlate.Point{&v.Ready, &v.Start, &v.Finish} {
		lo, hi := *p.NS-30_000, *p.NS+70_000
		p.LoNS, p.HiNS, p.Rule = &lo, &hi, "compute woken"
	}
	v.Arrival, v.Departure = seen(*v.Arrival.NS), seen(*v.Departure.NS)
	m.q.Visits = append(m.q.Visits, v)
}

func pipelineRequest(i int) correlate.RequestTimeline {
	const us = 1000
	m := &pipelineMaker{at: 1e9 + int64(i)*20e6}
	m.visit("api", 0, 0, 0, 100*us, 100*us)
	m.visit("front", 140*us, 180*us, 400*us, 5000*us, 5100*us)
	m.visit("pixels", 5140*us, 5150*us, 5200*us, 11000*us, 11100*us)
	m.visit("ears", 5140*us, 5150*us, 5200*us, 15000*us, 15100*us)
	m.visit("join", 11140*us, 15140*us, 15150*us, 17000*us, 17100*us)
	m.visit("llm", 17140*us, 17150*us, 18000*us, 80000*us, 80100*us)
	m.visit("api", 20040*us, 150140*us, 150140*us, 150200*us, 150200*us)
	m.visit("talker", 80140*us, 80150*us, 80200*us, 97000*us, 97100*us)
	for c := range int64(4) {
		m.visit("wave", (84040+4000*c)*us, (84100+4000*c)*us, (84100+16000*c)*us, (100000+16000*c)*us, (102100+16000*c)*us)
		m.q.Visits[8+c].Chunk = &c
	}
	m.send(0, 1, 100*us)
	m.send(1, 2, 5100*us)
	m.send(1, 3, 5100*us)
	m.send(2, 4, 11100*us)
	m.send(3, 4, 15100*us)
	m.send(4, 5, 17100*us)
	for token := range int64(13) {
		m.send(5, 6, (20000+4500*token)*us)
	}
	m.send(5, 7, 80100*us)
	for c := range 4 {
		m.send(7, 8+c, int64(84000+4000*c)*us)
		m.send(8+c, 6, int64(102100+16000*c)*us)
	}
	q := m.q
	q.ID, q.Source, q.State = fmt.Sprintf("sl-%06d", i), "loadgen", run.StateSuccess
	q.Entry, q.Reply, q.Exit = seen(m.at), seen(m.at+50*us), seen(m.at+150200*us)
	q.Client = &run.Request{ID: q.ID, State: q.State, Status: 200, SentNS: ptr(m.at - 50*us), WrittenNS: ptr(m.at - 20*us), FirstByteNS: ptr(m.at + 20100*us), EndNS: ptr(m.at + 150300*us)}
	for token := range int64(13) {
		q.Client.Events = append(q.Client.Events, run.ReplyEvent{MonoNS: m.at + (20100+4500*token)*us, Kind: "content", Bytes: 6})
	}
	return q
}

// benchReport is the report of the run that STAGELINE_BENCH_RUN names, else one made up.
func benchReport(b *testing.B) *Report {
	dir := os.Getenv("STAGELINE_BENCH_RUN")
	if dir == "" {
		return pipeline(1000)
	}
	r, err := run.Open(dir, run.OpenOptions{SkipHashes: true})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	t := correlate.New(correlate.Options{})
	if err := r.Requests(func(q *run.Request) error { t.Request(q); return nil }); err != nil {
		b.Fatal(err)
	}
	if err := r.Replay(t); err != nil {
		b.Fatal(err)
	}
	res := t.Finish()
	sum := diagnose.Summarise(res)
	return &Report{Meta: &r.Meta, Result: res, Summary: sum, Verdict: diagnose.Judge(res, sum)}
}

// BenchmarkPerfetto draws a whole timeline. A slice here is one with a duration or an instant; what
// counters, tracks and strings take is shared among them.
func BenchmarkPerfetto(b *testing.B) {
	r := benchReport(b)
	b.ReportAllocs()
	var stats PerfettoStats
	for b.Loop() {
		var err error
		if stats, err = Perfetto(io.Discard, r, PerfettoOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	spent := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	n := float64(stats.Slices + stats.Instants)
	b.ReportMetric(spent/n, "ns/slice")
	b.ReportMetric(spent/(n+float64(stats.Slices+stats.Counters)), "ns/event")
	b.ReportMetric(float64(stats.Bytes)/n, "bytes/slice")
}

// BenchmarkPerfettoSlice is one annotated slice, without the layout of a request around it.
func BenchmarkPerfettoSlice(b *testing.B) {
	w, g := newPacketWriter(io.Discard), &grades{}
	v := pipelineRequest(0).Visits[5]
	b.ReportAllocs()
	for b.Loop() {
		oneSlice(w, g, &v)
	}
	b.ReportMetric(float64(w.stats.Bytes)/float64(w.stats.Slices), "bytes/slice")
}

func oneSlice(w *packetWriter, g *grades, v *correlate.Visit) {
	w.begin(1000, *v.Start.NS, w.name("service"))
	w.notePoint(g, noteBegin, &v.Start)
	w.notePoint(g, noteEnd, &v.Finish)
	w.emit()
	w.end(1000, *v.Finish.NS)
}

func TestPerfettoSliceAllocatesNothing(t *testing.T) {
	w, g := newPacketWriter(io.Discard), &grades{}
	v := pipelineRequest(0).Visits[5]
	oneSlice(w, g, &v)
	if n := testing.AllocsPerRun(100, func() { oneSlice(w, g, &v) }); n != 0 {
		t.Fatalf("%g allocations a slice", n)
	}
}

// TestPerfettoLarge bounds what 5000 requests cost in the file; --timeline FILE keeps it, to see how
// long Perfetto takes to load it.
func TestPerfettoLarge(t *testing.T) {
	if *keep == "" {
		t.Skip("only with -timeline FILE")
	}
	f, err := os.Create(*keep)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stats, err := Perfetto(f, pipeline(5000), PerfettoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v: %.1f bytes a slice or instant", stats, float64(stats.Bytes)/float64(stats.Slices+stats.Instants))
}
