package correlate

import (
	"cmp"
	"slices"
	"sort"

	"github.com/stageline/stageline/collector/run"
)

// window is what is known around one activation: last needed input, outputs, the threads of the
// process and what they did meanwhile.
type window struct {
	p    *process
	role roles
	in   *hop // last needed input; nil: not seen

	arrived int64 // earliest moment the last needed input can have been here; 0 unknown
	one     *hop  // the first result; nil: no output seen
	last    *hop  // the last result
	first   int64 // the first result was in the loop's hands before this; 0 no output seen
	anchor  int64 // the last result was in the loop's hands before this
	rough   bool  // records that the rules need may be missing: only the outer bounds hold
	take    int64 // takeCPU of the process
}

// interval is a bounded moment under construction.
type interval struct {
	lo, ns, hi int64
	rule       string
	by         []uint32 // start: the threads that may have begun
}

func (i interval) point() Point {
	if i.hi == 0 || i.lo == 0 {
		return unknown(i.rule)
	}
	return bounded(i.lo, i.ns, i.hi, i.rule)
}

const (
	// maxLookNS bounds how far a rule looks for the next event of a thread.
	maxLookNS = 60_000_000_000
	// lockGapNS is how long a thread runs at most between being woken for work and a wait for a lock that
	// it needs to take the work up.
	lockGapNS = 60_000
	// ruleWoken names a start that the loop's wake-up of an idle compute thread shows.
	ruleWoken = "idle compute woken"
	// readyCPUNS places the estimate of ready: a loop takes some tens of microseconds to hand on.
	readyCPUNS = 20_000
)

// window gathers the surroundings of a visit.
func (t *Timeline) window(l []hop, g *group, needed int) *window {
	w := &window{p: g.p, role: g.p.learnRoles()}
	w.take = g.p.takeCPU(w.role.loop)
	if needed >= 0 {
		w.in = &l[g.in[needed]]
		w.arrived = cmp.Or(w.in.Recv.lo(), w.in.Send.lo())
		for _, i := range g.in[:needed] { // an earlier one with a later lower bound cannot be
			w.arrived = max(w.arrived, l[i].Recv.lo())
		}
	}
	if len(g.out) > 0 {
		w.one = &l[g.out[0]]
		w.last = w.one
		w.first = w.handed(w.one)
		w.anchor = w.first
		// Several messages to one target are results that came one after the other; one message to
		// each target is one result, and those after the first may have waited for a credit.
		sent := map[string]int{}
		for _, i := range g.out {
			if sent[l[i].To]++; sent[l[i].To] > 1 {
				w.last, w.anchor = &l[i], w.handed(&l[i])
			}
		}
	}
	w.rough = t.ledger.hit(w.arrived, w.anchor)
	return w
}

// handed is the latest moment at which the loop can have received the result that h carries: its
// write, or the creation of its segment when the loop itself fills that.
func (w *window) handed(h *hop) int64 {
	at := h.Send.hi()
	if u := h.seg.by(h.FromTGID); u != nil && u.openNS > w.arrived && u.openNS < at && u.tid == w.role.loop {
		at = u.openNS
	}
	return at
}

// place sets ready, start and finish of a visit.
func (w *window) place(v *Visit, j job) {
	if w.arrived == 0 {
		return
	}
	if w.rough || w.role.io == 0 || w.in == nil || w.in.Recv.Timing != TimingSeen {
		outer := interval{lo: w.arrived, ns: w.arrived, hi: w.anchor, rule: "arrival to departure"}
		v.Ready, v.Start = outer.point(), outer.point()
		outer.ns = outer.hi
		v.Finish = outer.point()
		return
	}
	ready := w.ready()
	one := w.finish(ready, w.one, w.first)
	start := w.start(ready, one)
	finish := one
	if w.last != w.one {
		finish = w.lastBySignals(w.finish(ready, w.last, w.anchor))
	}
	if w.last == w.one {
		finish = w.soonest(finish, start)
		finish = w.bySignals(finish, start)
	}
	w.stepped(j, &ready, &start, &finish)
	w.inOrder(&ready, &start, &finish)
	v.Ready, v.Start, v.Finish = ready.point(), start.point(), finish.point()
	passed := w.passedOn(ready)
	w.runnable(&v.Ready, passed, []uint32{w.role.io})
	w.runnable(&v.Ready, ready.hi, []uint32{w.role.loop})
	w.runnable(&v.Start, start.hi, start.by)
	w.runnable(&v.Finish, finish.ns, w.role.compute)
	w.held(&v.Ready, w.role.io, w.role.loop)
	w.held(&v.Start, append([]uint32{w.role.loop}, w.role.compute...)...)
	w.held(&v.Finish, append([]uint32{w.role.loop, w.role.courier}, w.role.compute...)...)
}

