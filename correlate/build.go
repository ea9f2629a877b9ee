package correlate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

// graceNS is how long after the end of a request its last messages (acks, aborts) may still come.
const graceNS = 2_000_000_000

// built is a finished request and what may still be added to it.
type built struct {
	q        *RequestTimeline // nil: on the shelf, or handed out
	place    place            // on the shelf
	id       string           // of q
	client   *client          // of q
	joined   bool             // the client was found when q was on the shelf
	conn     [2]string        // local and remote address of its entry connection
	entryNS  int64
	sortNS   int64
	seq      uint64
	late     int
	unnamed  bool // no id was seen: ID is a label made up here
	evidence bool // something says that this was a request: a stage, an id, a client
}

func (b *built) setClient(c *client) {
	b.id, b.client, b.evidence = c.id, c, true
	if b.q == nil {
		b.joined = true
		return
	}
	b.q.setClient(c.full, b.unnamed)
}

// file keeps a finished request, on the shelf when there is one.
func (t *Timeline) file(b built) {
	b.id = b.q.ID
	t.visits += len(b.q.Visits)
	if t.shelf != nil {
		fill(b.q)
		b.place, b.q = t.shelf.put(b.q), nil
	}
	t.results = append(t.results, b)
}

// sweep builds requests that have settled and drops raw state that none of the others needs.
func (t *Timeline) sweep() {
	t.dropStale()
	keep := t.open[:0]
	for _, r := range t.open {
		if r.endNS == 0 && t.nowNS-max(r.lastNS, r.firstNS) > t.opt.IdleNS && (r.lastNS|r.firstNS) != 0 {
			r.notes = append(r.notes, "no end seen")
			t.end(r, max(r.lastNS, r.firstNS))
		}
		if r.endNS != 0 && !r.voted && t.doneTo > r.endNS+graceNS {
			t.vote(r)
			t.votes++
			r.votesThen = t.votes
		}
		settled := r.voted && (t.votes-r.votesThen >= t.opt.Settle || t.doneTo > r.endNS+t.opt.IdleNS/2)
		if settled {
			t.build(r)
		} else {
			keep = append(keep, r)
		}
	}
	clear(t.open[len(keep):])
	t.open = keep
	t.handOut(false)
	t.prune()
}

// vote lets a request that has ended teach what is learned over many, before any of them is built.
func (t *Timeline) vote(r *request) {
	r.voted = true
	l := t.buildHops(r)
	t.learnChunks(l)
	t.noteJobs(l)
}

// dropStale counts ids that nobody claimed for a long time.
func (t *Timeline) dropStale() {
	for _, o := range t.orphanList() {
		if t.nowNS-o.lastNS > t.opt.IdleNS {
			t.dropOrphan(o)
		}
	}
}

// prune drops raw state older than anything that an open request or a waiting id refers to.
func (t *Timeline) prune() {
	horizon := t.doneTo
	for _, r := range t.open {
		if r.firstNS != 0 {
			horizon = min(horizon, r.firstNS)
		}
	}
	for _, o := range t.ids.orphans {
		horizon = min(horizon, o.firstNS)
	}
	horizon -= graceNS
	for id, e := range t.endpoints {
		t.sweepHalf(e, &e.sent, horizon)
		t.sweepHalf(e, &e.received, horizon)
		e.sweepReadable(horizon)
		if e.closedNS != 0 && e.closedNS < horizon && len(e.sent.waiting)+len(e.received.waiting) == 0 {
			t.forget(id, e)
		}
	}
	for _, l := range t.procs.byTGID {
		for _, x := range l {
			for _, th := range x.threads {
				th.sweep(horizon)
			}
			x.steps.sweep(horizon)
			x.arrivals, x.sends = sweepArrivals(x.arrivals, horizon), sweepArrivals(x.sends, horizon)
		}
	}
	t.shm.sweep(horizon)
}

func sweepArrivals(l []arrival, horizon int64) []arrival {
	i := 0
	for i < len(l) && l[i].ns < horizon {
		i++
	}
	if i*2 > len(l) {
		return slices.Clone(l[i:])
	}
	return l
}

func (t *Timeline) sweepHalf(e *endpoint, h *half, horizon int64) {
	for _, c := range h.sweep(horizon, maxWaiting) {
		t.unmatched(c)
	}
	h.sweepMarks(horizon)
}

