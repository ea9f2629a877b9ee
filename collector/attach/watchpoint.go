package attach

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/bpf"
)

// DebugRegisters is how many addresses a thread can have watched on x86.
const DebugRegisters = 4

// watchRounds bounds how often a process is begun with anew because it made threads meanwhile.
const watchRounds = 5

// perf_event_attr.bp_type, and bits of it (5.13), for which x/sys has no names: threads inherit, not
// other children, and a new program does not.
const (
	bpWrite          = 2
	bitInheritThread = 1 << 35
	bitRemoveOnExec  = 1 << 36
)

// ErrNoWatchpoints: this machine takes watchpoints and never reports a hit.
var ErrNoWatchpoints = errors.New("a watchpoint on a byte of this process was taken and did not fire when it was written: the machine, most likely a virtual one, has no working debug registers")

// TryWatchpoints says whether hardware watchpoints fire here, nil when they do, by watching a byte
// of this process and writing it.
func TryWatchpoints() error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("map a page to try watchpoints on: %w", err)
	}
	defer unix.Munmap(page)
	runtime.LockOSThread() // the watchpoint is of this thread
	defer runtime.UnlockOSThread()
	fd, err := watchpoint(0, uint64(uintptr(unsafe.Pointer(&page[0]))), 4)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("enable a watchpoint: %w", err)
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&page[0])), 1)
	n, err := hits(fd)
	if err == nil && n == 0 {
		err = ErrNoWatchpoints
	}
	return err
}

// watchpoint opens one on writes to n bytes at an address of a thread and those it makes, disabled.
func watchpoint(tid int, addr uint64, n int) (int, error) {
	a := unix.PerfEventAttr{Type: unix.PERF_TYPE_BREAKPOINT, Sample: 1, Bp_type: bpWrite, Ext1: addr, Ext2: uint64(n)}
	a.Size = uint32(unsafe.Sizeof(a))
	a.Bits = unix.PerfBitDisabled | unix.PerfBitInherit | bitInheritThread | bitRemoveOnExec | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
	fd, err := unix.PerfEventOpen(&a, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open a watchpoint on %d bytes of thread %d: %w", n, tid, err)
	}
	return fd, nil
}

// hits is how often a watchpoint was hit, in threads that ended, too.
func hits(fd int) (uint64, error) {
	var n [8]byte
	if _, err := unix.Read(fd, n[:]); err != nil {
		return 0, fmt.Errorf("read the count of a watchpoint: %w", err)
	}
	return *(*uint64)(unsafe.Pointer(&n)), nil
}

// Span is N bytes (1, 2, 4 or 8, aligned to N) at an address.
type Span struct {
	Addr uint64
	N    int
}

// Hit is one write to a Span by a thread of its process.
type Hit struct {
	AtNS      int64 // after the write, before the thread went on
	Addr      uint64
	Flags     [8]byte // the aligned 8 bytes around it, after the write
	Seq       uint64  // from 1 for each Watch; a gap shows a loss
	TGID, TID uint32
}

// HitCounts say what became of hits.
type HitCounts struct {
	Sent, Full, Unread uint64 // Full of those sent were lost; Unread were not sent
}

// Watchpoints are hardware watchpoints in other processes. They cost a thread that writes there a
// trap, and never make it wait. Used by one goroutine; closing this process's descriptors, as its
// death does, ends all of them.
type Watchpoints struct {
	objs   bpf.WatchObjects
	rd     *ringbuf.Reader
	of     map[uint32]*watchedProcess
	record ringbuf.Record
}

// watchedProcess is what one process has.
type watchedProcess struct {
	spans []Span
	fds   []int
}

// OpenWatchpoints loads the program behind them. Ask TryWatchpoints first: where they do not fire
// they can be opened all the same.
func OpenWatchpoints() (*Watchpoints, error) {
	w := &Watchpoints{of: map[uint32]*watchedProcess{}}
	if err := bpf.LoadWatchObjects(&w.objs, nil); err != nil {
		return nil, fmt.Errorf("load the program for watchpoints: %w", err)
	}
	var err error
	if w.rd, err = ringbuf.NewReader(w.objs.SlHits); err != nil {
		w.objs.Close()
		return nil, fmt.Errorf("open the ring of watchpoint hits: %w", err)
	}
	return w, nil
}

// Close ends all watching.
func (w *Watchpoints) Close() {
	for pid := range w.of {
		w.Unwatch(pid)
	}
	w.rd.Close()
	w.objs.Close()
}

// Watch watches the spans in all threads of a process, at most DebugRegisters of them, in place of
// what was watched there. On an error nothing is: another debugger may hold the registers (ENOSPC),
// the process makes threads faster than they can be gone through, or has more than this process may
// have descriptors for.
func (w *Watchpoints) Watch(pid uint32, spans []Span) error {
	w.Unwatch(pid)
	p := &watchedProcess{spans: spans}
	w.of[pid] = p
	err := w.begin(pid, p)
	if err != nil {
		w.Unwatch(pid)
	}
	return err
}

