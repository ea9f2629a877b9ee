package correlate

import (
	"cmp"
	"sort"

	"github.com/stageline/stageline/collector/run"
)

// perSignalTolerance is how far the number of messages per signal may be from a whole number.
const (
	perSignalTolerance = 0.05
	minSignals         = 20
)

// inOrder is when compute signalled the result that left as h, if several results waited for the
// loop, or for the thread that sends, since the loop slept at slept: one that hands on what it is
// given in its order sends the messages of the k-th signal k-th. That needs a lone compute thread that
// signals each result, a whole number of messages of this type per result, and a sending thread that
// had nothing left to send when the first of the results came. 0 where these do not hold.
func (w *window) inOrder(h *hop, slept, anchor int64) int64 {
	if len(w.role.compute) != 1 || h.c == nil || h.c.send == nil {
		return 0
	}
	signals := w.resultSignals()
	first := sort.Search(len(signals), func(i int) bool { return signals[i].enter > slept })
	if first == len(signals) || signals[first].enter > anchor {
		return 0
	}
	if by := w.sender(h); by != w.role.loop {
		if s, ok := w.p.thread(by).sleepAt(signals[first].enter); !ok || !loopSleep(s) {
			return 0
		}
	}
	per := w.p.messagesPerSignal(signals, h.c.send.Type, anchor)
	if per == 0 {
		return 0
	}
	i := first + w.p.sentOfType(signals[first].enter, h.c.send)/per
	if i >= len(signals) || signals[i].enter > anchor {
		return 0
	}
	return signals[i].enter
}

// sentOfType counts the data messages of the type of m that left from since on and before m.
func (x *process) sentOfType(since int64, m *run.Message) (n int) {
	at := cmp.Or(m.FirstEnterNS, messageNS(m))
	for i := len(x.sends) - 1; i >= 0 && x.sends[i].ns >= since-graceNS; i-- {
		a := x.sends[i]
		if a.typ == m.Type && a.ns >= since && (a.ns < at || a.ns == at && a.ep == m.EP && a.pos < m.Pos) {
			n++
		}
	}
	return n
}

// resultSignals are the signals of a lone compute thread to the loop, in order; none where it
// signals to others as well.
func (w *window) resultSignals() []signal {
	t := w.p.thread(w.role.compute[0])
	for ep := range t.gaveEPs {
		if w.p.roles.takes[tidEP{w.role.loop, ep}] == 0 {
			return nil
		}
	}
	return t.gave
}

// perSignal is an answer of messagesPerSignal, kept for a while: it describes a stage, not a result.
type perSignal struct {
	atNS int64
	n    int
}

const keepPerSignalNS = 1_000_000_000

// messagesPerSignal is how many data messages of a type the process sends for each signal, judged by
// what is kept of both up to ns; 0 where it is no whole number or too few are known.
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
	n := sort.Search(len(signals), func(i int) bool { return signals[i].enter > ns }) -
		sort.Search(len(signals), func(i int) bool { return signals[i].enter >= from })
	m := 0
	for _, s := range x.sends {
		if s.typ == typ && s.ns >= from && s.ns <= ns {
			m++
		}
	}
	if n < minSignals {
		return 0
	}
	per := (m + n/2) / n
	if d := float64(m)/float64(n) - float64(per); per == 0 || max(d, -d) > perSignalTolerance*float64(per) {
		return 0
	}
	return per
}