// maxWaiting bounds the unmatched messages of one direction of an endpoint.
const maxWaiting = 65536

func (t *Timeline) forget(id uint32, e *endpoint) {
	t.rings.forget(e)
	delete(t.endpoints, id)
	if t.unixByIno[e.Inode] == e {
		delete(t.unixByIno, e.Inode)
	}
	if e.Transport == run.TransportTCP {
		t.tcp.forget(e)
	}
	if e.peer != nil && e.peer.peer == e {
		e.peer.peer = nil
	}
}

// build makes the timeline of a request that has ended and releases its raw state.
func (t *Timeline) build(r *request) {
	t.claimByOrder(r)
	t.claimSegments(r)
	t.nameMinted(r)
	l := t.buildHops(r)
	if !r.voted {
		t.learnChunks(l)
	}
	q := &RequestTimeline{ID: r.id, Source: r.source, Aliases: r.aliases, InFlight: r.inFlight, Notes: r.notes, State: r.state(),
		Entry: r.entryPoint(), Reply: r.replyPoint(), Exit: r.exitPoint(t)}
	if r.client != nil {
		q.Client = r.client.full
	}
	b := built{q: q, client: r.client, seq: r.seq, entryNS: r.entryNS}
	if r.conn != nil {
		b.conn = [2]string{r.conn.Local, r.conn.Remote}
	}
	q.Visits = t.buildVisits(r, l)
	phases(l)
	for i := range l {
		h := l[i].Hop
		if r.inFlight && h.Identity == IdentityExact && r.entryNS == 0 {
			h.Identity, h.Reason = IdentityPaired, "request was in flight at attach"
		}
		q.Hops = append(q.Hops, h)
	}
	t.gradeInFlight(r, q)
	t.explain(q)
	q.FromEntry = newFromEntry(r.client, q.Entry)
	t.noteLoss(r, q)
	b.sortNS = cmp.Or(r.entryNS, r.firstNS)
	b.unnamed = r.minted
	b.evidence = r.client != nil || len(l) > 0 || !r.minted
	t.release(r, len(t.results))
	t.file(b)
}

// gradeInFlight lowers what is said of a request that began before attach: the visits cut by the
// attach lack what came before.
func (t *Timeline) gradeInFlight(r *request, b *RequestTimeline) {
	if !r.inFlight {
		return
	}
	b.Notes = append(b.Notes, "in flight at attach: what came before is not known")
	for i := range b.Visits {
		if b.Visits[i].Identity == IdentityExact {
			b.Visits[i].Identity = IdentityPaired
		}
	}
}

// release forgets the raw state of a built request; its names now lead to the result.
func (t *Timeline) release(r *request, index int) {
	for _, v := range r.names() {
		if t.ids.active[v] == r {
			delete(t.ids.active, v)
			if in := bare(v); t.ids.inner[in] == r {
				delete(t.ids.inner, in)
			}
		}
		t.ids.done[v] = index
	}
	if r.conn != nil && r.conn.conn != nil && r.conn.conn.current == r {
		r.conn.conn.current = nil
	}
	for _, c := range r.crossings {
		c.tied = slices.DeleteFunc(c.tied, func(x tie) bool { return x.req == r })
	}
	r.crossings, r.segments, r.seen = nil, nil, nil
}

// claimByOrder gives a request that carried no id the unknown id that its entry process sent first
// after it came in, when no other such request was there to have caused it.
func (t *Timeline) claimByOrder(r *request) {
	if !r.minted || len(r.crossings) > 0 || r.conn == nil {
		return
	}
	for _, o := range t.orphanList() {
		if o.fromTGID != r.tgid || o.firstNS < r.beganNS() || r.endNS != 0 && o.firstNS > r.endNS {
			continue
		}
		for _, q := range t.open {
			if q != r && q.minted && len(q.crossings) == 0 && q.tgid == r.tgid && q.beganNS() < o.firstNS && (q.endNS == 0 || q.endNS > o.firstNS) {
				return
			}
		}
		t.own(r, o.value, aliasOrder)
		return
	}
}

// claimSegments finds segments with one of the request's names in theirs that appeared before the
// name was known.
func (t *Timeline) claimSegments(r *request) {
	for _, g := range t.shm.all {
		if g.owner == nil && !g.framed && g.name != "" && g.firstNS() >= r.firstNS-graceNS {
			t.nameOwner(g)
		}
	}
}

