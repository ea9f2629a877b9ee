package correlate

import "github.com/stageline/stageline/collector/run"

// stepping is a visit at the steps of its lone compute thread.
type stepping struct {
	w        *window
	tid      uint32
	kind     stepKind
	steps    []run.OffCPU
	more     int // steps it takes after its first
	from, to int // the range that its first step is in
	at       int // the likely one
}

// stepped narrows the boundaries of a visit to its steps, where the stage shows such.
func (w *window) stepped(j job, ready, start, finish *interval) {
	if len(w.role.compute) != 1 || w.role.compute[0] == w.role.loop || w.first == 0 {
		return
	}
	s := stepping{w: w, tid: w.role.compute[0], more: j.results - 1}
	m := w.p.learnSteps(s.tid)
	if m.kind == stepsUnknown || !m.takes(j) {
		return
	}
	s.kind, s.steps = m.kind, w.p.stepsOf(s.tid)
	s.from, s.to = w.p.steps.place(s.steps, m, j)
	if s.to < s.from || s.to+s.more >= len(s.steps) {
		return
	}
	s.choose(ready, start, finish)
	begin, end := s.bounds(*start, *finish)
	if begin.lo > begin.hi || end.lo > end.hi {
		return
	}
	if s.from == s.to || s.kind == stepsShared {
		s.beginning(&begin)
	}
	s.ending(&end)
	begin.ns, end.ns = min(max(begin.ns, begin.lo), begin.hi), min(max(end.ns, end.lo), end.hi)
	*start, *finish = begin, end
	if ready.lo <= begin.hi {
		ready.hi = min(ready.hi, begin.hi)
		ready.ns = min(ready.ns, ready.hi)
	}
	if s.from == s.to && s.kind == stepsSerial {
		s.awaited(ready)
	}
}

// choose drops the steps that what is known of start and finish rules out, and picks the likely one.
func (s *stepping) choose(ready, start, finish *interval) {
	for ; s.from < s.to && (s.next(s.from, finish.lo) || s.steps[s.from].OutNS < start.lo); s.from++ {
	}
	for ; s.from < s.to && (s.steps[s.to+s.more].InNS > finish.hi || s.steps[s.to-1].InNS > start.hi); s.to-- {
	}
	begun := start.ns
	if s.kind == stepsShared {
		begun = ready.ns
	}
	for s.at = s.from; s.at < s.to && s.steps[s.at].OutNS < begun; s.at++ {
	}
}

// next reports that the step after the last of a job that begins with first sleeps before ns.
func (s *stepping) next(first int, ns int64) bool {
	k := first + s.more + 1
	return k < len(s.steps) && s.steps[k].OutNS < ns
}

// bounds narrows start and finish to what all steps of the range allow.
func (s *stepping) bounds(start, finish interval) (begin, end interval) {
	begin, end = start, finish
	begin.hi = min(begin.hi, s.steps[s.to].OutNS)
	if s.from > 0 {
		begin.lo = max(begin.lo, s.steps[s.from-1].InNS)
	}
	end.lo = max(end.lo, s.steps[s.from+s.more].InNS)
	if k := s.to + s.more + 1; k < len(s.steps) {
		end.hi = min(end.hi, s.steps[k].OutNS)
	}
	return begin, end
}

// prior is when the step before the likely one ended; 0 none.
func (s *stepping) prior() int64 {
	if s.at == 0 {
		return 0
	}
	return s.steps[s.at-1].InNS
}

// ending places the hand-over after the last sleep of the work, unless compute showed it: by waking a
// courier, by its own signal, or by going idle where it does one job at a time.
func (s *stepping) ending(end *interval) {
	told := end.rule == "courier woken" || end.rule == "compute signalled" ||
		s.kind == stepsSerial && end.rule != ruleSilent && (s.w.role.courier == 0 || end.rule == "compute went idle")
	sure := s.from == s.to || s.kind == stepsShared
	slept := s.steps[s.at+s.more].InNS
	if sure && !told || end.ns < slept || s.next(s.at, end.ns) {
		end.ns, end.rule = s.w.pastLocks(s.w.p.thread(s.tid), slept)+handNS, "its work slept"
	}
}

// beginning places the begin of a step between the end of the step before it and its own sleep: behind
// the last result that compute handed over meanwhile, and behind its last sleep for want of work.
func (s *stepping) beginning(begin *interval) {
	t, before, sleeps := s.w.p.thread(s.tid), s.prior(), s.steps[s.at].OutNS
	after := max(before, begin.lo)
	if s.w.role.courier == 0 && begin.ns >= after && begin.ns <= begin.hi {
		return // compute signals its results itself: the rules that follow its signals know more
	}
	sig := s.w.lastSignal(after, sleeps)
	o, idle := t.lastOff(before, sleeps, s.w.idle)
	switch {
	case idle && o.InNS <= sleeps && o.InNS >= max(after, sig):
		sig = o.InNS
		begin.ns, begin.rule = s.w.pastLocks(t, o.InNS), ruleWoken
	case sig != 0:
		begin.ns, begin.rule = sig, "after the result before it"
	case begin.rule != ruleWoken || begin.ns > sleeps || begin.ns < before:
		begin.ns, begin.rule = max(before, sleeps-handNS), "its work sleeps"
		if o, ok := t.lastOff(before, sleeps, func(o run.OffCPU) bool { return o.State == run.OffSleep }); ok {
			begin.ns = max(before, o.InNS)
		}
	}
	if s.from == s.to {
		begin.lo = max(begin.lo, min(sig, begin.hi))
	}
}

// awaited narrows ready of a job before whose step the lone compute thread slept for want of work: the
// job came after it went to sleep, and the wake-up that ended the last such sleep is its own.
func (s *stepping) awaited(ready *interval) {
	sleeps := s.steps[s.at].OutNS
	o, ok := s.w.p.thread(s.tid).lastOff(s.prior(), sleeps, s.w.idle)
	o = s.firstOfWaits(o)
	if !ok || o.InNS > sleeps || o.WakeNS < ready.lo || o.WakeNS > ready.hi {
		return
	}
	ready.lo = max(ready.lo, o.OutNS)
	ready.ns, ready.rule = o.WakeNS, "compute woken"
}

// firstOfWaits goes back from a sleep for want of work to the first such of a row of sleeps in which
// the thread hardly ran between: a wake-up whose giver still holds what the thread needs to take the
// work up (the interpreter, the queue) is followed by waits for that.
func (s *stepping) firstOfWaits(o run.OffCPU) run.OffCPU {
	t, first := s.w.p.thread(s.tid), o
	for range 16 {
		p, ok := t.lastOff(s.prior(), o.OutNS, func(run.OffCPU) bool { return true })
		if !ok || o.OutNS-p.InNS > lockGapNS || p.State == run.OffSleep && p.Call != callFutex {
			break
		}
		if o = p; s.w.idle(o) {
			first = o
		}
	}
	return first
}