// passedOn is when the I/O thread told the loop of the last needed input; what delays it afterwards
// delays nothing here.
func (w *window) passedOn(ready interval) int64 {
	io := w.p.thread(w.role.io)
	i := sort.Search(len(io.gave), func(i int) bool { return io.gave[i].enter >= w.arrived })
	for ; i < len(io.gave) && io.gave[i].enter <= ready.hi; i++ {
		if w.p.roles.takes[tidEP{w.role.loop, io.gave[i].ep}] != 0 {
			return io.gave[i].enter
		}
	}
	return ready.hi
}

// nearNS is how far from the estimate of a boundary a thread's waiting for a CPU can have moved it;
// what threads waited elsewhere in a wide interval says nothing about this boundary.
const nearNS = 500_000

// runnable notes the longest time inside the interval of p, near its estimate and before until, in
// which one of the threads that lead to it was ready to run and did not. What delays a thread after
// the boundary (the loop after a result's signal) does not move it.
func (w *window) runnable(p *Point, until int64, tids []uint32) {
	if p.Timing != TimingBounded {
		return
	}
	var most int64
	if p.RunnableUS != nil {
		most = int64(*p.RunnableUS * 1e3)
	}
	for _, tid := range tids {
		most = max(most, w.p.thread(tid).longestRunnable(max(p.lo(), p.at()-nearNS), min(p.hi(), p.at()+nearNS, until)))
	}
	p.RunnableUS = ptr(float64(most) / 1e3)
}

// loopSleep accepts the sleeps in which a loop has nothing to do.
func loopSleep(o run.OffCPU) bool { return o.State == run.OffSleep && pollCall(o.Call) }

// ready is when the loop thread holds the whole input: after the copy out of shared memory, before
// the loop next waits for descriptors with everything handled.
func (w *window) ready() interval {
	loop := w.p.thread(w.role.loop)
	r := interval{lo: w.arrived, ns: w.arrived, hi: w.first, rule: "receive returned"}
	if w.in.c != nil && w.in.c.recv != nil && w.in.c.recv.LastExitNS == w.arrived {
		r.lo = min(w.p.thread(w.in.c.recv.TID).userAt(r.lo, readCall), cmp.Or(r.hi, r.lo))
	}
	if w.role.loop != w.role.io {
		if s, ok := loop.sleepAt(w.arrived); ok && loopSleep(s) && s.InNS > r.lo {
			r.lo, r.ns, r.rule = s.InNS, s.InNS, "loop woken"
		}
	}
	if u := w.in.seg.by(w.p.TGID); u != nil && u.mapEndNS > w.arrived {
		r.lo = max(r.lo, u.mapEndNS)
		r.ns = max(r.ns, u.unmapEndNS, u.unlinkEndNS)
		r.rule = "segment copied"
	}
	handled := w.received(r.lo)
	if s, ok := loop.nextOff(handled, handled+maxLookNS, loopSleep); ok && (r.hi == 0 || s.OutNS < r.hi) {
		r.hi = max(s.OutNS, r.lo)
	}
	if r.hi == 0 {
		return r
	}
	dealt, segment := max(r.ns, r.lo, w.handled(max(r.ns, r.lo), r.hi)), w.in.seg.by(w.p.TGID) != nil
	r.ns = min(w.p.inHand.after(loop, segment, dealt), r.hi)
	if wakes := w.wakes(r.lo, r.hi); len(wakes) > 0 {
		// Where another wake-up may be, the one in turn is likely if compute was idle before the input
		// came; inputs that only wait for others wake nobody.
		k, crowded := w.rank(r.lo, wakes)
		k = min(k, len(wakes)-1)
		if !crowded || wakes[k].OutNS <= r.lo {
			r.ns, r.rule = max(wakes[k].WakeNS, r.lo), "compute woken"
			if !crowded {
				w.p.inHand.note(loop, segment, dealt, wakes[k].WakeNS)
			}
		}
		if !crowded {
			r.hi = min(r.hi, r.ns) // the input is queued before compute is woken for it
		}
	}
	return r
}

