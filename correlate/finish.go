package correlate

import (
	"slices"
	"sort"

	"github.com/stageline/stageline/collector/run"
)

// finish is when compute hands a result, in the loop's hands by anchor, to the loop. The loop cannot
// have slept between the hand-over and the send it set off, if it was ever seen to hear of a
// result, and a lone compute thread goes idle only when all is handed over.
func (w *window) finish(ready interval, h *hop, anchor int64) interval {
	f := interval{lo: ready.lo, ns: anchor, hi: anchor, rule: "output sent"}
	if anchor == 0 {
		f.rule = "no output seen"
		return f
	}
	if w.role.courier != 0 {
		return w.fetched(ready, h, anchor)
	}
	sent := anchor // earliest moment the loop can have passed the result to the thread that sent it
	if by := w.sender(h); by != w.role.loop {
		sent = ready.lo
		if s, ok := w.p.thread(by).lastOff(ready.lo-maxLookNS, anchor, loopSleep); ok && s.InNS > ready.lo {
			sent = min(anchor, max(s.WakeNS, s.OutNS))
		}
	}
	var r round
	if s, ok := w.p.thread(w.role.loop).lastOff(ready.lo, sent, loopSleep); ok && !w.role.unheard {
		f.lo = max(f.lo, s.OutNS)
		r = w.roundOf(h, s.OutNS, anchor)
		// What is handed to a loop that sleeps is signalled at once.
		if y, by := w.firstSignal(s.OutNS, f.hi); y != 0 && s.WakeNS >= y {
			f.lo = max(f.lo, w.handedSince(w.p.thread(by), y))
		} else if slices.Contains(w.role.compute, s.WakerTID) && s.WakeNS > 0 {
			f.lo = max(f.lo, w.handedSince(w.p.thread(s.WakerTID), s.WakeNS))
		}
		if slices.Contains(w.role.compute, s.WakerTID) && s.WakeNS > 0 {
			f.ns, f.rule = s.WakeNS, "compute woke the loop"
			// A result handed over while the loop slept would have woken it earlier, and the thread
			// that woke it still slept in its work before.
			if o, ok := w.p.thread(s.WakerTID).lastOff(f.lo-maxLookNS, s.WakeNS, working); ok {
				f.lo = max(f.lo, o.InNS)
			}
		}
	}
	if z, again := w.wentIdle(ready.hi, anchor); z >= f.lo && z < f.hi && z != 0 {
		if !again {
			f.hi = z
		}
		if f.rule == "output sent" {
			f.ns, f.rule = z, "compute went idle"
		}
	}
	w.inRound(&f, r)
	f.ns = min(max(f.ns, f.lo), f.hi)
	return f
}

// inRound bounds a result by the signals of its round.
func (w *window) inRound(f *interval, r round) {
	var own int64
	if r.place < r.before {
		own = r.signals[r.place].enter
	}
	switch {
	case r.silent && own >= f.lo && own != 0:
		f.ns, f.hi, f.rule = min(own, f.hi), min(own, f.hi), ruleSharedSignal
	case r.silent:
		f.rule = ruleSilent
	case r.sure && own >= f.lo:
		f.lo, f.ns, f.hi, f.rule = max(f.lo, min(own, w.handedSince(w.p.thread(w.role.compute[0]), own))), own, own, "compute signalled, in order"
	default:
		if y := w.lastSignal(f.lo, f.hi); y != 0 {
			f.ns, f.rule = y, "compute signalled"
		}
	}
}

// sender is the thread that sent a result: not the one that receives where the loop itself reads
// some channel and leaves the others to an I/O thread.
func (w *window) sender(h *hop) uint32 {
	if h.c == nil || h.c.send == nil || h.c.send.TID == 0 {
		return w.role.io
	}
	return h.c.send.TID
}

