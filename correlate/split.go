package correlate

import (
	"cmp"
	"slices"
	"sort"

	"github.com/stageline/stageline/collector/run"
)

// Reasons for which a thread slept, by the call it slept in (x86-64 numbers). A call that is in no
// row is "other"; a sleep in no call is a page fault. What a descriptor of an ioctl is, is not
// recorded, so that drivers of GPUs and others are one reason.
var reasonOf = func() map[int32]string {
	m := map[int32]string{}
	for reason, calls := range map[string][]int32{
		"lock":  {73, 72},                         // flock, fcntl
		"timer": {35, 230},                        // nanosleep, clock_nanosleep
		"poll":  {7, 23, 232, 270, 271, 281, 441}, // poll, select, epoll_wait, pselect6, ppoll, epoll_pwait, epoll_pwait2
		"io": {0, 1, 17, 18, 19, 20, 40, 42, 43, 44, 45, // read, write, pread64, pwrite64, readv, writev, sendfile, connect, accept, sendto, recvfrom
			46, 47, 74, 75, 208, 275, 276, 278, 288, 295, 296, // sendmsg, recvmsg, fsync, fdatasync, io_getevents, splice, tee, vmsplice, accept4, preadv, pwritev
			299, 307, 326, 327, 328, 426}, // recvmmsg, sendmmsg, copy_file_range, preadv2, pwritev2, io_uring_enter
		"memory": {9, 10, 11, 12, 25, 26, 28, 76, 77, 285}, // mmap, mprotect, munmap, brk, mremap, msync, madvise, truncate, ftruncate, fallocate
		"ioctl":  {16},
		"yield":  {callYield},
		"child":  {61, 247}, // wait4, waitid
		"futex":  {callFutex, 449, 455},
	} {
		for _, c := range calls {
			m[c] = reason
		}
	}
	return m
}()

const callYield = 24

// reason says why a thread slept. A futex is a lock when the thread that ended the sleep waits on it
// at times, too; when that thread is not known, when any other does. The GIL is such a lock.
func (x *process) reason(o run.OffCPU) string {
	switch {
	case o.State == run.OffSleep && o.WakeNS == 0:
		return "unseen" // asleep and then ready to run: when it was woken was not seen
	case o.Call < 0:
		return "fault"
	case o.Call == callFutex && x.shared(o.Arg0):
		l := x.locks[lockWord(o.Arg0)].tids
		full := l[len(l)-1] != 0 // more threads than were noted may wait there
		if full || o.WakerTID == 0 || o.WakerTGID != x.TGID || x.isLock(o.Arg0, o.WakerTID) {
			return "lock"
		}
	}
	if r := reasonOf[o.Call]; r != "" {
		return r
	}
	return "other"
}

// part divides [a, b] by what a thread did: on, queue and all of blocked add up to b − a, ns.
// Intervals that overlap, which cannot be, count once.
func (x *process) part(t *thread, a, b int64) (on, queue int64, blocked []Blocked) {
	type slept struct {
		ns int64
		n  int
	}
	asleep := map[string]slept{}
	on = b - a
	at := a
	for _, o := range t.off[t.firstEnding(a):] {
		if o.OutNS >= b {
			break
		}
		out, in := max(o.OutNS, at), min(o.InNS, b)
		if in <= out {
			continue
		}
		at = in
		on -= in - out
		wake := min(max(o.WakeNS, out), in)
		switch {
		case o.State == run.OffPreempted && o.Call != callYield:
			wake = out
		case o.WakeNS == 0:
			wake = in
		}
		queue += in - wake
		if wake > out {
			s := asleep[x.reason(o)]
			asleep[x.reason(o)] = slept{s.ns + wake - out, s.n + 1}
		}
	}
	blocked = []Blocked{}
	for reason, s := range asleep {
		blocked = append(blocked, Blocked{reason, float64(s.ns) / 1e3, s.n})
	}
	slices.SortFunc(blocked, func(a, b Blocked) int {
		return cmp.Or(cmp.Compare(b.US, a.US), cmp.Compare(a.Reason, b.Reason))
	})
	return on, queue, blocked
}

// split divides the service of a visit by what the thread that served it did. What several requests
// had of that thread at once is in each of them, undivided.
func (w *window) split(v *Visit) {
	v.tid = w.server(v)
	a, b := v.Start.at(), v.Finish.at()
	if v.tid == 0 || a == 0 || b < a {
		return
	}
	t := w.p.thread(v.tid)
	if len(t.off) == 0 {
		return // it was never seen to leave a CPU: its records are missing
	}
	on, queue, blocked := w.p.part(t, a, b)
	v.OnCPUUS, v.RunQueueUS, v.Blocked = ptr(float64(on)/1e3), ptr(float64(queue)/1e3), blocked
}

// server is the thread that served a visit: the only one that computes, or, of several, the one that
// was woken for it and whose signal gave its result. 0: not known.
func (w *window) server(v *Visit) uint32 {
	c := w.role.compute
	if w.rough || v.Start.NS == nil || v.Finish.NS == nil || len(c) == 0 || w.in == nil || w.in.Recv.Timing != TimingSeen {
		return 0
	}
	if len(c) == 1 {
		return c[0]
	}
	by := w.startedBy(v.Start.at())
	if by == 0 || w.signalledBy(v.Finish.at()) != by {
		return 0
	}
	return by
}

// startedBy is the only compute thread that left a sleep for want of work for a start at ns.
func (w *window) startedBy(ns int64) (by uint32) {
	for _, tid := range w.role.compute {
		o, ok := w.p.thread(tid).lastOff(ns-maxLookNS, ns, func(o run.OffCPU) bool { return o.State == run.OffSleep })
		if !ok || o.InNS != ns {
			continue
		}
		if by != 0 {
			return 0
		}
		by = tid
	}
	return by
}

// signalledBy is the only compute thread that signalled a result at ns: by a write, or by waking the
// loop or the courier.
func (w *window) signalledBy(ns int64) (by uint32) {
	for _, tid := range w.role.compute {
		if !w.signalled(tid, ns) {
			continue
		}
		if by != 0 {
			return 0
		}
		by = tid
	}
	return by
}

func (w *window) signalled(tid uint32, ns int64) bool {
	gave := w.p.thread(tid).gave
	if i := sort.Search(len(gave), func(i int) bool { return gave[i].enter >= ns }); i < len(gave) && gave[i].enter == ns {
		return true
	}
	for _, woken := range [...]uint32{w.role.loop, w.role.courier} {
		if woken == 0 {
			continue
		}
		t := w.p.thread(woken)
		i := t.firstEnding(ns - 1)
		if i < len(t.off) && t.off[i].WakeNS == ns && t.off[i].WakerTID == tid {
			return true
		}
	}
	return false
}