// handled is when in (lo, hi) the loop first dealt with the input, as far as it shows: it answers
// for a segment that it has read, and reads the signal of the I/O thread for what came without one.
// 0: it does not show.
func (w *window) handled(lo, hi int64) int64 {
	if w.role.loop == w.role.io {
		return 0
	}
	loop, l := w.p.thread(w.role.loop), []signal(nil)
	ours := func(s signal) bool { return w.p.roles.takes[tidEP{w.role.io, s.ep}] != 0 }
	if l = loop.gave; w.in.seg.by(w.p.TGID) == nil {
		l, ours = loop.took, func(s signal) bool { return w.p.roles.gives[tidEP{w.role.io, s.ep}] != 0 }
	}
	i := sort.Search(len(l), func(i int) bool { return l[i].enter >= lo })
	for ; i < len(l) && l[i].exit < hi; i++ {
		if ours(l[i]) {
			return l[i].exit
		}
	}
	return 0
}

// rank says which of the loop's wake-ups of compute, in order, is likely for this input: inputs
// handled in one go wake compute in their order. It is crowded when another wake-up, or none, may be:
// there are more inputs than wake-ups, compute was not idle all the time since the input came, or a
// result came in at the same time and the loop may have woken compute for work it had held back.
func (w *window) rank(lo int64, wakes []run.OffCPU) (k int, crowded bool) {
	since := w.lastLoopSleep(w.arrived)
	if w.in.c == nil || w.in.c.recv == nil {
		return 0, true
	}
	k = w.p.arrivedSince(since, w.in.c.recv)
	if k >= len(wakes) {
		return k, true
	}
	n := w.p.arrivedBetween(since, wakes[len(wakes)-1].WakeNS)
	if len(wakes) > n || n > 1 && len(w.role.compute) == 1 && wakes[k].OutNS > lo {
		return k, true
	}
	return k, w.lastSignal(since, wakes[k].WakeNS) != 0
}

// received is a moment by which the I/O thread has passed the input on, so that a loop that sleeps
// after it has nothing left to handle.
func (w *window) received(lo int64) int64 {
	if w.role.loop == w.role.io {
		return lo
	}
	io, loop := w.p.thread(w.role.io), w.p.thread(w.role.loop)
	s, ok := io.nextOff(w.arrived, lo+maxLookNS, loopSleep)
	if !ok || s.OutNS <= lo {
		return lo
	}
	if q, ok := loop.sleepAt(s.OutNS); ok && loopSleep(q) && q.OutNS >= lo && (q.WakeNS == 0 || q.WakeNS > s.OutNS) {
		return q.OutNS
	}
	return s.OutNS
}

// lastLoopSleep is when the loop last went to sleep before ns.
func (w *window) lastLoopSleep(ns int64) int64 {
	s, _ := w.p.thread(w.role.loop).lastOff(ns-maxLookNS, ns+1, loopSleep)
	return s.OutNS
}

// idle accepts sleeps of a compute thread for want of work: ended by the loop, not on a lock that
// both use.
func (w *window) idle(o run.OffCPU) bool {
	if o.State != run.OffSleep || o.WakerTID != w.role.loop || o.WakerTGID != w.p.TGID {
		return false
	}
	return o.Call == callFutex && !w.p.isLock(o.Arg0, w.role.loop) || pollCall(o.Call)
}

