package export

import "github.com/stageline/stageline/correlate"

// end is where an arrow is tied to.
type end int

const (
	endNone  end = iota
	endHop       // the slice of the hop itself
	endBox       // the slice of a visit
	endMark      // a mark on the track of a visit
	endStage     // a mark of the receiving stage, outside any visit
)

// edge is the arrow of one hop. The event of its source must come before that of its target: at an
// earlier time, or at the same time and written before.
type edge struct {
	flow             uint64 // 0: no arrow
	source, target   end
	sourceVisit      *box
	targetVisit      *box
	sourceNS         int64
	targetNS         int64
	sourcePos        int // in writing order
	targetPos        int
	drawn            bool // the hop has a slice: both ends are known and in order
	sourced, reached bool // a visit has claimed this end
}

// hopKey is what many hops have in common, and hopKind what is drawn for it: looked up once a hop.
type hopKey struct{ kind, from, to, via string }

type hopKind struct {
	name     stringID
	from, to *processTrack
	fromWord stringID // 0: not known
	viaWord  stringID
}

// edge returns the arrow of a hop by its index; nil when there is none.
func (t *timeline) edge(hop int) *edge {
	if hop < 0 || hop >= len(t.edges) || t.edges[hop].flow == 0 {
		return nil
	}
	return &t.edges[hop]
}

// request draws all of one request: its hops first, then its visits, then what reached no visit.
// Arrows whose ends have equal times rely on this order.
func (t *timeline) request(i int, q *correlate.RequestTimeline) {
	t.id = t.w.name(q.ID)
	t.plan(q)
	t.drawRequest(i, q)
	for h := range q.Hops {
		t.hop(i, &q.Hops[h], &t.edges[h])
	}
	for v := range q.Visits {
		t.visit(i, q, &q.Visits[v], &t.boxes[v])
	}
	for h := range q.Hops {
		t.received(i, q, &q.Hops[h], &t.edges[h])
	}
}

// plan places the visits of a request and decides where its arrows begin and end.
func (t *timeline) plan(q *correlate.RequestTimeline) {
	t.boxes, t.edges, t.marks = t.boxes[:0], t.edges[:0], t.marks[:0]
	for i := range q.Visits {
		t.boxes = append(t.boxes, t.place(&q.Visits[i]))
	}
	for i := range q.Hops {
		t.edges = append(t.edges, newEdge(&q.Hops[i]))
	}
	for i := range q.Visits {
		t.claim(q, &q.Visits[i], &t.boxes[i], i+1)
	}
	for i := range t.edges {
		t.resolve(&q.Hops[i], &t.edges[i])
	}
	for i := range q.Visits {
		from := len(t.marks)
		t.collectMarks(q, &q.Visits[i], &t.boxes[i])
		t.boxes[i].marks = t.marks[from:len(t.marks):len(t.marks)]
	}
}

func newEdge(h *correlate.Hop) edge {
	var e edge
	if h.Send.NS == nil || h.Recv.NS == nil {
		return e
	}
	e.drawn = *h.Recv.NS >= *h.Send.NS
	e.source, e.sourceNS = endHop, *h.Send.NS
	e.target, e.targetNS, e.targetPos = endStage, *h.Recv.NS, 1<<62
	return e
}

// claim ties the hops of a visit to it: to the ends of its slice where the times are the same, else
// to marks. pos is the visit's place in the order of writing.
func (t *timeline) claim(q *correlate.RequestTimeline, v *correlate.Visit, b *box, pos int) {
	for _, i := range v.Outputs {
		if i < 0 || i >= len(t.edges) || t.edges[i].sourced || q.Hops[i].Send.NS == nil {
			continue
		}
		e := &t.edges[i]
		e.sourced, e.sourceVisit, e.sourcePos, e.sourceNS = true, b, pos, *q.Hops[i].Send.NS
		e.source = endMark
		if b.whole && e.sourceNS == b.end {
			e.source, e.sourceNS = endBox, b.begin
		}
	}
	for j := range v.Inputs {
		in := &v.Inputs[j]
		if in.Hop < 0 || in.Hop >= len(t.edges) || t.edges[in.Hop].reached || in.At.NS == nil {
			continue
		}
		e := &t.edges[in.Hop]
		e.reached, e.targetVisit, e.targetPos, e.targetNS = true, b, pos, *in.At.NS
		e.target = endMark
		if b.whole && e.targetNS == b.begin {
			e.target = endBox
		}
	}
}

// resolve gives the hop its arrow. When the sender's slice would not come first, the arrow begins
// at the slice of the hop.
func (t *timeline) resolve(h *correlate.Hop, e *edge) {
	if h.Send.NS == nil || h.Recv.NS == nil {
		return
	}
	before := e.sourceNS < e.targetNS || e.sourceNS == e.targetNS && e.sourcePos < e.targetPos
	if !before && e.drawn && *h.Send.NS <= e.targetNS {
		e.source, e.sourceVisit, e.sourceNS, e.sourcePos = endHop, nil, *h.Send.NS, 0
		before = true
	}
	if !before || e.source == endHop && !e.drawn {
		t.w.stats.FlowsLeftOut++
		return
	}
	t.lastFlow++
	e.flow = t.lastFlow
}

