package attach

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const watchOther = "STAGELINE_TEST_WATCH" // PID and address for TestWatchOther

// watchedPage is a page of the test that it writes, and needs watchpoints that fire.
func watchedPage(t testing.TB) []byte {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs into the running kernel")
	}
	if err := TryWatchpoints(); err != nil {
		t.Skipf("hardware watchpoints: %v", err)
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(page) })
	return page
}

func at(b []byte, i int) uint64 { return uint64(uintptr(unsafe.Pointer(&b[i]))) }

func store(b []byte, i int, v uint32) { atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[i])), v) }

func fourSpans(page []byte) []Span {
	return []Span{{at(page, 0), 8}, {at(page, 8), 8}, {at(page, 16), 4}, {at(page, 28), 1}}
}

func openWatchpoints(t testing.TB) *Watchpoints {
	t.Helper()
	w, err := OpenWatchpoints()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func readHits(t *testing.T, w *Watchpoints) (out []Hit) {
	t.Helper()
	if err := w.Read(func(h *Hit) { out = append(out, *h) }); err != nil {
		t.Fatal(err)
	}
	return out
}

// Every write to a watched byte is one hit with the thread, the flags after it, and a time between
// those before and after the write; one beside it is none. A thread that is made later is watched.
func TestWatchpointHits(t *testing.T) {
	page := watchedPage(t)
	w := openWatchpoints(t)
	me := uint32(os.Getpid())
	if err := w.Watch(me, fourSpans(page)); err != nil {
		t.Fatal(err)
	}
	type write struct {
		tid           int
		before, after int64
		value         uint32
	}
	var wrote []write
	put := func(v uint32) {
		tid := unix.Gettid()
		before := monotonic()
		store(page, 4, v)
		wrote = append(wrote, write{tid, before, monotonic(), v})
		store(page, 20, v) // not watched
	}
	for i := range uint32(11) {
		put(100 + i)
	}
	// Threads are used again: those that were there are held until one comes that was not.
	old, done, hold := threads(me), make(chan bool), make(chan bool)
	defer close(hold)
	var late func()
	late = func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if old[unix.Gettid()] {
			go late()
			<-hold
			return
		}
		for i := range uint32(12) {
			put(200 + i)
		}
		close(done)
	}
	go late()
	<-done
	got := readHits(t, w)
	if len(got) != 23 {
		t.Fatalf("%d hits of 23 writes: %+v", len(got), got)
	}
	for i, h := range got {
		o := wrote[i]
		value := uint32(h.Flags[4]) | uint32(h.Flags[5])<<8
		if h.AtNS < o.before || h.AtNS > o.after || int(h.TID) != o.tid || h.TGID != me || value != o.value || h.Seq != uint64(i+1) || h.Addr != at(page, 0) {
			t.Errorf("hit %d is %+v of the write %+v", i, h, o)
		}
	}
}

// A ring that is full loses hits, and says how many: by count, and by a gap in the numbers.
func TestWatchpointLoss(t *testing.T) {
	page := watchedPage(t)
	w := openWatchpoints(t)
	if err := w.Watch(uint32(os.Getpid()), []Span{{at(page, 0), 4}}); err != nil {
		t.Fatal(err)
	}
	const writes = 5507 // 5461 fit
	for i := range uint32(writes) {
		store(page, 0, i)
	}
	got := readHits(t, w)
	store(page, 0, 1)
	last := readHits(t, w)
	n, err := w.Counts()
	if err != nil {
		t.Fatal(err)
	}
	if n.Sent != writes+1 || n.Full == 0 || n.Full+uint64(len(got)) != writes || n.Unread != 0 {
		t.Errorf("%+v of %d writes, %d received", n, writes+1, len(got)+1)
	}
	if len(last) != 1 || last[0].Seq != writes+1 {
		t.Errorf("after the loss came %+v, want number %d", last, writes+1)
	}
}

// Where something else has the registers, watching is refused as a whole and leaves nothing.
func TestWatchpointsTaken(t *testing.T) {
	page := watchedPage(t)
	w := openWatchpoints(t)
	me := uint32(os.Getpid())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	taken, err := watchpoint(0, at(page, 64), 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Watch(me, fourSpans(page)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("with a register taken: %v, want %v", err, unix.ENOSPC)
	}
	unix.Close(taken)
	if err := w.Watch(me, fourSpans(page)); err != nil {
		t.Errorf("with all registers free: %v", err)
	}
	w.Unwatch(me)
	store(page, 0, 1)
	if got := readHits(t, w); len(got) != 0 {
		t.Errorf("hits after Unwatch: %+v", got)
	}
}

// More threads than this process may have descriptors for are refused before the first is watched, so
// that none is missing elsewhere meanwhile.
func TestWatchpointsWithoutDescriptors(t *testing.T) {
	page := watchedPage(t)
	w := openWatchpoints(t)
	var was unix.Rlimit
	open, err := os.ReadDir("/proc/self/fd")
	if err := errors.Join(err, unix.Getrlimit(unix.RLIMIT_NOFILE, &was)); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = uint64(len(open) + spareDescriptors + 1)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err = w.Watch(uint32(os.Getpid()), fourSpans(page))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err == nil || !strings.Contains(err.Error(), "ulimit -n") || len(w.of) != 0 {
		t.Errorf("with one descriptor to spend: %v, %d processes watched", err, len(w.of))
	}
	if err := w.Watch(uint32(os.Getpid()), fourSpans(page)); err != nil {
		t.Errorf("with enough of them: %v", err)
	}
}

// A recorder that is killed leaves no watchpoint in the process that it watched.
func TestWatchpointsOfKilled(t *testing.T) {
	page := watchedPage(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestWatchOther$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", watchOther, os.Getpid(), at(page, 0)))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "watching\n" {
		t.Errorf("the other process says %q, %v", line, err)
	}
	if fd, err := watchpoint(0, at(page, 64), 4); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("while another process has the registers: %v, want %v", err, unix.ENOSPC)
		unix.Close(fd)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed, as it should be
	var fds []int
	for i := range DebugRegisters {
		fd, err := watchpoint(0, at(page, 64), 4)
		if err != nil {
			t.Errorf("register %d after the other process was killed: %v", i, err)
			continue
		}
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// TestWatchOther is the process that TestWatchpointsOfKilled kills.
func TestWatchOther(t *testing.T) {
	var pid uint32
	var addr uint64
	if n, _ := fmt.Sscan(os.Getenv(watchOther), &pid, &addr); n != 2 {
		t.Skip("only for TestWatchpointsOfKilled")
	}
	w, err := OpenWatchpoints()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Watch(pid, []Span{{addr, 8}, {addr + 8, 8}, {addr + 16, 8}, {addr + 24, 8}}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("watching")
	select {} // until it is killed
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // always there
	return ts.Nano()
}

// What a write costs the thread that makes it.
func BenchmarkWatchedWrite(b *testing.B) {
	page := watchedPage(b)
	w := openWatchpoints(b)
	if err := w.Watch(uint32(os.Getpid()), fourSpans(page)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		store(page, 0, 1)
	}
	b.StopTimer()
	n, err := w.Counts()
	if err != nil || n.Sent < uint64(b.N) {
		b.Errorf("%+v of %d writes, %v", n, b.N, err)
	}
}
