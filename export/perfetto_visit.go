package export

import (
	"cmp"
	"slices"

	"github.com/stageline/stageline/correlate"
)

// part is one slice inside a visit, from one boundary to another.
type part struct {
	name     string
	from, to *correlate.Point
}

// parts are the slices inside a visit, in time order.
func parts(v *correlate.Visit) [4]part {
	return [4]part{
		{"wait for inputs", &v.Arrival, &v.Ready},
		{"queue wait", &v.Ready, &v.Start},
		{"service", &v.Start, &v.Finish},
		{"send", &v.Finish, &v.Departure},
	}
}

// known says that both ends are, and in order; negative that they are known in the wrong order.
func (p *part) known() (known, negative bool) {
	if p.from.NS == nil || p.to.NS == nil {
		return false, false
	}
	return *p.to.NS >= *p.from.NS, *p.to.NS < *p.from.NS
}

// drawn says how a part of a visit is drawn.
type drawn int

const (
	drawnNot    drawn = iota
	drawnNested       // inside the slice of its visit
	drawnApart        // on a track of its own: it overlaps the part before it
)

// box is the place of a visit on its track.
type box struct {
	whole      bool  // arrival and departure are known: there is a slice for the visit
	begin, end int64 // of the visit's slice; without one, of the parts that are drawn nested
	parts      [4]drawn
	fault      string
	marks      []mark // into the timeline's marks
}

// mark is an instant on the track of a visit: an input or output that the ends of its slice do not
// show.
type mark struct {
	ns   int64
	hop  int // index into Hops, -1: none
	from string
	out  bool
	flow uint64
	// chunk of an input that has no hop
	chunk *int64
}

const (
	faultLonger   = "longer than arrival to departure: a part of it is estimated to end later"
	faultNegative = "a part is left out: its end is estimated before its begin"
	faultApart    = "beside its visit: it is estimated to overlap the part before it"
)

// place decides how the parts of a visit are drawn. Estimates of neighbouring boundaries can
// disagree; then nothing is shortened, and what does not nest goes to a track of its own.
func (t *timeline) place(v *correlate.Visit) box {
	var b box
	b.whole = v.Arrival.NS != nil && v.Departure.NS != nil && *v.Departure.NS >= *v.Arrival.NS
	last, any, longer := int64(-1<<63), false, false
	if b.whole {
		b.begin, b.end, last, any = *v.Arrival.NS, *v.Departure.NS, *v.Arrival.NS, true
	}
	ps := parts(v)
	for i := range ps {
		p := &ps[i]
		known, negative := p.known()
		if negative {
			b.blame(faultNegative)
			t.w.stats.Negative++
		}
		if !known || i == 0 && !v.Join && *p.from.NS == *p.to.NS {
			continue
		}
		if *p.from.NS < last {
			b.parts[i] = drawnApart
			t.w.stats.Apart++
			continue
		}
		b.parts[i] = drawnNested
		last = *p.to.NS
		if !any {
			b.begin, b.end, any = *p.from.NS, last, true
		}
		longer = longer || b.whole && last > b.end
		b.end = max(b.end, last)
	}
	if longer {
		b.blame(faultLonger)
		t.w.stats.Extended++
	}
	return b
}

// blame says what is out of the ordinary in how the visit is drawn.
func (b *box) blame(fault string) {
	switch b.fault {
	case "":
		b.fault = fault
	case fault:
	default:
		b.fault += "; " + fault
	}
}

// visit draws one visit: its slice, the parts and marks inside it, and the parts beside it.
func (t *timeline) visit(req int, q *correlate.RequestTimeline, v *correlate.Visit, b *box) {
	p := t.stage(v.Stage)
	slices.SortStableFunc(b.marks, func(a, c mark) int { return cmp.Compare(a.ns, c.ns) })
	first, end := b.begin, b.end
	if n := len(b.marks); n > 0 {
		if b.whole || b.hasNested() {
			first, end = min(first, b.marks[0].ns), max(end, b.marks[n-1].ns)
		} else {
			first, end = b.marks[0].ns, b.marks[n-1].ns
		}
	} else if !b.whole && !b.hasNested() {
		t.apart(req, q, v, b)
		return
	}
	track := t.lane(p, laneRequests, first, end)
	marks := b.marks
	if b.whole {
		marks = t.marksBefore(track, q, marks, b.begin)
		t.w.begin(track, b.begin, t.id)
		t.noteVisit(req, v, b)
		t.w.emit()
	}
	ps := parts(v)
	for i := range ps {
		if b.parts[i] != drawnNested {
			continue
		}
		marks = t.marksBefore(track, q, marks, *ps[i].from.NS)
		t.part(track, q, v, b, &ps[i], t.partNames[i])
		marks = t.marksBefore(track, q, marks, *ps[i].to.NS)
		t.w.end(track, *ps[i].to.NS)
	}
	if b.whole {
		marks = t.marksBefore(track, q, marks, b.end+1)
		t.w.end(track, b.end)
	}
	t.marksBefore(track, q, marks, 1<<63-1)
	t.apart(req, q, v, b)
}

