package correlate

import (
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// aRound is a loop 20 that sends on endpoint 7 itself and slept at 100, and a lone compute thread 22
// that signals to it over endpoint 5, a window of the result that left at `left`, and the earlier and
// later results. Before it, 30 results that were signalled and left one by one.
func aRound(left int64, signals, sends []int64) *window {
	x := newProcess(0)
	loop, compute := x.thread(20), x.thread(22)
	x.roles.gives[tidEP{22, 5}], x.roles.takes[tidEP{20, 5}] = 9, 9
	add := func(at []int64, sent []int64) {
		for _, ns := range at {
			compute.gave = append(compute.gave, signal{ns, ns + 1, 5})
		}
		for _, ns := range sent {
			x.sends = append(x.sends, arrival{ns: ns, ep: 7, typ: "complete"})
		}
	}
	for i := range int64(30) {
		add([]int64{-3000 + i*100}, []int64{-2990 + i*100})
	}
	for _, out := range []int64{100, 900} {
		loop.off = append(loop.off, run.OffCPU{OutNS: out, WakeNS: out + 20, InNS: out + 30, State: run.OffSleep, Call: callPoll})
	}
	add(signals, sends)
	h := &hop{c: &crossing{send: &run.Message{EP: 7, TID: 20, Type: "complete", FirstEnterNS: left}}}
	return &window{p: x, role: roles{io: 20, loop: 20, compute: []uint32{22}}, one: h, last: h, take: 20}
}

func TestRoundOf(t *testing.T) {
	for _, c := range []struct {
		name           string
		signals, sends []int64
		left           int64
		place          int
		silent, sure   bool
	}{
		{"one signal a result: the second came with the second", []int64{120, 300}, []int64{400, 410}, 410, 1, false, true},
		{"the loop was awake: the second came without a signal", []int64{120}, []int64{400, 410}, 410, 1, true, false},
		{"the first of these was signalled", []int64{120}, []int64{400, 410}, 400, 0, true, false},
		{"two by one signal, then a third: whose the second signal is, is not known", []int64{120, 300}, []int64{400, 410, 420}, 410, 1, true, false},
		{"results of the next round do not count", []int64{120, 300, 950}, []int64{400, 410, 990}, 410, 1, false, true},
	} {
		w := aRound(c.left, c.signals, c.sends)
		r := w.roundOf(w.one, 100, c.left)
		if r.place != c.place || r.silent != c.silent || r.sure != c.sure {
			t.Errorf("%s: place %d silent %t sure %t, want %d %t %t", c.name, r.place, r.silent, r.sure, c.place, c.silent, c.sure)
		}
	}
}

// Two results wait for a loop that was awake when the second came: its signal is not the second's end.
func TestUnsignalledResult(t *testing.T) {
	for _, c := range []struct {
		name    string
		signals []int64
		want    interval
	}{
		{"without a signal of its own: up to its send", []int64{120}, interval{110, 410, 410, ruleSilent, nil}},
		{"with one: then", []int64{120, 300}, interval{290, 300, 300, "compute signalled, in order", nil}},
	} {
		w := aRound(410, c.signals, []int64{400, 410})
		f := w.finish(interval{lo: 50, ns: 50, hi: 60}, w.one, 410)
		if f = w.bySignals(f, interval{lo: 50, ns: 50, hi: 60}); f.lo != c.want.lo || f.ns != c.want.ns || f.hi != c.want.hi || f.rule != c.want.rule {
			t.Errorf("%s: %+v, want %+v", c.name, f, c.want)
		}
	}
}

// What follows a result without a signal began later than the last signal says.
func TestStartAfterAnUnsignalledResult(t *testing.T) {
	for _, c := range []struct {
		name    string
		signals []int64
		want    bool
	}{
		{"both before it were signalled", []int64{120, 300, 950}, false},
		{"the second was not", []int64{120, 950}, true},
	} {
		w := aRound(1000, c.signals, []int64{400, 410, 1000})
		w.first = 1000
		if got := w.unsignalled(c.signals[len(c.signals)-2]); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

// A compute thread that ran out of work and got more before the result was sent may have got it then.
func TestWentIdle(t *testing.T) {
	w := aRound(410, nil, nil)
	w.p.thread(22).off = []run.OffCPU{{OutNS: 200, WakeNS: 300, InNS: 310, State: run.OffSleep, Call: callFutex, WakerTID: 20}}
	for _, c := range []struct {
		hi    int64
		again bool
	}{{410, true}, {290, false}} {
		if ns, again := w.wentIdle(150, c.hi); ns != 200 || again != c.again {
			t.Errorf("up to %d: idle at %d, again %t, want 200 and %t", c.hi, ns, again, c.again)
		}
		f := w.finish(interval{lo: 50, ns: 50, hi: 150}, w.one, c.hi)
		if want := map[bool]int64{true: c.hi, false: 200}[c.again]; f.hi != want || f.ns != 200 {
			t.Errorf("up to %d: finish %+v, want 200 up to %d", c.hi, f, want)
		}
	}
}

// While a start is uncertain its result's own signal may be any from the earliest start on.
func TestOwnSignalAfterAnUncertainStart(t *testing.T) {
	w := aRound(410, []int64{150, 300, 390}, []int64{210, 395, 410})
	w.p.roles.results, w.p.roles.signalled = 100, 100
	f := w.bySignals(interval{lo: 110, ns: 390, hi: 410}, interval{lo: 120, ns: 200, hi: 250})
	if f.lo != 140 || f.hi != 390 {
		t.Errorf("%+v, want 140 to 390", f)
	}
}