// wakes are the ends of idle sleeps of compute threads in [lo, hi], in order.
func (w *window) wakes(lo, hi int64) []run.OffCPU {
	var out []run.OffCPU
	for _, tid := range w.role.compute {
		if tid == w.role.loop {
			continue
		}
		t := w.p.thread(tid)
		for _, o := range t.off[t.firstEnding(lo):] {
			if o.OutNS > hi {
				break
			}
			if o.WakeNS >= lo && o.WakeNS <= hi && w.idle(o) {
				out = append(out, o)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b run.OffCPU) int { return cmp.Compare(a.WakeNS, b.WakeNS) })
	return out
}

// working accepts sleeps in the middle of work: not on a futex, where a thread may as well wait for
// work or a lock.
func working(o run.OffCPU) bool {
	return o.State == run.OffSleep && o.Call >= 0 && o.Call != callFutex && !pollCall(o.Call)
}

// start is when the activation begins. An idle compute thread begins when the loop's wake-up
// reaches it; a busy one takes the request after the result that precedes its first.
func (w *window) start(ready, first interval) interval {
	s := interval{lo: ready.lo, ns: ready.ns, hi: first.hi, rule: "compute busy at ready", by: w.role.compute}
	if w.role.compute[0] == w.role.loop {
		s.rule = "one thread"
		return s
	}
	wakes := w.wakes(ready.lo, max(ready.hi, ready.lo))
	if len(wakes) == 0 {
		return w.after(s, ready, first)
	}
	k, crowded := w.rank(ready.lo, wakes)
	if crowded {
		s.rule = "woken for one of several"
		s.ns = max(s.ns, w.pastLocks(w.p.thread(wakes[0].TID), wakes[0].InNS))
		if k > 0 || wakes[0].OutNS > ready.lo { // it may have been for another
			s.ns = max(s.ns, w.lastSignal(ready.lo, first.ns-1))
		}
		return s
	}
	mine := wakes[k]
	compute := w.p.thread(mine.TID)
	in := compute.userAt(w.pastLocks(compute, mine.InNS), sameCall(mine.Call))
	s.ns, s.rule = max(ready.lo, in), ruleWoken
	s.by = []uint32{mine.TID}
	if len(w.role.compute) == 1 {
		s.lo = max(ready.lo, compute.userAt(mine.InNS, sameCall(mine.Call)))
	} // else another one may take the work before the one that was woken gets a CPU
	if begun := w.begunBy(compute, in); s.hi == 0 || begun < s.hi {
		s.hi = max(begun, s.ns)
	}
	return s
}

// begunBy is when a compute thread that was free at ns and had work waiting has begun it at the
// latest: it runs for a while, or sleeps in the middle of the work.
func (w *window) begunBy(compute *thread, ns int64) int64 {
	begun := afterCPU(compute, ns, w.take)
	if o, ok := compute.nextOff(ns, begun, working); ok {
		return o.OutNS
	}
	return begun
}

// handedSince is since when a compute thread that signalled to the loop at ns can have handed over
// the result it signalled: nothing but waiting for a CPU or a lock comes between, and signalling
// costs less than taking up the next piece of work.
func (w *window) handedSince(compute *thread, ns int64) int64 {
	at, cpu := ns, w.take/2
	for {
		o, ok := compute.lastOff(at-maxLookNS, at, func(run.OffCPU) bool { return true })
		if !ok || o.InNS <= at-cpu {
			return at - cpu
		}
		cpu -= max(0, at-o.InNS)
		if o.State == run.OffSleep && !(o.Call == callFutex && w.p.shared(o.Arg0)) {
			return min(o.InNS, ns)
		}
		at = o.OutNS
	}
}

// after is when a compute thread that was busy at ready begins: after the result that precedes the
// first of this request. One result follows the other, so a lone thread begins when the call that
// signalled the one before has returned.
func (w *window) after(s, ready, first interval) interval {
	y := w.lastResult(ready.lo, first.ns-1)
	if y.enter != 0 {
		s.ns, s.rule = max(s.ns, y.enter), "after the result before it"
	}
	if len(w.role.compute) != 1 {
		return s
	}
	compute := w.p.thread(w.role.compute[0])
	if z := w.lastResult(ready.lo, first.lo-1); z.enter != 0 {
		s.lo = max(s.lo, compute.userAt(z.exit, writeCall))
	}
	if y.enter != 0 && w.role.courier == 0 && !w.unsignalled(y.enter) { // a courier that is awake hears of results that nothing shows
		s.ns = max(s.ns, compute.userAt(y.exit, writeCall))
		s.hi = max(s.ns, min(s.hi, w.begunBy(compute, s.ns)))
	}
	return s
}
