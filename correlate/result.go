package correlate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// channelKey is what connections of one channel have in common.
type channelKey struct {
	from, to  uint32
	transport run.Transport
}

// channelOf returns the channel a crossing travels on, nil when an end is outside or unknown.
func (t *Timeline) channelOf(c *crossing) *Channel {
	if c.from == nil || c.to == nil {
		return nil
	}
	from, to := c.from.byTGID[0], c.to.byTGID[1]
	if c.send != nil {
		from = c.send.TGID
	}
	if c.recv != nil {
		to = c.recv.TGID
	}
	if from == to {
		return nil
	}
	k := channelKey{from, to, c.to.Transport}
	ch := t.channels[k]
	if ch == nil {
		ch = &Channel{FromTGID: from, ToTGID: to, Transport: c.to.Transport.String(), Endpoints: [2]uint32{c.from.ID, c.to.ID}, Covered: true}
		t.channels[k] = ch
	}
	if c.from.ID < ch.Endpoints[0] { // of several connections the first, whatever order they are swept in
		ch.Endpoints = [2]uint32{c.from.ID, c.to.ID}
	}
	return ch
}

// unframed counts the bytes of a stream without known framing, once, where they are written.
func (t *Timeline) unframed(e *endpoint, m *run.Message) {
	if m.Dir != run.Send || e.peer == nil {
		return
	}
	if ch := t.channelOf(&crossing{send: m, from: e, to: e.peer}); ch != nil {
		ch.BytesUnframed += m.End - m.Pos
	}
}

// unmatched counts a crossing whose other end never came.
func (t *Timeline) unmatched(c *crossing) {
	if c.from == nil || c.to == nil {
		t.counts.MessagesOutside++
		return
	}
	if ch := t.channelOf(c); ch != nil {
		ch.Unmatched++
		if c.send != nil {
			ch.Messages++
		} else {
			ch.Received++
		}
	}
}

// Finish interprets what is left and returns the timeline. Nothing may be added afterwards.
func (t *Timeline) Finish() *Result {
	t.interpret(int64(^uint64(0) >> 1))
	for _, r := range t.open { // votes of all before the first is built
		if !r.voted {
			t.vote(r)
		}
	}
	for _, r := range t.open {
		if r.endNS == 0 {
			r.notes = append(r.notes, "not ended when the recording stopped")
			r.endNS = max(r.lastNS, r.firstNS)
		}
		t.build(r)
	}
	t.open = nil
	for _, o := range t.orphanList() {
		t.dropOrphan(o)
	}
	ids := make([]uint32, 0, len(t.endpoints))
	for id := range t.endpoints {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		e := t.endpoints[id]
		t.sweepHalf(e, &e.sent, int64(^uint64(0)>>1))
		t.sweepHalf(e, &e.received, int64(^uint64(0)>>1))
	}
	t.linkByConnection()
	t.handOut(true)
	return t.result()
}

// linkByConnection ties load generator records whose id the engine never showed to the exchange
// that took place on their connection at that time: HTTP/1.1 has one at a time.
func (t *Timeline) linkByConnection() {
	for _, c := range t.clients.list {
		if c.linked {
			continue
		}
		found := -1
		for i := range t.results {
			b := &t.results[i]
			if b.client != nil || c.local == "" || b.conn != [2]string{c.remote, c.local} || c.sentNS == nil {
				continue
			}
			if b.entryNS < *c.sentNS || c.endNS != nil && b.entryNS > *c.endNS {
				continue
			}
			if found >= 0 {
				found = -2
				break
			}
			found = i
		}
		if found >= 0 {
			c.linked = true
			t.results[found].setClient(c)
			continue
		}
		t.file(clientOnly(c))
	}
}

// clientOnly is a request that the engine never showed.
func clientOnly(c *client) built {
	b := built{evidence: true, client: c, q: &RequestTimeline{ID: c.id, Source: "loadgen", Client: c.full, State: c.state,
		Entry: unknown("request not seen at the entry"), Reply: unknown("reply not seen"), Exit: unknown("reply not seen"),
		Notes: []string{"no record of it at the engine's entry"}}}
	if c.sentNS != nil {
		b.sortNS = *c.sentNS
	}
	return b
}

func (t *Timeline) result() *Result {
	r := &Result{Stages: t.stages(), Channels: t.channelList(), Loss: t.ledger.sorted(), Notes: t.notes, FromNS: t.fromNS, ToNS: t.nowNS}
	only := t.list(r)
	learned := newAfterwards(t.visits)
	for i, q := range r.All() {
		learned.request(i, q)
	}
	learned.tell(r)
	t.counts.MessagesOneEnded = t.counts.Messages - t.counts.MessagesPaired - t.counts.MessagesAtEntry - t.counts.MessagesOutside - t.counts.MessagesUnframed
	r.Counts = t.counts
	r.Uncovered = t.uncovered(r, learned.uncovered)
	r.Notes = append(r.Notes, t.ownNotes(only)...)
	if r.Notes == nil {
		r.Notes = []run.Note{}
	}
	return r
}

