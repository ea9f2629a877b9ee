package correlate

import (
	"slices"

	"github.com/stageline/stageline/collector/run"
)

const (
	// maxHandOuts bounds the samples that takeCPU is measured by, minHandOuts is how many it needs.
	maxHandOuts   = 256
	minHandOuts   = 5
	takeReactions = 4
	minTakeNS     = 50_000
	maxTakeNS     = 400_000
)

// reacted notes the CPU time from a thread's being switched in to its reading of the signal that it
// was woken for.
func (t *thread) reacted(ns int64) {
	if len(t.reactions) >= maxHandOuts {
		return
	}
	if o, ok := t.lastOff(ns-maxLookNS, ns, func(run.OffCPU) bool { return true }); ok && loopSleep(o) && o.InNS <= ns {
		t.reactions = append(t.reactions, ns-o.InNS)
	}
}

// handedOut notes the CPU time of a loop from being switched in after a sleep for events to its
// waking of another thread at ns.
func (x *process) handedOut(waker uint32, ns int64) {
	if len(x.handOuts) >= maxHandOuts {
		return
	}
	if o, ok := x.thread(waker).lastOff(ns-maxLookNS, ns, func(run.OffCPU) bool { return true }); ok && loopSleep(o) && o.InNS <= ns {
		x.handOuts = append(x.handOuts, ns-o.InNS)
	}
}

// takeCPU is the CPU time within which a thread that was woken for a piece of work, or is done with
// the one before, has begun it, and within which one signals what it has handed over. It differs by
// an order of magnitude between runtimes, so it is measured: handing a piece of work out costs a loop
// at least what taking it up costs, and its quick cases (10th percentile) have no large copy in them.
// Where compute is never idle, several times the loop's own reaction to a signal takes its place.
func (x *process) takeCPU(loop uint32) int64 {
	l, quantile, times := x.handOuts, 10, int64(1)
	if len(l) < minHandOuts {
		l, quantile, times = x.thread(loop).reactions, 50, takeReactions
	}
	n := len(l)
	if n < minHandOuts {
		return maxTakeNS
	}
	if x.takeN != n {
		l = slices.Clone(l)
		slices.Sort(l)
		x.takeN, x.takeNS = n, min(max(times*l[n*quantile/100], minTakeNS), maxTakeNS)
	}
	return x.takeNS
}

// exitNS is within what time after a call's end, or after being switched in inside one, a thread has
// left the kernel unless it loses the CPU on the way.
const exitNS = 20_000

// userAt is when a thread was back in its program after a call of the kind that in accepts, which
// ended at ns or in which it was switched in then: one that is preempted before still stands in it.
func (t *thread) userAt(ns int64, in func(call int32) bool) int64 {
	for range 8 {
		o, ok := t.nextOff(ns-exitNS, ns+exitNS, func(o run.OffCPU) bool { return o.InNS > ns })
		if !ok || o.State != run.OffPreempted || !in(o.Call) {
			return ns
		}
		ns = o.InNS
	}
	return ns
}

// readCall and writeCall accept the calls that io records are made of, by direction (x86-64): read,
// pread64, readv, recvfrom, recvmsg, recvmmsg; write, pwrite64, writev, sendto, sendmsg, sendmmsg.
func readCall(c int32) bool {
	return slices.Contains([]int32{callRead, 17, 19, callRecvfrom, callRecvmsg, 299}, c)
}
func writeCall(c int32) bool { return slices.Contains([]int32{1, 18, 20, 44, 46, 307}, c) }

// sameCall accepts one call.
func sameCall(want int32) func(int32) bool { return func(c int32) bool { return c == want } }

// pastLocks moves on over waits for a lock that follow a wake-up within 60 µs.
func (w *window) pastLocks(t *thread, in int64) int64 {
	for range 16 {
		o, ok := t.nextOff(in, in+lockGapNS, func(o run.OffCPU) bool { return o.State == run.OffSleep })
		if !ok || o.Call != callFutex || !w.p.isLock(o.Arg0, w.role.loop) {
			return in
		}
		in = o.InNS
	}
	return in
}
