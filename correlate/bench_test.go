package correlate

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
)

// records keeps records in memory, each kind in a list of its own: pointers into a million records
// would make the garbage collector part of what is measured.
type records struct {
	order     []func(*records, run.Sink)
	at        [11]int // next of each list
	endpoints []run.Endpoint
	ios       []run.IO
	messages  []run.Message
	gaps      []run.Gap
	bases     []run.Base
	shms      []run.Shm
	offCPUs   []run.OffCPU
	procs     []run.Proc
	nets      []run.Net
	losss     []run.Loss
	notes     []run.Note
}

func next[T any](k *records, n int, list []T) *T {
	k.at[n]++
	return &list[k.at[n]-1]
}

func (k *records) Endpoint(r *run.Endpoint) {
	k.endpoints = append(k.endpoints, *r)
	k.order = append(k.order, putEndpoint)
}
func (k *records) IO(r *run.IO) { k.ios = append(k.ios, *r); k.order = append(k.order, putIO) }
func (k *records) Message(r *run.Message) {
	k.messages = append(k.messages, *r)
	k.order = append(k.order, putMessage)
}
func (k *records) Gap(r *run.Gap) { k.gaps = append(k.gaps, *r); k.order = append(k.order, putGap) }
func (k *records) Base(r *run.Base) {
	k.bases = append(k.bases, *r)
	k.order = append(k.order, putBase)
}
func (k *records) Shm(r *run.Shm) { k.shms = append(k.shms, *r); k.order = append(k.order, putShm) }
func (k *records) OffCPU(r *run.OffCPU) {
	k.offCPUs = append(k.offCPUs, *r)
	k.order = append(k.order, putOffCPU)
}
func (k *records) Proc(r *run.Proc) {
	k.procs = append(k.procs, *r)
	k.order = append(k.order, putProc)
}
func (k *records) Net(r *run.Net) { k.nets = append(k.nets, *r); k.order = append(k.order, putNet) }
func (k *records) Loss(r *run.Loss) {
	k.losss = append(k.losss, *r)
	k.order = append(k.order, putLoss)
}
func (k *records) Note(r *run.Note) {
	k.notes = append(k.notes, *r)
	k.order = append(k.order, putNote)
}

func putEndpoint(k *records, s run.Sink) { s.Endpoint(next(k, 0, k.endpoints)) }
func putIO(k *records, s run.Sink)       { s.IO(next(k, 1, k.ios)) }
func putMessage(k *records, s run.Sink)  { s.Message(next(k, 2, k.messages)) }
func putGap(k *records, s run.Sink)      { s.Gap(next(k, 3, k.gaps)) }
func putBase(k *records, s run.Sink)     { s.Base(next(k, 4, k.bases)) }
func putShm(k *records, s run.Sink)      { s.Shm(next(k, 5, k.shms)) }
func putOffCPU(k *records, s run.Sink)   { s.OffCPU(next(k, 6, k.offCPUs)) }
func putProc(k *records, s run.Sink)     { s.Proc(next(k, 7, k.procs)) }
func putNet(k *records, s run.Sink)      { s.Net(next(k, 8, k.nets)) }
func putLoss(k *records, s run.Sink)     { s.Loss(next(k, 9, k.losss)) }
func putNote(k *records, s run.Sink)     { s.Note(next(k, 10, k.notes)) }

func (k *records) replay(s run.Sink) {
	k.at = [11]int{}
	for _, put := range k.order {
		put(k, s)
	}
}

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

// benchRun is the sealed run that STAGELINE_BENCH_RUN names, else one made up.
func benchRun(b *testing.B) *run.Run {
	dir := os.Getenv("STAGELINE_BENCH_RUN")
	if dir == "" {
		dir = filepath.Join(b.TempDir(), "run")
		w, err := run.Create(dir, run.Metadata{})
		if err != nil {
			b.Fatal(err)
		}
		made(5000).replay(w)
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		if _, err := run.Seal(dir); err != nil {
			b.Fatal(err)
		}
	}
	r, err := run.Open(dir, run.OpenOptions{SkipHashes: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close() })
	return r
}

// cpu is the CPU time of the process: on a machine with other work it says more than the clock.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchTimeline builds timelines of all that replay passes on.
func benchTimeline(b *testing.B, r *run.Run, replay func(run.Sink) error) {
	var requests []*run.Request
	if err := r.Requests(func(q *run.Request) error { requests = append(requests, q); return nil }); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var records uint64
	from := cpu()
	for b.Loop() {
		t := New(Options{})
		for _, q := range requests {
			t.Request(q)
		}
		if err := replay(t); err != nil {
			b.Fatal(err)
		}
		res := t.Finish()
		if len(res.Requests) == 0 {
			b.Fatal("no request was found")
		}
		records = res.Counts.Records
	}
	all := float64(records) * float64(b.N)
	b.ReportMetric(all/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(all/(cpu()-from).Seconds(), "records/cpu-s")
}

// From records in memory to the finished timeline.
func BenchmarkTimeline(b *testing.B) {
	r, k := benchRun(b), &records{}
	if err := r.Replay(k); err != nil {
		b.Fatal(err)
	}
	benchTimeline(b, r, func(s run.Sink) error { k.replay(s); return nil })
}

// From the sealed run to the finished timeline.
func BenchmarkTimelineFromRun(b *testing.B) {
	r := benchRun(b)
	benchTimeline(b, r, r.Replay)
}
