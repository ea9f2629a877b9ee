package correlate

import (
	"github.com/stageline/stageline/collector/run"
)

// window is what is known around one activation: last needed input, outputs, the threads of the
// process and what else they had to do.
type window struct {
	t    *Timeline
	p    *process
	role roles
	in   *hop // last needed input; nil: not seen
	out  *hop // first output that the activation's result can be read from; nil: none seen
	last *hop

	arrived int64 // earliest moment the last needed input can have been here
	anchor  int64 // the result was handed to the loop before this; 0 unknown
	many    bool  // several outputs to one target: the result comes piece by piece
	rough   bool  // records that the rules need may be missing: only the outer bounds hold
}

// interval is a bounded moment under construction.
type interval struct {
	lo, ns, hi int64
	rule       string
}

func (i interval) point() Point {
	if i.hi == 0 || i.lo == 0 {
		return unknown(i.rule)
	}
	return bounded(i.lo, i.ns, i.hi, i.rule)
}

// firstCPUNS is the CPU time after which a thread that was woken for a piece of work has begun it,
// and within which a thread that signals has finished it.
const firstCPUNS = 1_000_000

// window gathers the surroundings of a visit.
func (t *Timeline) window(r *request, l []hop, g *group, needed int) *window {
	w := &window{t: t, p: g.p, role: g.p.learnRoles()}
	if needed >= 0 {
		w.in = &l[g.in[needed]]
		w.arrived = w.in.Recv.lo()
		if w.arrived == 0 {
			w.arrived = w.in.Send.lo()
		}
		for _, i := range g.in[:needed] { // an earlier one with a later lower bound cannot be
			w.arrived = max(w.arrived, l[i].Recv.lo())
		}
	}
	if len(g.out) > 0 {
		w.out, w.last = &l[g.out[0]], &l[g.out[len(g.out)-1]]
		to := map[string]int{}
		for _, i := range g.out {
			to[l[i].To]++
			w.many = w.many || to[l[i].To] > 1
		}
		h := w.out
		if w.many {
			h = w.last
		}
		w.anchor = h.Send.hi()
		if u := h.seg.by(h.FromTGID); u != nil && u.openNS > w.arrived && u.openNS < w.anchor && u.tid == w.role.loop {
			w.anchor = u.openNS
		}
	}
	w.rough = t.ledger.hit(w.arrived, w.anchor)
	return w
}

// place sets ready, start and finish of a visit.
func (w *window) place(v *Visit) {
	if w.arrived == 0 && w.anchor == 0 {
		return
	}
	outer := interval{w.arrived, w.arrived, w.anchor, "arrival to departure"}
	if w.arrived == 0 { // the input was not seen: nothing bounds the beginning
		v.Finish = unknown("input not seen")
		return
	}
	if w.rough || w.role.io == 0 || w.in.Recv.Timing != TimingSeen {
		v.Ready, v.Start, v.Finish = outer.point(), outer.point(), outer.point()
		if v.Finish.NS != nil {
			v.Finish.NS = v.Finish.HiNS
		}
		return
	}
	ready := w.ready()
	finish := w.finish(ready)
	start := w.start(ready, finish)
	if start.hi != 0 {
		finish.lo = max(finish.lo, min(start.lo, finish.hi))
	}
	v.Ready, v.Start, v.Finish = ready.point(), start.point(), finish.point()
}

// loopSleep accepts the sleeps in which a loop has nothing to do.
func loopSleep(o run.OffCPU) bool { return o.State == run.OffSleep && pollCall(o.Call) }

// ready is when the loop thread holds the whole input: after the copy out of shared memory, before
// the loop next waits for descriptors with everything handled.
func (w *window) ready() interval {
	io, loop := w.p.thread(w.role.io), w.p.thread(w.role.loop)
	r := interval{lo: w.arrived, ns: w.arrived, hi: w.anchor, rule: "receive returned"}
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
	handled := r.lo
	if w.role.loop != w.role.io {
		if s, ok := io.nextOff(w.arrived, r.lo+maxLookNS, loopSleep); ok {
			handled = max(handled, s.OutNS)
			if q, ok := loop.sleepAt(s.OutNS); ok && loopSleep(q) && q.OutNS >= r.lo && (q.WakeNS == 0 || q.WakeNS > s.OutNS) {
				handled = q.OutNS
			}
		}
	}
	if s, ok := loop.nextOff(handled, handled+maxLookNS, loopSleep); ok && (r.hi == 0 || s.OutNS < r.hi) {
		r.hi = max(s.OutNS, r.lo)
	}
	if r.hi != 0 {
		r.ns = min(max(r.ns, r.lo)+readyCPUNS, r.hi)
	}
	return r
}

const (
	// maxLookNS bounds how far a rule looks for the next event of a thread.
	maxLookNS = 60_000_000_000
	// readyCPUNS places the estimate: a loop takes some tens of microseconds to hand work on.
	readyCPUNS = 20_000
)