// list puts the requests into r, in their order, and says how many exchanges were no requests.
func (t *Timeline) list(r *Result) (only int) {
	r.Requests, r.Activations = []RequestTimeline{}, []Activation{}
	if t.opt.Done != nil {
		t.results = nil
	}
	slices.SortFunc(t.results, func(a, b built) int { return a.compare(&b) })
	keep := t.results[:0]
	for i := range t.results {
		b := &t.results[i]
		if !b.evidence && len(t.procs.byTGID) > 1 {
			only++
			continue
		}
		if b.q != nil {
			b.complete()
			r.Requests = append(r.Requests, *b.q)
		}
		keep = append(keep, *b)
	}
	if t.shelf != nil {
		t.shelf.flush()
		r.kept = &shelved{shelf: t.shelf, list: keep}
	}
	return only
}

// afterwards gathers what follows from all requests together.
type afterwards struct {
	firings   firings
	credits   creditPools
	uncovered map[Uncovered]int
}

func newAfterwards(visits int) *afterwards {
	return &afterwards{firings: newFirings(visits), credits: newCreditPools(), uncovered: map[Uncovered]int{}}
}

func (a *afterwards) request(i int, q *RequestTimeline) {
	a.firings.request(i, q)
	a.credits.request(i, q)
	hiddenInside(q, a.uncovered)
}

// tell adds it to the requests.
func (a *afterwards) tell(r *Result) {
	a.firings.tell(r)
	a.credits.tell(r)
}

// fill makes lists empty instead of null, so that a reader of JSON finds an array.
func fill(r *RequestTimeline) {
	if r.Aliases == nil {
		r.Aliases = []Alias{}
	}
	if r.Visits == nil {
		r.Visits = []Visit{}
	}
	for i := range r.Visits {
		if r.Visits[i].Inputs == nil {
			r.Visits[i].Inputs = []Input{}
		}
		if r.Visits[i].Outputs == nil {
			r.Visits[i].Outputs = []int{}
		}
	}
	if r.Hops == nil {
		r.Hops = []Hop{}
	}
}

// ownNotes state what the timeline itself left out.
func (t *Timeline) ownNotes(noEvidence int) []run.Note {
	var out []run.Note
	add := func(n uint64, code, text string) {
		if n > 0 {
			out = append(out, run.Note{AtNS: t.nowNS, Level: "info", Code: code, Text: fmt.Sprintf("%d %s", n, text)})
		}
	}
	add(t.orphanIDs, "ids-unowned", fmt.Sprintf("ids in %d messages belong to no request seen at the entry", t.orphanMsgs))
	add(t.idleExchanges, "exchanges-without-body", "GET exchanges at the entry were not taken for requests")
	add(uint64(noEvidence), "exchanges-without-stage", "exchanges at the entry reached no stage and carried no id: not taken for requests")
	add(t.lateMessages, "messages-late", "messages named a request long after its end")
	add(t.conflicts, "position-conflict", "messages stood at one position of a channel but could not be the same")
	return out
}

func (t *Timeline) stages() []Stage {
	byName := map[string]*Stage{}
	var order []string
	add := func(name, rule, engine string, x *process) {
		s := byName[name]
		if s == nil {
			s = &Stage{Name: name, Rule: rule, Engine: engine}
			byName[name] = s
			order = append(order, name)
		}
		s.Entry = s.Entry || x.entry
		if !slices.Contains(s.TGIDs, x.TGID) {
			s.TGIDs = append(s.TGIDs, x.TGID)
		}
	}
	for _, x := range t.procs.sorted() {
		n := t.stage(x)
		add(n.name, n.rule, n.engine, x)
		for _, h := range t.hosts(x)[1:] {
			add(h, "message field", n.engine, x)
		}
	}
	out := []Stage{}
	for _, name := range order {
		out = append(out, *byName[name])
	}
	return out
}

func (t *Timeline) channelList() []Channel {
	out := []Channel{}
	for _, c := range t.channels {
		c.From = t.stage(t.procs.at(c.FromTGID, t.nowNS)).name
		c.To = t.stage(t.procs.at(c.ToTGID, t.nowNS)).name
		if c.BytesUnframed > 0 && c.Messages == 0 {
			c.Covered, c.Why = false, "no known framing in its bytes"
		}
		if c.FromTGID == 0 {
			c.From = "unknown"
		}
		if c.ToTGID == 0 {
			c.To = "unknown"
		}
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Channel) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.FromTGID, b.FromTGID),
			cmp.Compare(a.ToTGID, b.ToTGID), cmp.Compare(a.Transport, b.Transport))
	})
	return out
}
