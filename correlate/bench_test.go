package correlate

import (
	"fmt"
	"os"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// records keeps records in memory.
type records struct {
	all      []func(run.Sink)
	requests []*run.Request
}

func keep[T any](k *records, r T, to func(run.Sink, *T)) {
	k.all = append(k.all, func(s run.Sink) { to(s, &r) })
}

func (k *records) Endpoint(r *run.Endpoint) { keep(k, *r, run.Sink.Endpoint) }
func (k *records) IO(r *run.IO)             { keep(k, *r, run.Sink.IO) }
func (k *records) Message(r *run.Message)   { keep(k, *r, run.Sink.Message) }
func (k *records) Gap(r *run.Gap)           { keep(k, *r, run.Sink.Gap) }
func (k *records) Base(r *run.Base)         { keep(k, *r, run.Sink.Base) }
func (k *records) Shm(r *run.Shm)           { keep(k, *r, run.Sink.Shm) }
func (k *records) OffCPU(r *run.OffCPU)     { keep(k, *r, run.Sink.OffCPU) }
func (k *records) Proc(r *run.Proc)         { keep(k, *r, run.Sink.Proc) }
func (k *records) Net(r *run.Net)           { keep(k, *r, run.Sink.Net) }
func (k *records) Loss(r *run.Loss)         { keep(k, *r, run.Sink.Loss) }
func (k *records) Note(r *run.Note)         { keep(k, *r, run.Sink.Note) }

// Names of the stages of the made-up recording below.
const benchStages = 4

// made is a recording of n requests through a chain of stages over unix sockets, each with a loop
// that sleeps in epoll, receives, works and sends, some hundred microseconds apart.
func made(n int) *records {
	k := &records{}
	for s := range uint32(benchStages) {
		k.Proc(&run.Proc{AtNS: 1e9, Event: run.ProcSeen, TGID: 100 + s, TID: 100 + s, Comm: fmt.Sprint("stage", s)})
		if s > 0 { // 10s is the sender's end at s-1, 10s+1 the receiver's at s
			k.Endpoint(&run.Endpoint{ID: 10 * s, Transport: run.TransportUnix, Inode: uint64(1000 * s), PeerInode: uint64(1000*s + 1), FirstNS: 1e9})
			k.Endpoint(&run.Endpoint{ID: 10*s + 1, Transport: run.TransportUnix, Inode: uint64(1000*s + 1), PeerInode: uint64(1000 * s), FirstNS: 1e9})
		}
	}
	k.Endpoint(&run.Endpoint{ID: 1, Transport: run.TransportTCP, Local: "127.0.0.1:80", Remote: "127.0.0.1:9", FirstNS: 1e9})
	var pos [100][3]uint64
	at := int64(2e9)
	move := func(ep, tgid uint32, d run.Dir, ns int64, m run.Message) {
		const size = 200
		p := &pos[ep][d]
		k.IO(&run.IO{EnterNS: ns, ExitNS: ns + 5e3, TGID: tgid, TID: tgid, EP: ep, Dir: d, Ret: size, Pos: *p, Captured: size, Queued: -1})
		m.EP, m.Dir, m.Pos, m.End, m.Bytes = ep, d, *p, *p+size, size
		m.FirstEnterNS, m.FirstExitNS, m.LastEnterNS, m.LastExitNS = ns, ns+5e3, ns, ns+5e3
		m.TGID, m.TID, m.Chunk = tgid, tgid, -1
		k.Message(&m)
		*p += size
	}
	for r := range n {
		ids := []run.IDRef{{Field: "request_id", Value: fmt.Sprintf("sl-%08x-%06d", 0xbe9c0000+r>>16, r)}}
		move(1, 100, run.Recv, at, run.Message{Proto: "http1", Type: "POST /v1", Exchange: uint32(r + 1), IDs: ids, Flags: run.MsgFirst | run.MsgLast})
		for s := uint32(1); s < benchStages; s++ {
			move(10*s, 99+s, run.Send, at+50e3, run.Message{Proto: "zmtp", Type: "add", IDs: ids})
			k.OffCPU(&run.OffCPU{OutNS: at - 100e3, WakeNS: at + 53e3, InNS: at + 60e3, TGID: 100 + s, TID: 100 + s, State: run.OffSleep, WakerTGID: 99 + s, WakerTID: 99 + s, Call: callEpollWait})
			move(10*s+1, 100+s, run.Recv, at+62e3, run.Message{Proto: "zmtp", Type: "add", IDs: ids})
			for w := range int64(3) {
				k.OffCPU(&run.OffCPU{OutNS: at + 70e3 + w*9e3, InNS: at + 74e3 + w*9e3, TGID: 100 + s, TID: 100 + s, State: run.OffPreempted, Call: -1})
			}
			at += 100e3
		}
		move(1, 100, run.Send, at, run.Message{Proto: "http1", Type: "200", Status: 200, Exchange: uint32(r + 1), Flags: run.MsgFirst | run.MsgLast})
		at += 50e3
	}
	return k
}

// benchRecording is the run that STAGELINE_BENCH_RUN names, else one made up.
func benchRecording(b *testing.B) *records {
	dir := os.Getenv("STAGELINE_BENCH_RUN")
	if dir == "" {
		return made(5000)
	}
	r, err := run.Open(dir, run.OpenOptions{SkipHashes: true})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	k := &records{}
	if err := r.Replay(k); err != nil {
		b.Fatal(err)
	}
	if err := r.Requests(func(q *run.Request) error { k.requests = append(k.requests, q); return nil }); err != nil {
		b.Fatal(err)
	}
	return k
}

// From records in memory to the finished timeline.
func BenchmarkTimeline(b *testing.B) {
	k := benchRecording(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		t := New(Options{})
		for _, q := range k.requests {
			t.Request(q)
		}
		for _, put := range k.all {
			put(t)
		}
		n = len(t.Finish().Requests)
	}
	if n == 0 {
		b.Fatal("no request was found")
	}
	b.ReportMetric(float64(len(k.all))*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