// idle accepts sleeps of the compute thread for want of work: ended by the loop, not on a lock
// that both use.
func (w *window) idle(o run.OffCPU) bool {
	if o.State != run.OffSleep || o.WakerTID != w.role.loop || o.WakerTGID != w.p.TGID {
		return false
	}
	return o.Call == callFutex && !w.p.isLock(o.Arg0) || pollCall(o.Call)
}

// finish is when compute hands its result to the loop. The loop cannot have slept between the
// hand-over and the send it set off, and compute goes idle only when all is handed over.
func (w *window) finish(ready interval) interval {
	f := interval{lo: ready.lo, ns: w.anchor, hi: w.anchor, rule: "output sent"}
	if w.anchor == 0 {
		f.rule = "no output seen"
		return f
	}
	io, loop := w.p.thread(w.role.io), w.p.thread(w.role.loop)
	compute := w.p.thread(w.role.compute)
	handed := w.anchor // earliest moment the loop can have handed the result to the I/O thread
	if w.role.io != w.role.loop {
		if s, ok := io.lastOff(ready.lo, w.anchor, loopSleep); ok {
			handed = min(handed, max(s.WakeNS, s.OutNS))
		} else {
			handed = ready.lo
		}
	}
	s, ok := loop.lastOff(ready.lo, handed, loopSleep)
	if ok {
		f.lo = max(f.lo, s.OutNS)
		if s.WakerTID == w.role.compute && s.WakeNS > 0 {
			f.ns, f.rule = s.WakeNS, "compute woke the loop"
		}
	}
	if z, ok := compute.nextOff(ready.hi, w.anchor, w.idle); ok && w.role.compute != w.role.loop && z.OutNS < f.hi {
		f.hi = max(z.OutNS, f.lo)
		if f.rule == "output sent" {
			f.ns, f.rule = f.hi, "compute went idle"
		}
	}
	if y := w.lastSignal(f.lo, f.hi); y != 0 {
		f.ns, f.rule = y, "compute signalled"
	}
	f.ns = min(max(f.ns, f.lo), f.hi)
	return f
}

// lastSignal is the last call in [lo, hi] by which compute woke the loop, or 0.
func (w *window) lastSignal(lo, hi int64) (ns int64) {
	if w.role.compute == w.role.loop {
		return 0
	}
	for _, s := range w.p.thread(w.role.compute).gave {
		if s.enter >= lo && s.enter <= hi && w.p.roles.takes[tidEP{w.role.loop, s.ep}] > 0 {
			ns = s.enter
		}
	}
	return ns
}

// start is when the activation begins. An idle compute thread begins when the wake-up of the loop
// reaches it; a busy one takes the request after those before it.
func (w *window) start(ready, finish interval) interval {
	s := interval{lo: ready.lo, ns: ready.ns, hi: finish.hi, rule: "compute busy at ready"}
	if w.role.compute == w.role.loop {
		s.rule = "one thread"
		return s
	}
	compute := w.p.thread(w.role.compute)
	idle, ok := compute.sleepAt(ready.lo)
	if !ok {
		idle, ok = compute.nextOff(ready.lo, ready.hi, w.idle)
	}
	if !ok || !w.idle(idle) {
		if y := w.lastSignal(ready.lo, max(finish.ns-1, 0)); y != 0 {
			s.ns, s.rule = max(s.ns, y), "after the result before it"
		}
		return s
	}
	in := w.pastLocks(compute, idle.InNS)
	s.lo, s.ns, s.rule = max(ready.lo, idle.WakeNS), max(ready.lo, in), "idle compute woken"
	if w.p.queuedBefore(idle.OutNS, w.arrived, w.in) {
		s.rule = "woken with others before it"
		return s
	}
	begun := afterCPU(compute, in, firstCPUNS)
	if s.hi == 0 || begun < s.hi {
		s.hi = max(begun, s.ns)
	}
	return s
}

// pastLocks moves on over waits for a lock that follow a wake-up within 60 µs.
func (w *window) pastLocks(t *thread, in int64) int64 {
	for range 16 {
		o, ok := t.nextOff(in, in+60_000, func(o run.OffCPU) bool { return o.State == run.OffSleep })
		if !ok || o.Call != callFutex || !w.p.isLock(o.Arg0) {
			return in
		}
		in = o.InNS
	}
	return in
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

// onCPU is the time of [start, finish] in which the compute thread ran, µs; nil when the records
// cannot tell.
func (w *window) onCPU(v *Visit) *float64 {
	a, b := v.Start.at(), v.Finish.at()
	if w.rough || a == 0 || b < a || w.role.compute == 0 {
		return nil
	}
	return ptr(float64(b-a-w.p.thread(w.role.compute).offBetween(a, b)) / 1e3)
}
