package export

import (
	"slices"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/diagnose"
)

// rampSteps is how often at most the growing oldest wait of one stage is written between changes,
// over the whole time; rampStepNS is the least time between two of them.
const (
	rampSteps  = 4000
	rampStepNS = 10_000_000
)

// drawActivations draws the activations that have one of the chosen requests in them.
func (t *timeline) drawActivations(chosen []bool) {
	var members []stringID
	for _, a := range t.r.Result.AllActivations() {
		if a.Start.NS == nil || a.Finish.NS == nil || *a.Finish.NS < *a.Start.NS {
			continue
		}
		if !slices.ContainsFunc(a.Members, func(m [2]int) bool { return chosen[m[0]] }) {
			continue
		}
		members = members[:0]
		for _, m := range a.Members {
			members = append(members, t.w.intern(&t.w.strings, t.r.Result.ID(m[0])))
		}
		t.activation(a, members)
	}
}

func (t *timeline) activation(a *correlate.Activation, members []stringID) {
	w := t.w
	track := t.lane(t.stage(a.Stage), laneActivations, *a.Start.NS, *a.Finish.NS)
	w.begin(track, *a.Start.NS, w.name("batch of "+unsignedText(uint32(len(members)))))
	w.noteInt(noteBatch, int64(len(members)))
	w.noteWord(noteIdentity, string(a.Identity))
	w.noteUint(notePID, uint64(a.TGID))
	w.notePoint(&t.grades, noteBegin, &a.Start)
	w.notePoint(&t.grades, noteEnd, &a.Finish)
	w.noteList(noteMembers, members)
	w.emit()
	w.end(track, *a.Finish.NS)
}

func (t *timeline) drawCounters() {
	for i := range t.r.Series {
		t.series(&t.r.Series[i])
	}
	if t.r.Series == nil {
		for s := range diagnose.Series(t.r.Result) {
			t.series(&s)
		}
	}
	counts := diagnose.Running(t.r.Result)
	t.counts(t.counterOf(t.requests, counterInFlight, len(counts.InFlight)), counts.InFlight)
	for _, name := range sortedKeys(counts.Batch) {
		t.counts(t.counterOf(t.stage(name), counterBatch, len(counts.Batch[name])), counts.Batch[name])
	}
}

// counterOf is a counter's track when it has values; a counter that shows nothing has none.
func (t *timeline) counterOf(p *processTrack, kind counterKind, n int) uint64 {
	if n == 0 {
		return 0
	}
	return t.counter(p, kind)
}

// counts writes a counter inside the cut. The value that holds at its begin is written there.
func (t *timeline) counts(track uint64, points []diagnose.Count) {
	for i, p := range points {
		if p.NS > t.toNS || i+1 < len(points) && points[i+1].NS <= t.fromNS {
			continue
		}
		t.w.counter(track, max(p.NS, t.fromNS), float64(p.N))
	}
}

// series writes what stood and ran at one stage.
func (t *timeline) series(s *diagnose.StageSeries) {
	if len(s.Points) == 0 {
		return
	}
	p := t.stages[s.Stage]
	if p == nil { // a stage that is named nowhere else
		p = t.process(s.Stage, nil, "")
		t.stages[s.Stage] = p
	}
	queue, active, oldest := t.counter(p, counterQueue), t.counter(p, counterActive), t.counter(p, counterOldest)
	from, to := max(t.fromNS, s.Points[0].NS), min(t.toNS, s.Points[len(s.Points)-1].NS)
	step := max(rampStepNS, (to-from)/rampSteps)
	for i := range s.Points {
		pt := &s.Points[i]
		until := pt.NS
		if i+1 < len(s.Points) {
			until = s.Points[i+1].NS
		}
		if pt.NS > t.toNS || i+1 < len(s.Points) && until <= t.fromNS {
			continue
		}
		at := max(pt.NS, t.fromNS)
		t.w.counter(queue, at, float64(pt.Queue))
		t.w.counter(active, at, float64(pt.Active))
		t.ramp(oldest, pt.OldestNS, at, min(until, t.toNS), step)
	}
}

// ramp writes how long the oldest waiting visit has waited. It grows between the points of the
// series: it is written at the first, in steps, and once more at the next point, where it is longest.
func (t *timeline) ramp(track uint64, oldest *int64, from, to, step int64) {
	if oldest == nil {
		t.w.counter(track, from, 0)
		return
	}
	for at := from; at < to; at += step {
		t.w.counter(track, at, float64(at-*oldest)/1e6)
	}
	t.w.counter(track, to, float64(to-*oldest)/1e6)
}
