package correlate

import (
	"slices"
	"sort"

	"github.com/stageline/stageline/collector/run"
)

// thread keeps the recent off-CPU intervals and signals of one thread.
type thread struct {
	tid uint32
	off []run.OffCPU // by OutNS
	// signals it gave: writes to eventfds and bytes to pipes and socketpairs inside the process
	gave      []signal
	took      []signal
	gaveEPs   map[uint32]bool // streams it ever signalled on
	reactions []int64         // CPU time from being switched in to reading the signal, ns
	workNS    int64           // time on a CPU and in sleeps in the middle of work
	sinceNS   int64           // on a CPU since then; 0 not known
}

// signal is one call that wakes or is woken by another thread of the process.
type signal struct {
	enter, exit int64
	ep          uint32
}

// Numbers of x86-64 system calls in which threads wait.
const (
	callRead = 0
	callPoll = 7
	// select, recvfrom, epoll_wait, pselect6, ppoll, epoll_pwait, epoll_pwait2, recvmsg
	callSelect     = 23
	callRecvfrom   = 45
	callRecvmsg    = 47
	callFutex      = 202
	callEpollWait  = 232
	callPselect    = 270
	callPpoll      = 271
	callEpollPwait = 281
	callEpollPw2   = 441
)

// pollCall reports a call in which a loop waits for descriptors.
func pollCall(c int32) bool {
	switch c {
	case callRead, callPoll, callSelect, callRecvfrom, callRecvmsg, callEpollWait, callPselect, callPpoll, callEpollPwait, callEpollPw2:
		return true
	}
	return false
}

func (x *process) thread(tid uint32) *thread {
	t := x.threads[tid]
	if t == nil {
		t = &thread{tid: tid}
		x.threads[tid] = t
	}
	return t
}

// sawIO keeps a process known by its calls alone.
func (p *procTable) sawIO(r *run.IO) { p.at(r.TGID, r.ExitNS) }

// signal notes calls by which threads of one process wake each other.
func (p *procTable) signal(e *endpoint, r *run.IO) {
	inside := e.Transport == run.TransportEventFD ||
		r.Ret <= 16 && (e.Transport == run.TransportPipe || e.Transport == run.TransportUnix)
	if !inside {
		return
	}
	x := p.at(r.TGID, r.ExitNS)
	th := x.thread(r.TID)
	s := signal{r.EnterNS, r.ExitNS, r.EP}
	if r.Dir == run.Send {
		x.roles.gives[tidEP{r.TID, signalKey(e, r.Dir)}]++
		th.gave = insertSignal(th.gave, s, signalKey(e, r.Dir))
		if th.gaveEPs == nil {
			th.gaveEPs = map[uint32]bool{}
		}
		th.gaveEPs[signalKey(e, r.Dir)] = true
		return
	}
	x.roles.takes[tidEP{r.TID, signalKey(e, r.Dir)}]++
	th.reacted(r.EnterNS)
	th.took = insertSignal(th.took, s, signalKey(e, r.Dir))
}

// signalKey names the stream a signal travels on, alike at both ends: the reading endpoint.
func signalKey(e *endpoint, d run.Dir) uint32 {
	if d == run.Send && e.Transport == run.TransportUnix && e.peer != nil {
		return e.peer.ID
	}
	return e.ID
}

func insertSignal(l []signal, s signal, key uint32) []signal {
	s.ep = key
	l = append(l, s)
	for i := len(l) - 1; i > 0 && l[i-1].enter > s.enter; i-- {
		l[i-1], l[i] = l[i], l[i-1]
	}
	return l
}

func (p *procTable) offCPU(r *run.OffCPU) {
	x := p.at(r.TGID, r.OutNS)
	th := x.thread(r.TID)
	th.off = append(th.off, *r)
	for i := len(th.off) - 1; i > 0 && th.off[i-1].OutNS > r.OutNS; i-- {
		th.off[i-1], th.off[i] = th.off[i], th.off[i-1]
	}
	th.worked(r)
	x.steps.worked(r)
	if r.State == run.OffSleep && r.Call == callFutex {
		x.waitsOn(r.Arg0, r.TID)
	}
	if r.State != run.OffSleep || r.WakerTID == 0 || r.WakerTGID != r.TGID {
		return
	}
	k := [2]uint32{r.WakerTID, r.TID}
	w := x.roles.wakes[k]
	if w == nil {
		w = &wake{}
		x.roles.wakes[k] = w
	}
	x.roles.n++
	switch {
	case r.Call == callFutex && x.isLock(r.Arg0, r.WakerTID):
		w.lock++
	case r.Call == callFutex:
		w.futex++
		x.handedOut(r.WakerTID, r.WakeNS)
	case pollCall(r.Call):
		w.poll++
	default:
		w.other++
	}
}

