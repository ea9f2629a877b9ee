package drain_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/drain"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/collector/wire"
)

// memory is a sink that keeps everything.
type memory struct {
	eps   map[uint32]run.Endpoint
	io    []run.IO
	msg   []run.Message
	gap   []run.Gap
	base  []run.Base
	shm   []run.Shm
	off   []run.OffCPU
	proc  []run.Proc
	net   []run.Net
	loss  []run.Loss
	notes []run.Note
}

func (m *memory) Endpoint(e *run.Endpoint) { m.eps[e.ID] = *e }
func (m *memory) IO(r *run.IO)             { m.io = append(m.io, *r) }
func (m *memory) Message(r *run.Message)   { m.msg = append(m.msg, *r) }
func (m *memory) Gap(r *run.Gap)           { m.gap = append(m.gap, *r) }
func (m *memory) Base(r *run.Base)         { m.base = append(m.base, *r) }
func (m *memory) Shm(r *run.Shm)           { m.shm = append(m.shm, *r) }
func (m *memory) OffCPU(r *run.OffCPU)     { m.off = append(m.off, *r) }
func (m *memory) Proc(r *run.Proc)         { m.proc = append(m.proc, *r) }
func (m *memory) Net(r *run.Net)           { m.net = append(m.net, *r) }
func (m *memory) Loss(r *run.Loss)         { m.loss = append(m.loss, *r) }
func (m *memory) Note(r *run.Note)         { m.notes = append(m.notes, *r) }

// The calls of the child, in numbers that are no accident.
const (
	unixMessages = 23
	pipeMessages = 17
	tcpMessages  = 13
	shmSegments  = 7
	eventWrites  = 11
	waits        = 19
)

// child runs in a process of its own: it waits for a line, acts, and waits for the end of its
// standard input, so that everything happens while the probes are on.
func child() {
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	in.ReadString('\n')
	act()
	fmt.Println("done")
	in.ReadString('\n')
}

func TestMain(m *testing.M) {
	switch os.Getenv("STAGELINE_DRAIN_CHILD") {
	case "":
	case "attach":
		attached()
		return
	case "edges":
		edges()
		return
	default:
		child()
		return
	}
	os.Exit(m.Run())
}

// attachedHere keeps the programs of attached: the garbage collector closes what nothing refers to.
var attachedHere *attach.Programs