func (b *box) hasNested() bool { return slices.Contains(b.parts[:], drawnNested) }

// apart draws the parts of a visit that do not nest.
func (t *timeline) apart(req int, q *correlate.RequestTimeline, v *correlate.Visit, b *box) {
	ps := parts(v)
	for i := range ps {
		if b.parts[i] != drawnApart {
			continue
		}
		track := t.lane(t.stage(v.Stage), laneRequests, *ps[i].from.NS, *ps[i].to.NS)
		t.w.begin(track, *ps[i].from.NS, t.partNames[i])
		t.w.noteString(noteRequest, q.ID)
		t.w.noteMaybe(noteChunk, v.Chunk)
		t.w.noteString(noteFault, faultApart)
		t.w.notePoint(&t.grades, noteBegin, ps[i].from)
		t.w.notePoint(&t.grades, noteEnd, ps[i].to)
		t.w.correlation(req)
		t.w.emit()
		t.w.end(track, *ps[i].to.NS)
	}
}

// noteVisit annotates the slice of a visit and attaches the arrows that end at its begin or begin
// at its end.
func (t *timeline) noteVisit(req int, v *correlate.Visit, b *box) {
	w := t.w
	w.noteMaybe(noteChunk, v.Chunk)
	w.noteWord(noteIdentity, string(v.Identity))
	w.noteUint(notePID, uint64(v.TGID))
	w.notePoint(&t.grades, noteBegin, &v.Arrival)
	w.notePoint(&t.grades, noteEnd, &v.Departure)
	w.noteMaybeDouble(noteOnCPU, v.OnCPUUS)
	w.noteMaybeDouble(noteRunQueue, v.RunQueueUS)
	w.noteString(noteFault, b.fault)
	w.correlation(req)
	for _, h := range v.Outputs {
		if e := t.edge(h); e != nil && e.source == endBox && e.sourceVisit == b {
			w.flowStart(e.flow)
		}
	}
	for i := range v.Inputs {
		if e := t.edge(v.Inputs[i].Hop); e != nil && e.target == endBox && e.targetVisit == b {
			w.flowEnd(e.flow)
		}
	}
}

// part opens one slice inside a visit; where the visit has none itself, the part names the request.
func (t *timeline) part(track uint64, q *correlate.RequestTimeline, v *correlate.Visit, b *box, p *part, name stringID) {
	t.w.begin(track, *p.from.NS, name)
	t.w.notePoint(&t.grades, noteBegin, p.from)
	t.w.notePoint(&t.grades, noteEnd, p.to)
	if !b.whole {
		t.w.noteString(noteRequest, q.ID)
		t.w.noteMaybe(noteChunk, v.Chunk)
	}
	t.w.emit()
}

// marksBefore draws the marks before ns and returns the others.
func (t *timeline) marksBefore(track uint64, q *correlate.RequestTimeline, marks []mark, ns int64) []mark {
	for len(marks) > 0 && marks[0].ns < ns {
		t.mark(track, q, &marks[0])
		marks = marks[1:]
	}
	return marks
}

func (t *timeline) mark(track uint64, q *correlate.RequestTimeline, m *mark) {
	w := t.w
	if m.out {
		w.instant(track, m.ns, t.output)
		w.noteWord(noteTo, q.Hops[m.hop].To)
		w.noteMaybe(noteChunk, q.Hops[m.hop].Chunk)
	} else {
		w.instant(track, m.ns, t.input)
		w.noteWord(noteFrom, m.from)
		w.noteMaybe(noteChunk, m.chunk)
	}
	if m.flow != 0 && m.out {
		w.flowStart(m.flow)
	} else if m.flow != 0 {
		w.flowEnd(m.flow)
	}
	w.emit()
}