// worked adds up what a thread worked by the end of an off-CPU interval.
func (t *thread) worked(o *run.OffCPU) {
	if t.sinceNS != 0 {
		t.workNS += max(0, o.OutNS-t.sinceNS)
	}
	if working(*o) {
		t.workNS += max(0, o.WakeNS-o.OutNS)
	}
	t.sinceNS = max(t.sinceNS, o.InNS)
}

// firstEnding is the index of the first off-CPU interval that ends after ns.
func (t *thread) firstEnding(ns int64) int {
	return sort.Search(len(t.off), func(i int) bool { return t.off[i].InNS > ns })
}

// longestRunnable is the longest time inside [a, b] in which the thread could run and did not.
func (t *thread) longestRunnable(a, b int64) (ns int64) {
	for _, o := range t.off[t.firstEnding(a):] {
		if o.OutNS >= b {
			break
		}
		from := o.OutNS
		if o.State != run.OffPreempted {
			if o.WakeNS == 0 {
				continue
			}
			from = o.WakeNS
		}
		ns = max(ns, min(b, o.InNS)-max(a, from))
	}
	return ns
}

// sleepAt returns the off-CPU interval that covers ns.
func (t *thread) sleepAt(ns int64) (run.OffCPU, bool) {
	i := sort.Search(len(t.off), func(i int) bool { return t.off[i].OutNS > ns })
	if i == 0 || t.off[i-1].InNS <= ns {
		return run.OffCPU{}, false
	}
	return t.off[i-1], true
}

// nextOff returns the first off-CPU interval beginning at or after ns that ok accepts.
func (t *thread) nextOff(ns, until int64, ok func(run.OffCPU) bool) (run.OffCPU, bool) {
	i := sort.Search(len(t.off), func(i int) bool { return t.off[i].OutNS >= ns })
	for ; i < len(t.off) && t.off[i].OutNS <= until; i++ {
		if ok(t.off[i]) {
			return t.off[i], true
		}
	}
	return run.OffCPU{}, false
}

// lastOff returns the last off-CPU interval beginning before ns and after from that ok accepts.
func (t *thread) lastOff(from, ns int64, ok func(run.OffCPU) bool) (run.OffCPU, bool) {
	i := sort.Search(len(t.off), func(i int) bool { return t.off[i].OutNS >= ns })
	for i--; i >= 0 && t.off[i].OutNS >= from; i-- {
		if ok(t.off[i]) {
			return t.off[i], true
		}
	}
	return run.OffCPU{}, false
}

// lastGiven is the last signal that the thread gave in [lo, hi] and that ok accepts; zero where there is
// none.
func (t *thread) lastGiven(lo, hi int64, ok func(signal) bool) signal {
	i := sort.Search(len(t.gave), func(i int) bool { return t.gave[i].enter > hi })
	for i--; i >= 0 && t.gave[i].enter >= lo; i-- {
		if ok(t.gave[i]) {
			return t.gave[i]
		}
	}
	return signal{}
}

// afterCPU is the moment at which a thread has run for cpu ns since from.
func afterCPU(t *thread, from, cpu int64) int64 {
	at := from
	for {
		o, ok := t.nextOff(at, at+cpu, func(run.OffCPU) bool { return true })
		if !ok {
			return at + cpu
		}
		cpu -= o.OutNS - at
		if o.State == run.OffExit || o.InNS <= at {
			return at + cpu
		}
		at = o.InNS
	}
}

// sweep drops what happened before ns.
func (t *thread) sweep(ns int64) {
	i := 0
	for i < len(t.off) && t.off[i].InNS < ns {
		i++
	}
	if i*2 > len(t.off) {
		t.off = slices.Clone(t.off[i:])
	}
	t.gave, t.took = sweepSignals(t.gave, ns), sweepSignals(t.took, ns)
}

func sweepSignals(l []signal, ns int64) []signal {
	i := 0
	for i < len(l) && l[i].exit < ns {
		i++
	}
	if i*2 > len(l) {
		return slices.Clone(l[i:])
	}
	return l
}