func (w *Watchpoints) begin(pid uint32, p *watchedProcess) error {
	for _, s := range p.spans {
		k, none := bpf.WatchSlWatched{Addr: s.Addr, Tgid: pid}, uint64(0)
		if err := w.objs.SlWatches.Update(&k, &none, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("note a watchpoint of process %d: %w", pid, err)
		}
	}
	// Threads inherit watchpoints from the one that makes them. One that was made while its maker had
	// a part of them has that part, and no program perhaps: all are taken back and set again.
	for range watchRounds {
		before := threads(pid)
		if err := room(len(before) * len(p.spans)); err != nil {
			return fmt.Errorf("watch %d threads of process %d: %w", len(before), pid, err)
		}
		for tid := range before {
			if err := w.arm(tid, p); err != nil {
				return err
			}
		}
		if sameThreads(before, threads(pid)) {
			return nil
		}
		p.disarm()
	}
	return fmt.Errorf("process %d made threads each of %d times that its threads were given watchpoints", pid, watchRounds)
}

// spareDescriptors stay for what else this process has to open, such as the next file of a run.
const spareDescriptors = 64

// room is an error where this process may not have n descriptors more, and some to spare.
func room(n int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("ask how many descriptors this process may have: %w", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("count the descriptors of this process: %w", err)
	}
	if uint64(len(open)+n+spareDescriptors) > limit.Cur {
		return fmt.Errorf("that takes %d descriptors, %d of the %d allowed are in use, and %d are kept for other needs: raise the limit (ulimit -n)", n, len(open), limit.Cur, spareDescriptors)
	}
	return nil
}

// arm sets a thread's watchpoints. One that has ended needs none.
func (w *Watchpoints) arm(tid int, p *watchedProcess) error {
	for _, s := range p.spans {
		fd, err := watchpoint(tid, s.Addr, s.N)
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		if err != nil {
			return err
		}
		p.fds = append(p.fds, fd)
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, w.objs.SlWatchpoint.FD()); err != nil {
			return fmt.Errorf("put the program on a watchpoint of thread %d: %w", tid, err)
		}
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return fmt.Errorf("enable a watchpoint of thread %d: %w", tid, err)
		}
	}
	return nil
}

func (p *watchedProcess) disarm() {
	for _, fd := range p.fds {
		unix.Close(fd)
	}
	p.fds = nil
}

// Unwatch takes a process's watchpoints off, also those that its threads inherited.
func (w *Watchpoints) Unwatch(pid uint32) {
	p := w.of[pid]
	if p == nil {
		return
	}
	delete(w.of, pid)
	p.disarm()
	for _, s := range p.spans {
		_ = w.objs.SlWatches.Delete(&bpf.WatchSlWatched{Addr: s.Addr, Tgid: pid}) // not there: nothing to do
	}
}

// Read hands over the hits since the last call. It does not wait.
func (w *Watchpoints) Read(fn func(*Hit)) error {
	if w.rd.AvailableBytes() == 0 {
		return nil
	}
	w.rd.SetDeadline(time.Now().Add(-time.Second))
	for {
		err := w.rd.ReadInto(&w.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the ring of watchpoint hits: %w", err)
		}
		var h bpf.WatchSlHit
		if len(w.record.RawSample) < int(unsafe.Sizeof(h)) {
			return fmt.Errorf("a watchpoint hit of %d bytes, want %d: rebuild, the program and its types differ", len(w.record.RawSample), unsafe.Sizeof(h))
		}
		h = *(*bpf.WatchSlHit)(unsafe.Pointer(unsafe.SliceData(w.record.RawSample)))
		fn(&Hit{AtNS: int64(h.AtNs), Addr: h.Addr, Flags: *(*[8]byte)(unsafe.Pointer(&h.Flags)), Seq: h.Seq, TGID: h.Tgid, TID: h.Tid})
	}
}

// Counts of hits so far, of all processes.
func (w *Watchpoints) Counts() (HitCounts, error) {
	var n [bpf.WatchSlHitCountSL_HITS_MAX]uint64
	for i := range n {
		if err := w.objs.SlHitCounts.Lookup(uint32(i), &n[i]); err != nil {
			return HitCounts{}, fmt.Errorf("read the counts of watchpoint hits: %w", err)
		}
	}
	return HitCounts{n[bpf.WatchSlHitCountSL_HITS_SENT], n[bpf.WatchSlHitCountSL_HITS_FULL], n[bpf.WatchSlHitCountSL_HITS_NO_READ]}, nil
}

func threads(pid uint32) map[int]bool {
	out := map[int]bool{}
	ents, _ := os.ReadDir(procDir(pid) + "/task") // gone: it has none
	for _, e := range ents {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			out[tid] = true
		}
	}
	return out
}

// sameThreads reports that none has come.
func sameThreads(before, after map[int]bool) bool {
	for tid := range after {
		if !before[tid] {
			return false
		}
	}
	return true
}
