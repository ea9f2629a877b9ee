package export

import (
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
)

// drawRequest draws the request as a whole: at the engine from entry to exit, and at the client.
func (t *timeline) drawRequest(i int, q *correlate.RequestTimeline) {
	t.drawEngine(i, q)
	if q.Client != nil {
		t.drawClient(i, q.Client)
	}
}

func (t *timeline) drawEngine(i int, q *correlate.RequestTimeline) {
	w := t.w
	whole := q.Entry.NS != nil && q.Exit.NS != nil && *q.Exit.NS >= *q.Entry.NS
	if !whole {
		t.engineMark(i, q, &q.Entry, "entry")
		t.engineMark(i, q, &q.Reply, "first reply")
		t.engineMark(i, q, &q.Exit, "exit")
		return
	}
	begin, end := *q.Entry.NS, *q.Exit.NS
	inside := q.Reply.NS != nil && *q.Reply.NS >= begin && *q.Reply.NS <= end
	track := t.lane(t.requests, laneEngine, begin, end)
	w.begin(track, begin, t.id)
	w.noteWord(noteState, q.State)
	w.noteWord(noteSource, q.Source)
	w.noteMaybeDouble(noteResidual, q.Residual)
	w.notePoint(&t.grades, noteBegin, &q.Entry)
	w.notePoint(&t.grades, noteEnd, &q.Exit)
	if q.InFlight {
		w.noteString(noteReason, "in flight when recording began")
	}
	for _, n := range q.Notes {
		w.noteString(noteNote, n)
	}
	w.correlation(i)
	w.emit()
	if inside {
		w.instant(track, *q.Reply.NS, w.name("first reply"))
		w.noteGrade(&t.grades, noteBegin, &q.Reply)
		w.emit()
	}
	w.end(track, end)
	if !inside {
		t.engineMark(i, q, &q.Reply, "first reply")
	}
}

// engineMark shows one known moment of a request that has no slice to put it in.
func (t *timeline) engineMark(i int, q *correlate.RequestTimeline, p *correlate.Point, name string) {
	if p.NS == nil {
		return
	}
	t.w.instant(t.lane(t.requests, laneEngine, *p.NS, *p.NS), *p.NS, t.w.name(name))
	t.w.noteString(noteRequest, q.ID)
	t.w.noteWord(noteState, q.State)
	t.w.notePoint(&t.grades, noteBegin, p)
	t.w.correlation(i)
	t.w.emit()
}

// clientPart is what the client did between two of its own times.
type clientPart struct {
	name     string
	from, to *int64
}

// clientParts are consecutive; the first that is known begins the client's slice.
func clientParts(c *run.Request) [5]clientPart {
	ready := c.DequeuedNS
	if ready == nil {
		ready = c.SentNS
	}
	return [5]clientPart{
		{"planned, not taken up", c.PlannedNS, ready},
		{"connect", c.DequeuedNS, c.SentNS},
		{"send request", c.SentNS, c.WrittenNS},
		{"wait for first byte", c.WrittenNS, c.FirstByteNS},
		{"reply", c.FirstByteNS, c.EndNS},
	}
}

// drawClient draws the client's own times. They are readings of one clock in one thread, hence in
// order; a part that is not is left out.
func (t *timeline) drawClient(i int, c *run.Request) {
	w := t.w
	first := c.SentNS
	for _, ns := range []*int64{c.DequeuedNS, c.PlannedNS} {
		if ns != nil && (first == nil || *ns < *first) {
			first = ns
		}
	}
	if first == nil || c.EndNS == nil || *c.EndNS < *first {
		t.clientMarks(i, c, t.requests, nil)
		return
	}
	last := *first
	track := t.lane(t.requests, laneClient, *first, *c.EndNS)
	w.begin(track, *first, w.name(c.ID))
	w.noteWord(noteState, c.State)
	w.noteInt(noteStatus, int64(c.Status))
	w.noteOnce(noteError, c.Error)
	w.correlation(i)
	w.emit()
	events := c.Events
	for _, p := range clientParts(c) {
		if p.from == nil || p.to == nil || *p.from < last || *p.to < *p.from || *p.to > *c.EndNS {
			continue
		}
		last = *p.to
		w.begin(track, *p.from, w.name(p.name))
		w.emit()
		for len(events) > 0 && p.to == c.EndNS && events[0].MonoNS <= *p.to {
			t.reply(track, &events[0])
			events = events[1:]
		}
		w.end(track, *p.to)
	}
	w.end(track, *c.EndNS)
	if len(events) > 0 {
		t.clientMarks(i, c, t.requests, events)
	}
}

// reply marks an event of a streamed reply.
func (t *timeline) reply(track uint64, e *run.ReplyEvent) {
	t.w.instant(track, e.MonoNS, t.w.name(e.Kind))
	t.w.noteInt(noteBytes, int64(e.Bytes))
	t.w.emit()
}

// clientMarks shows moments of a client that do not lie inside its slice: all of them when it has
// none, else the events that are left.
func (t *timeline) clientMarks(i int, c *run.Request, p *processTrack, events []run.ReplyEvent) {
	mark := func(ns *int64, name string) {
		if ns == nil {
			return
		}
		t.w.instant(t.lane(p, laneClient, *ns, *ns), *ns, t.w.name(name))
		t.w.noteString(noteRequest, c.ID)
		t.w.noteWord(noteState, c.State)
		t.w.noteOnce(noteError, c.Error)
		t.w.correlation(i)
		t.w.emit()
	}
	if events == nil {
		mark(c.PlannedNS, "planned")
		mark(c.SentNS, "sent")
		mark(c.FirstByteNS, "first byte")
		mark(c.EndNS, "end")
		events = c.Events
	}
	for j := range events {
		mark(&events[j].MonoNS, events[j].Kind)
	}
}