// fetched is finish where a courier waits for results and signals them to the loop, which fetches
// what else is there and sends all of it before the courier waits again. The courier's sleep ends
// with the hand-over of the first of them; the loop may sleep between those that follow.
func (w *window) fetched(ready interval, h *hop, anchor int64) interval {
	f := interval{lo: ready.lo, ns: anchor, hi: anchor, rule: "output sent"}
	courier := w.p.thread(w.role.courier)
	passed := w.passed(h, anchor)
	y, before := w.couriered(passed)
	if later, _ := w.couriered(anchor); later != y { // sent about when the courier signalled: for this result or the next
		f.lo = max(f.lo, w.unbroken(before))
	} else if o, ok := courier.lastOff(before, y, w.handOver); y <= ready.lo {
		f.rule = "fetched with results before it"
	} else if h.c == nil || h.c.send == nil || w.p.sentBetween(y, h.c.send) > 0 {
		f.lo, f.rule = max(f.lo, w.unbroken(max(o.WakeNS, before))), "fetched with others"
		if ok && w.last != w.one { // one that makes several results for a request works at many in turn
			f.ns = o.WakeNS
		}
	} else if ok {
		f.lo, f.ns, f.hi, f.rule = max(f.lo, w.unbroken(o.WakeNS)), o.WakeNS, o.WakeNS, "courier woken"
	} else { // handed over before the courier waited for it
		f.lo, f.ns, f.hi, f.rule = max(f.lo, w.unbroken(before)), y, y, "courier signalled"
	}
	if z, again := w.wentIdle(ready.hi, anchor); z >= f.lo && z < f.hi && z != 0 {
		f.ns, f.rule = z, "compute went idle"
		if !again {
			f.hi = z
		}
	}
	f.hi = max(f.hi, f.lo)
	f.ns = min(max(f.ns, f.lo), f.hi)
	return f
}

// soonest moves the estimate of a result that waited for the loop, and so was seen late, to where
// compute, after it began, first had nothing left to do or woke the courier.
func (w *window) soonest(f, start interval) interval {
	if w.role.courier == 0 || f.lo == f.hi || f.rule == "courier woken" || f.rule == "courier signalled" {
		return f
	}
	from := max(start.ns, f.lo)
	if z, _ := w.wentIdle(from, f.ns); z != 0 {
		f.ns, f.rule = z, "compute went idle"
	}
	if o, ok := w.p.thread(w.role.courier).nextOff(from-maxLookNS, f.ns, func(o run.OffCPU) bool {
		return w.handOver(o) && o.WakeNS > from && o.WakeNS < f.ns
	}); ok {
		f.ns, f.rule = o.WakeNS, "courier woken, later fetched"
	}
	return f
}

// bySignals narrows the interval of a result by the signals of a lone compute thread. Those for
// results before it came before it began this request, and its own, or one for a result after it,
// not before the hand-over. Where each result is signalled the first one after the start is its own.
func (w *window) bySignals(f, start interval) interval {
	if f.rule == ruleSilent || f.rule == ruleSharedSignal || w.role.courier != 0 || len(w.role.compute) != 1 || w.role.compute[0] == w.role.loop || start.hi == 0 {
		return f
	}
	x := &w.p.roles
	y := w.lastSignal(start.hi, f.hi)
	x.results++
	if y <= start.hi {
		return f
	}
	x.signalled++
	if y < f.lo {
		return f
	}
	f.hi, f.ns = y, min(f.ns, y)
	if own, by := w.firstSignal(start.lo, y); own != 0 && x.signalsAlways() {
		f.lo = max(f.lo, min(w.handedSince(w.p.thread(by), own), f.ns))
	}
	return f
}

// lastBySignals does the same for the last of several results of a request: where each is
// signalled, its own signal is the last before it was sent, unless the next follows so closely that
// the loop may have taken the result before it was signalled.
func (w *window) lastBySignals(f interval) interval {
	if f.rule == ruleSilent || f.rule == ruleSharedSignal || w.role.courier != 0 || len(w.role.compute) != 1 || w.role.compute[0] == w.role.loop || !w.p.roles.signalsAlways() {
		return f
	}
	y := w.lastSignal(f.lo, f.hi)
	if y == 0 {
		return f
	}
	if next, _ := w.firstSignal(f.hi, f.hi+maxTakeNS); next == 0 {
		f.hi, f.ns = y, min(f.ns, y)
	}
	return f
}

// handOver accepts sleeps of the courier that compute ended with a result.
func (w *window) handOver(o run.OffCPU) bool {
	return o.State == run.OffSleep && o.Call == callFutex && o.WakerTGID == w.p.TGID && slices.Contains(w.role.compute, o.WakerTID) &&
		!w.p.isLock(o.Arg0, w.role.loop)
}

// couriered is when the courier last signalled to the loop by ns, and when it did so before that.
func (w *window) couriered(ns int64) (last, before int64) {
	courier := w.p.thread(w.role.courier)
	if last = courier.lastGiven(0, ns, w.hears).enter; last == 0 {
		return 0, 0
	}
	return last, courier.lastGiven(0, last-1, w.hears).enter
}

