package correlate

import (
	"cmp"
	"sort"

	"github.com/stageline/stageline/collector/run"
)

const (
	// perSignalTolerance is how far the number of messages per signal may be from a whole number.
	perSignalTolerance = 0.05
	minSignals         = 20
	// maxSignals is how many signals before a result are looked at.
	maxSignals = 512
	// ruleSilent names a result that may have been handed over without a signal, ruleSharedSignal one that
	// was handed over by a signal, and without one perhaps earlier.
	ruleSilent       = "results outnumber signals"
	ruleSharedSignal = "signalled by then, results outnumber signals"
)

// round is what a lone compute thread handed over since the loop slept, as far as its signals and the
// messages that left tell. A thread may signal only a loop that sleeps, or join signals that the loop
// has not read, so that one signal can stand for several results.
type round struct {
	signals []signal // since the loop slept, up to the result's send and to the end of the round
	before  int      // of them, up to the send
	place   int      // results that left before this one
	silent  bool     // more results left than were signalled: the k-th came with the k-th signal or before
	sure    bool     // the k-th came with the k-th signal
}

// roundOf finds the round of the result that left as h, in the loop's hands by anchor, where the loop
// last slept at slept before that.
func (w *window) roundOf(h *hop, slept, anchor int64) (r round) {
	if len(w.role.compute) != 1 || w.role.compute[0] == w.role.loop || h.c == nil || h.c.send == nil {
		return r
	}
	end := w.sleptAfter(w.role.loop, anchor)
	by := w.sender(h)
	if by != w.role.loop {
		end = w.sleptAfter(by, end)
	}
	signals := w.resultSignals(end)
	first := sort.Search(len(signals), func(i int) bool { return signals[i].enter > slept })
	r.signals = signals[first:]
	r.before = sort.Search(len(r.signals), func(i int) bool { return r.signals[i].enter > anchor })
	if r.before == 0 {
		return r
	}
	since, m := r.signals[0].enter, h.c.send
	s, ok := w.p.thread(by).sleepAt(since)
	older := by != w.role.loop && (!ok || !loopSleep(s)) // results that it still had to send then count as well
	one := w.last == w.one                               // what makes several results for a request works at many in turn and signals once for all
	per, same := w.p.messagesPerSignal(signals[:first+r.before], m.Type, anchor), func(a arrival) bool { return a.typ == m.Type }
	if per == 0 {
		r.place = w.p.sentBefore(since, m, func(a arrival) bool { return same(a) && a.ep == m.EP })
		r.silent = one && r.place >= r.before
		return r
	}
	r.place = w.p.sentBefore(since, m, same) / per
	more := r.place >= r.before || w.p.sentBy(since, end, same) > per*len(r.signals)
	r.silent, r.sure = more && one, !more && !older
	return r
}

// unsignalled reports that more results left before the first one of this visit than were signalled by
// ns, the last signal before its own, counted from the last sleep of the loop before ns on: the one that
// precedes it was not signalled.
func (w *window) unsignalled(ns int64) bool {
	s, ok := w.p.thread(w.role.loop).lastOff(ns-maxLookNS, ns, loopSleep)
	if !ok || w.one == nil || w.last != w.one {
		return false
	}
	r := w.roundOf(w.one, s.OutNS, w.first)
	return r.place > sort.Search(len(r.signals), func(i int) bool { return r.signals[i].enter > ns })
}

// sleptAfter is when a thread next slept after ns for want of events; ns when it was not seen to.
func (w *window) sleptAfter(tid uint32, ns int64) int64 {
	if s, ok := w.p.thread(tid).nextOff(ns, ns+maxLookNS, loopSleep); ok {
		return s.OutNS
	}
	return ns
}

// sentBefore counts the data messages that left from since on and before m and that ok accepts.
func (x *process) sentBefore(since int64, m *run.Message, ok func(arrival) bool) (n int) {
	at := cmp.Or(m.FirstEnterNS, messageNS(m))
	for _, a := range x.sentIn(since, at) {
		if (a.ns < at || a.ep == m.EP && a.pos < m.Pos) && ok(a) {
			n++
		}
	}
	return n
}

// sentBy counts the data messages that left in [since, until] and that ok accepts.
func (x *process) sentBy(since, until int64, ok func(arrival) bool) (n int) {
	for _, a := range x.sentIn(since, until) {
		if ok(a) {
			n++
		}
	}
	return n
}

// resultSignals are the last signals of a lone compute thread to the loop by ns, in order; none where
// it signals to others as well.
func (w *window) resultSignals(ns int64) []signal {
	t := w.p.thread(w.role.compute[0])
	for ep := range t.gaveEPs {
		if w.p.roles.takes[tidEP{w.role.loop, ep}] == 0 {
			return nil
		}
	}
	n := sort.Search(len(t.gave), func(i int) bool { return t.gave[i].enter > ns })
	return t.gave[max(0, n-maxSignals):n]
}

// perSignal is an answer of messagesPerSignal, kept for a while: it describes a stage, not a result.
type perSignal struct {
	atNS int64
	n    int
}

const keepPerSignalNS = 1_000_000_000

// messagesPerSignal is how many data messages of a type the process sends for each of these signals,
// which reach up to ns; 0 where it is no whole number or too few are known.
func (x *process) messagesPerSignal(signals []signal, typ string, ns int64) int {
	if k, ok := x.perSignal[typ]; ok && ns >= k.atNS && ns < k.atNS+keepPerSignalNS {
		return k.n
	}
	n := x.countPerSignal(signals, typ, ns)
	if len(x.perSignal) == 0 || len(x.perSignal) > 64 { // types come from the streams
		x.perSignal = map[string]perSignal{}
	}
	x.perSignal[typ] = perSignal{ns, n}
	return n
}

func (x *process) countPerSignal(signals []signal, typ string, ns int64) int {
	if len(signals) == 0 || len(x.sends) == 0 {
		return 0
	}
	from := max(signals[0].enter, x.sends[0].ns)
	n := len(signals) - sort.Search(len(signals), func(i int) bool { return signals[i].enter >= from })
	if n < minSignals {
		return 0
	}
	m := x.sentBy(from, ns, func(a arrival) bool { return a.typ == typ })
	per := (m + n/2) / n
	if d := float64(m)/float64(n) - float64(per); per == 0 || max(d, -d) > perSignalTolerance*float64(per) {
		return 0
	}
	return per
}