// collectMarks lists what the ends of a visit's slice do not show.
func (t *timeline) collectMarks(q *correlate.RequestTimeline, v *correlate.Visit, b *box) {
	for _, i := range v.Outputs {
		if i < 0 || i >= len(t.edges) {
			continue
		}
		send := q.Hops[i].Send.NS
		if send == nil || b.whole && *send == b.end {
			continue
		}
		m := mark{ns: *send, hop: i, out: true}
		if e := &t.edges[i]; e.source == endMark && e.sourceVisit == b {
			m.flow = e.flow
		}
		t.marks = append(t.marks, m)
	}
	for j := range v.Inputs {
		in := &v.Inputs[j]
		if in.At.NS == nil || b.whole && *in.At.NS == b.begin {
			continue
		}
		m := mark{ns: *in.At.NS, hop: in.Hop, from: in.From, chunk: in.Chunk}
		if in.Hop >= 0 && in.Hop < len(t.edges) && t.edges[in.Hop].targetVisit == b {
			m.flow = t.edges[in.Hop].flow
		}
		t.marks = append(t.marks, m)
	}
}

// hop draws the transfer from send to receive on a lane of its sender, or the one end that is known.
func (t *timeline) hop(req int, h *correlate.Hop, e *edge) {
	w, k := t.w, t.hopKind(h)
	switch {
	case e.drawn:
		track := t.lane(k.from, laneHops, *h.Send.NS, *h.Recv.NS)
		w.begin(track, *h.Send.NS, k.name)
		w.notePoint(&t.grades, noteBegin, &h.Send)
		w.notePoint(&t.grades, noteEnd, &h.Recv)
		t.noteHop(req, h, k)
		if e.flow != 0 && e.source == endHop {
			w.flowStart(e.flow)
		}
		w.emit()
		w.end(track, *h.Recv.NS)
	case h.Send.NS != nil:
		w.instant(t.lane(k.from, laneHops, *h.Send.NS, *h.Send.NS), *h.Send.NS, k.name)
		w.notePoint(&t.grades, noteBegin, &h.Send)
		if h.Recv.NS != nil {
			w.noteString(noteFault, "as an instant: the receive is estimated before the send")
		} else {
			w.noteString(noteFault, "as an instant: when it was received is not known")
		}
		t.noteHop(req, h, k)
		w.emit()
	case h.Recv.NS != nil:
		w.instant(t.lane(k.to, laneReceived, *h.Recv.NS, *h.Recv.NS), *h.Recv.NS, k.name)
		w.notePoint(&t.grades, noteEnd, &h.Recv)
		w.noteString(noteFault, "as an instant: when it was sent is not known")
		t.noteHop(req, h, k)
		w.emit()
	}
	t.memory(req, h, k.from, "write segment", h.ShmWrite)
	t.memory(req, h, k.to, "read segment", h.ShmRead)
}

func (t *timeline) hopKind(h *correlate.Hop) *hopKind {
	key := hopKey{h.Type, h.From, h.To, h.Via}
	k := t.hops[key]
	if k == nil {
		k = &hopKind{name: t.w.name(h.Type + " → " + h.To), from: t.stage(h.From), to: t.stage(h.To),
			fromWord: t.w.word(h.From), viaWord: t.w.word(h.Via)}
		t.hops[key] = k
	}
	return k
}

func (t *timeline) noteHop(req int, h *correlate.Hop, k *hopKind) {
	w := t.w
	w.noteWord(noteIdentity, string(h.Identity))
	w.noteKnown(noteFrom, k.fromWord)
	w.noteKnown(noteTransport, k.viaWord)
	w.noteMaybe(noteChunk, h.Chunk)
	w.noteMaybe(noteBytes, h.Bytes)
	w.noteMaybe(noteSegmentBytes, h.ShmBytes)
	w.noteString(noteReason, h.Reason)
	w.correlation(req)
}

// memory draws a phase of the shared-memory segment that a hop refers to.
func (t *timeline) memory(req int, h *correlate.Hop, p *processTrack, name string, phase *[2]int64) {
	if phase == nil || phase[1] < phase[0] {
		return
	}
	w := t.w
	track := t.lane(p, laneMemory, phase[0], phase[1])
	w.begin(track, phase[0], w.name(name))
	w.noteOnce(noteSegment, h.ShmName)
	w.noteMaybe(noteSegmentBytes, h.ShmBytes)
	w.noteMaybe(noteChunk, h.Chunk)
	w.correlation(req)
	w.emit()
	w.end(track, phase[1])
}

// received marks the arrival of a message that was the input of no visit: acknowledgements and such.
func (t *timeline) received(req int, q *correlate.RequestTimeline, h *correlate.Hop, e *edge) {
	if e.target != endStage || h.Recv.NS == nil || h.Send.NS == nil {
		return
	}
	w, k, ns := t.w, t.hopKind(h), *h.Recv.NS
	w.instant(t.lane(k.to, laneReceived, ns, ns), ns, k.name)
	w.noteString(noteRequest, q.ID)
	w.noteKnown(noteFrom, k.fromWord)
	w.correlation(req)
	if e.flow != 0 {
		w.flowEnd(e.flow)
	}
	w.emit()
}
