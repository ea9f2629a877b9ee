package drain

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/bpf"
	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/collector/wire"
)

// ownDrain records this process and its children, driven by the test.
func ownDrain(t *testing.T) *Drain { return ownDrainOf(t, 0) }

func ownDrainOf(t *testing.T, ringBytes uint32) *Drain {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs into the running kernel")
	}
	progs, err := attach.Load(attach.Options{RingBytes: ringBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { progs.Close() })
	o := &progs.Objs
	d, err := New(Config{Maps: Maps{Events: o.SlEvents, Losses: o.SlLosses, Sent: o.SlSent, Capture: o.SlCapture, Streams: o.SlStreams, CaptureGen: o.SlCaptureGen, Lost: o.SlLost},
		Sink: nothing{}, Rules: &wire.Rules{Name: "test/0"}, IDs: wire.NewIDSet()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := progs.Watch([]uint32{uint32(os.Getpid())}, false); err != nil {
		t.Fatal(err)
	}
	return d
}

// find is what the drain keeps of an object, nil nothing.
func (d *Drain) find(ino uint64) *endpoint {
	for k, e := range d.eps {
		if k.Ino == ino {
			return e
		}
	}
	return nil
}

// What a target closes without a word is let go after a silence; what it holds stays, however long
// it is silent.
func TestClosedAreForgotten(t *testing.T) {
	d := ownDrain(t)
	var inos [2]uint64 // of a socket that is closed, and of one that is kept
	var kept [2]int
	for i := range inos {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		for _, err := range []error{unix.Fstat(p[0], &st), second(unix.Write(p[0], []byte("word"))), d.empty()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		inos[i], kept = st.Ino, p
		if i == 0 {
			unix.Close(p[0])
			unix.Close(p[1])
		}
	}
	defer unix.Close(kept[0])
	defer unix.Close(kept[1])
	last := d.find(inos[1]).lastNS
	d.housekeeping(last + closedAfter/2)
	if d.find(inos[0]) == nil {
		t.Error("a closed endpoint was let go before records that come late")
	}
	d.housekeeping(last + 2*closedAfter)
	if e := d.find(inos[0]); e != nil {
		t.Errorf("a closed endpoint is kept: %+v", e.info)
	}
	d.housekeeping(last + 2*halfAfter)
	if d.find(inos[1]) == nil {
		t.Error("an endpoint was let go that its process holds")
	}
}

func TestHolds(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[1])
	var st unix.Stat_t
	if err := unix.Fstat(p[0], &st); err != nil {
		t.Fatal(err)
	}
	me := uint32(os.Getpid())
	pipe := keyOf(run.TransportPipe, st.Ino)
	if !holds(holder{me, int32(p[0])}, pipe) || holds(holder{me, int32(fd)}, pipe) {
		t.Error("a pipe is not told from an eventfd")
	}
	unix.Close(p[0])
	if holds(holder{me, int32(p[0])}, pipe) || holds(holder{1 << 30, 0}, pipe) {
		t.Error("a closed pipe, or one of no process, is held")
	}
	if holds(holder{me, int32(fd)}, keyOf(run.TransportEventFD, 1<<40)) {
		t.Error("an eventfd is taken for another")
	}
	both := endpoint{key: pipe, by: [3]holder{{}, {me, int32(p[1])}, {me, int32(p[0])}}}
	if got := both.heldEnds(); got != endHalf {
		t.Errorf("the writer holds a pipe, the reader does not: %d, want %d", got, endHalf)
	}
}

// However many endpoints fall silent, all are asked for in the same number of looks; one that was
// announced and never used does not stay for good.
func TestAllAreAskedFor(t *testing.T) {
	const n = 20011
	d := &Drain{eps: map[bpf.StagelineSlEp]*endpoint{}}
	for i := range uint64(n) {
		k := keyOf(run.TransportPipe, i+1)
		d.eps[k] = &endpoint{key: k, lastNS: 1, by: [3]holder{{}, {1 << 30, 0}, {}}}
	}
	now := 1 + 2*heldEvery
	for range heldTurns + 1 {
		d.sweepHeld(now)
	}
	over := 0
	for _, e := range d.eps {
		if e.over(now) {
			over++
		}
	}
	if over != n {
		t.Errorf("%d of %d closed endpoints were found in %d looks", over, n, heldTurns+1)
	}
	if got := (&endpoint{key: keyOf(run.TransportPipe, 1)}).heldEnds(); got != endHalf {
		t.Errorf("an endpoint that nobody used: %d, want %d", got, endHalf)
	}
}

func keyOf(tr run.Transport, ino uint64) bpf.StagelineSlEp {
	return bpf.StagelineSlEp{Ino: ino, Transport: uint32(tr)}
}