// hears reports that the loop reads what a signal is written to.
func (w *window) hears(s signal) bool { return w.p.roles.takes[tidEP{w.role.loop, s.ep}] != 0 }

// passed is the earliest moment at which the loop can have given h to the I/O thread that sent it by
// anchor: that one sends all it has before it sleeps, and the loop wakes it only when it sleeps.
func (w *window) passed(h *hop, anchor int64) (ns int64) {
	if h.c == nil || h.c.send == nil || h.c.send.TID == w.role.loop || anchor < h.Send.lo() {
		return anchor
	}
	ns = w.arrived
	io := h.c.send.TID
	if s, ok := w.p.thread(io).lastOff(w.arrived, anchor, loopSleep); ok {
		ns = max(ns, min(anchor, max(s.WakeNS, s.OutNS)))
	}
	gave := w.p.thread(w.role.loop).gave
	for i := len(gave) - 1; i >= 0 && gave[i].enter > ns; i-- {
		if gave[i].enter <= anchor && w.p.roles.takes[tidEP{io, gave[i].ep}] != 0 {
			return gave[i].enter
		}
	}
	return ns
}

// unbroken is since when compute did nothing but work or wait for locks before ns: the result that
// it handed over at ns was not ready earlier.
func (w *window) unbroken(ns int64) (lo int64) {
	for _, tid := range w.role.compute {
		o, ok := w.p.thread(tid).lastOff(ns-maxLookNS, ns, func(o run.OffCPU) bool {
			return o.State == run.OffSleep && o.InNS <= ns && !(o.Call == callFutex && w.p.shared(o.Arg0))
		})
		if !ok {
			return 0
		}
		if lo == 0 || o.WakeNS < lo {
			lo = max(o.WakeNS, o.OutNS)
		}
	}
	return lo
}

// wentIdle is when a lone compute thread first had nothing left to do in [lo, hi]; 0 where it had not.
// Again: the loop gave it work anew by hi, perhaps this request, if the loop had held that back.
func (w *window) wentIdle(lo, hi int64) (ns int64, again bool) {
	if len(w.role.compute) != 1 || w.role.compute[0] == w.role.loop {
		return 0, false
	}
	z, _ := w.p.thread(w.role.compute[0]).nextOff(lo, hi, func(o run.OffCPU) bool {
		return w.idle(o) && !(o.Call == callFutex && w.p.shared(o.Arg0))
	})
	return z.OutNS, z.WakeNS <= hi
}

// lastSignal is when lastResult was signalled, or 0.
func (w *window) lastSignal(lo, hi int64) int64 { return w.lastResult(lo, hi).enter }

// lastResult is the last signal of compute to the loop that began in [lo, hi]: its write to what the
// loop waits on where compute was seen to write, else the wake-up itself. Zero where there is none.
func (w *window) lastResult(lo, hi int64) (last signal) {
	if w.role.courier != 0 {
		o, _ := w.p.thread(w.role.courier).lastOff(lo-maxLookNS, hi, func(o run.OffCPU) bool {
			return w.handOver(o) && o.WakeNS >= lo && o.WakeNS <= hi
		})
		return signal{enter: o.WakeNS, exit: o.WakeNS}
	}
	writes := false
	for _, tid := range w.role.compute {
		if tid == w.role.loop {
			return signal{}
		}
		writes = writes || w.p.gaveTo(tid, w.role.loop) > 0
		if s := w.p.thread(tid).lastGiven(lo, hi, w.hears); s.enter > last.enter {
			last = s
		}
	}
	if writes {
		return last
	}
	if o, ok := w.p.thread(w.role.loop).lastOff(lo-maxLookNS, hi, func(o run.OffCPU) bool {
		return o.WakeNS >= lo && o.WakeNS <= hi && loopSleep(o) && slices.Contains(w.role.compute, o.WakerTID)
	}); ok {
		return signal{enter: o.WakeNS, exit: o.WakeNS}
	}
	return signal{}
}

// firstSignal is when compute first signalled to the loop after ns and by until, and the thread that
// did; 0 where it did not.
func (w *window) firstSignal(ns, until int64) (at int64, by uint32) {
	for _, tid := range w.role.compute {
		l := w.p.thread(tid).gave
		i := sort.Search(len(l), func(i int) bool { return l[i].enter > ns })
		for ; i < len(l) && l[i].enter <= until && (at == 0 || l[i].enter < at); i++ {
			if w.p.roles.takes[tidEP{w.role.loop, l[i].ep}] != 0 {
				at, by = l[i].enter, tid
			}
		}
	}
	return at, by
}