// nameMinted calls a request that carried no id by the id the engine gave it: the one most of its
// messages carry.
func (t *Timeline) nameMinted(r *request) {
	if !r.minted || len(r.aliases) == 0 {
		return
	}
	n := map[string]int{}
	for _, c := range r.crossings {
		if c.into == nil {
			for _, ref := range c.any().IDs {
				n[ref.Value]++
			}
		}
	}
	best := r.aliases[0].Value
	for _, a := range r.aliases {
		if n[a.Value] > n[best] {
			best = a.Value
		}
	}
	r.aliases = slices.DeleteFunc(r.aliases, func(a Alias) bool { return a.Value == best })
	r.id = best
	r.minted = false
}

func (r *request) state() string {
	switch {
	case r.client != nil && r.client.state != "":
		return r.client.state
	case r.cut && !r.replyLast:
		return run.StateClientCancelled
	case r.status >= 200 && r.status < 400 && r.replyLast:
		return run.StateSuccess
	case r.status == 429 || r.status == 503:
		return run.StateRejected
	case r.status >= 400:
		return run.StateTransportError
	case r.replyLast:
		return run.StateSuccess
	}
	return "unknown"
}

func (r *request) entryPoint() Point {
	if r.entryNS == 0 {
		return unknown("request not seen at the entry")
	}
	return seen(r.entryNS, "read returned")
}

func (r *request) replyPoint() Point {
	if r.replyNS == 0 {
		return unknown("reply not seen")
	}
	if !r.replyFirst {
		if r.entryNS == 0 {
			return unknown("first part of the reply not seen")
		}
		return bounded(r.entryNS, r.replyNS, r.replyNS, "first part of the reply not seen")
	}
	return seen(r.replyNS, "write entered")
}

func (r *request) exitPoint(t *Timeline) Point {
	switch {
	case r.exitNS == 0:
		return unknown("reply not seen")
	case r.replyLast:
		return seen(r.exitNS, "write returned")
	case r.cut:
		return seen(r.exitNS, "last write before the client left")
	}
	hi := r.endNS
	if r.client != nil && r.client.endNS != nil {
		hi = *r.client.endNS
	}
	if hi < r.exitNS {
		return unknown("end of the reply not seen")
	}
	return bounded(r.exitNS, r.exitNS, hi, "end of the reply not seen")
}

// explain computes JCT and the part of it that no visit and no hop covers; overlap counts once.
func (t *Timeline) explain(b *RequestTimeline) {
	a, z := b.Entry.at(), b.Exit.at()
	if a == 0 || z < a {
		return
	}
	var cover [][2]int64
	add := func(x, y int64) {
		if x != 0 && y > x {
			cover = append(cover, [2]int64{max(x, a), min(y, z)})
		}
	}
	for _, v := range b.Visits {
		first := v.Arrival.at()
		if v.Departure.Rule == "last reply write entered" || isEntryVisit(t, v) {
			first = v.Ready.at() // while it waits for more returns, the entry explains nothing
		}
		add(first, max(v.Departure.at(), v.Finish.at()))
	}
	for _, h := range b.Hops {
		add(h.Send.at(), h.Recv.at())
	}
	slices.SortFunc(cover, func(x, y [2]int64) int { return cmp.Compare(x[0], y[0]) })
	open, at := z-a, a
	for _, c := range cover {
		if c[1] > at {
			open -= c[1] - max(at, c[0])
			at = c[1]
		}
	}
	b.JCTUS, b.Residual = ptr(float64(z-a)/1e3), ptr(float64(open)/1e3)
}

func isEntryVisit(t *Timeline, v Visit) bool {
	p := t.procs.at(v.TGID, v.firstNS())
	return p.entry && v.Stage == t.stage(p).name
}

// noteLoss says what was lost while the request ran, and which inputs of its joins are missing.
func (t *Timeline) noteLoss(r *request, b *RequestTimeline) {
	from, to := cmp.Or(r.entryNS, r.firstNS), cmp.Or(r.endNS, r.lastNS)
	if l := t.ledger.during(from, to); len(l) > 0 {
		b.Notes = append(b.Notes, "records lost meanwhile: "+strings.Join(l, ", "))
	}
}