// attached loads the programs and waits to be killed.
func attached() {
	var err error
	if attachedHere, err = attach.Load(attach.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("attached")
	for { // select {} would be a deadlock, and the end, without cgo
		time.Sleep(time.Hour)
	}
}

func act() {
	dir, _ := os.MkdirTemp("", "sl")
	defer os.RemoveAll(dir)
	l, _ := net.Listen("unix", filepath.Join(dir, "stage_x.sock"))
	c, _ := net.Dial("unix", l.Addr().String())
	s, _ := l.Accept()
	talk(c, s, unixMessages, 301)
	t, _ := net.Listen("tcp", "127.0.0.1:0")
	tc, _ := net.Dial("tcp", t.Addr().String())
	ts, _ := t.Accept()
	talk(tc, ts, tcpMessages, 503)
	pr, pw, _ := os.Pipe()
	for i := range pipeMessages {
		fmt.Fprintf(pw, "%0*d", 101, i)
		pr.Read(make([]byte, 200))
	}
	for i := range shmSegments {
		name := fmt.Sprintf("/dev/shm/sl-drain-%d-%d", os.Getpid(), i)
		shmOnce(name, 4096*(i+1))
	}
	eventOnce(eventWrites)
	for range waits {
		time.Sleep(2 * time.Millisecond)
	}
}

func talk(a, b net.Conn, n, size int) {
	buf := make([]byte, size)
	for i := range n {
		fmt.Fprintf(a, "%0*d", size, i)
		for got := 0; got < size; {
			k, err := b.Read(buf[got:])
			if err != nil {
				return
			}
			got += k
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs into the running kernel")
	}
}

type recording struct {
	progs *attach.Programs
	d     *drain.Drain
	sink  *memory
	stop  func() drain.Stats
}

func record(t *testing.T, o attach.Options, pid uint32) *recording {
	t.Helper()
	progs, err := attach.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { progs.Close() })
	sink := &memory{eps: map[uint32]run.Endpoint{}}
	m := &progs.Objs
	d, err := drain.New(drain.Config{Maps: drain.Maps{Events: m.SlEvents, Losses: m.SlLosses, Sent: m.SlSent, Capture: m.SlCapture, Streams: m.SlStreams, CaptureGen: m.SlCaptureGen, Lost: m.SlLost},
		Sink: sink, Rules: &wire.Rules{Name: "test/0"}, IDs: wire.NewIDSet(), Misses: progs.Misses})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := progs.Watch([]uint32{pid}, true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return &recording{progs: progs, d: d, sink: sink, stop: func() drain.Stats {
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := progs.Detach(); err != nil {
			t.Fatal(err)
		}
		st, err := d.Finish()
		if err != nil {
			t.Fatal(err)
		}
		return st
	}}
}

func startChild(t *testing.T) (pid uint32, step func(), end func()) {
	t.Helper()
	return startChildAs(t, "1")
}

func startChildAs(t *testing.T, what string) (pid uint32, step func(), end func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "STAGELINE_DRAIN_CHILD="+what)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	rd := bufio.NewReader(out)
	rd.ReadString('\n')
	return uint32(cmd.Process.Pid), func() { fmt.Fprintln(in); rd.ReadString('\n') }, func() { in.Close(); cmd.Wait() }
}

func TestLiveCounts(t *testing.T) {
	needRoot(t)
	pid, step, end := startChild(t)
	r := record(t, attach.Options{}, pid)
	step()
	end()
	st := r.stop()
	m := r.sink
	count := map[string]int{}
	bytes := map[string]int64{}
	for _, x := range m.io {
		if x.TGID != pid {
			t.Errorf("io of %d, which is no target", x.TGID)
		}
		if x.Ret <= 0 {
			continue
		}
		if x.EnterNS == 0 || x.ExitNS < x.EnterNS {
			if x.EnterNS != 0 {
				t.Errorf("call left before it entered: %+v", x)
			}
		}
		k := fmt.Sprintf("%s %s", m.eps[x.EP].Transport, x.Dir)
		count[k]++
		bytes[k] += x.Ret
	}
	want := map[string]int64{"unix send": unixMessages * 301, "unix recv": unixMessages * 301, "tcp send": tcpMessages * 503, "tcp recv": tcpMessages * 503}
	for k, n := range want {
		if bytes[k] != n {
			t.Errorf("%s: %d bytes, want %d", k, bytes[k], n)
		}
	}
	if count["unix send"] != unixMessages || count["tcp send"] != tcpMessages {
		t.Errorf("sends: %v", count)
	}
	var made, unmapped, unlinked int
	for _, x := range m.shm {
		if !strings.HasPrefix(x.Name, fmt.Sprintf("sl-drain-%d-", pid)) && x.Op != run.ShmUnmap {
			continue
		}
		switch x.Op {
		case run.ShmMap:
			made++
		case run.ShmUnmap:
			unmapped++
		case run.ShmUnlink:
			unlinked++
		}
	}
	if made != shmSegments || unmapped != shmSegments || unlinked != shmSegments {
		t.Errorf("shm: mapped %d unmapped %d unlinked %d, want %d each", made, unmapped, unlinked, shmSegments)
	}
	if count["eventfd send"] < eventWrites {
		t.Errorf("eventfd writes %d, want at least %d", count["eventfd send"], eventWrites)
	}
	if len(m.off) < waits {
		t.Errorf("%d off-CPU intervals, want at least %d", len(m.off), waits)
	}
	for _, x := range m.off {
		if x.InNS < x.OutNS || (x.WakeNS != 0 && (x.WakeNS < x.OutNS || x.WakeNS > x.InNS)) {
			t.Errorf("off-CPU interval out of order: %+v", x)
		}
	}
	if n := r.d.Sent(); n != st.Records || len(m.loss) > 0 {
		t.Errorf("sent %d, received %d, losses %v", n, st.Records, m.loss)
	}
	pairs := 0
	for _, e := range m.eps {
		for _, f := range m.eps {
			if e.Transport == run.TransportUnix && e.PeerInode == f.Inode && e.PeerInode != 0 {
				pairs++
			}
		}
	}
	if pairs < 1 {
		t.Errorf("no unix pair: %+v", m.eps)
	}
	t.Logf("%d records: %v io, %d shm, %d offcpu, %d proc, %d net, bases %v", st.Records, count, len(m.shm), len(m.off), len(m.proc), len(m.net), m.base)
}

// A ring far too small loses records; every one of them is counted.
func TestLiveRingFull(t *testing.T) {
	needRoot(t)
	pid, step, end := startChild(t)
	r := record(t, attach.Options{RingBytes: 4096}, pid)
	step()
	end()
	st := r.stop()
	var lost uint64
	for _, l := range r.sink.loss {
		if l.Reason == "ring-full" {
			lost += l.N
		}
		if l.ToNS < l.FromNS {
			t.Errorf("loss without a time range: %+v", l)
		}
	}
	if lost == 0 {
		t.Fatal("a ring of 4096 bytes lost nothing: the test does not test")
	}
	if sent := r.d.Sent(); sent != st.Records+lost {
		t.Errorf("sent %d != received %d + lost %d", sent, st.Records, lost)
	}
}

func TestLiveDebugDrop(t *testing.T) {
	needRoot(t)
	pid, step, end := startChild(t)
	r := record(t, attach.Options{DebugDropPermill: 300}, pid)
	step()
	end()
	st := r.stop()
	var lost uint64
	for _, l := range r.sink.loss {
		lost += l.N
	}
	if sent := r.d.Sent(); sent != st.Records+lost || lost*10 < sent {
		t.Errorf("sent %d, received %d, lost %d, want about 30 %% lost and none uncounted", sent, st.Records, lost)
	}
}
