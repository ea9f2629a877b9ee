package correlate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Credits: some engines let only so many payloads be in flight, and a sender waits for a receiver to
// acknowledge one before it writes the next. The wait makes no call of its own. It is inferred from
// messages that acknowledge a payload by its segment or its request, and only where their number
// shows a limit.

// creditWords mark the message types that give a payload's place free.
var creditWords = map[string]bool{"ack": true, "acked": true, "credit": true, "credits": true, "release": true, "released": true}

const (
	// promptNS is how soon after an acknowledgement a payload that waited for it is written.
	promptNS = 500_000
	// creditEvidence is how often a payload must have followed promptly, at the limit, before the
	// limit is believed, and creditShare the part of all payloads after an acknowledgement at the limit.
	creditEvidence = 5
	creditShare    = 0.25
)

// payload is a data hop with a segment, and when it was acknowledged.
type payload struct {
	request, hop uint32
	visit        int64 // that sent it, of all; -1 unknown
	sentNS       int64 // segment created, else message sent
	handedNS     int64 // message sent
	ackNS        int64 // acknowledgement received by the sender

	ready, start, finish times // of the visit
}

// creditPool is who shares credits: a sending stage, or one with a single receiver.
type creditPool struct {
	stage    string
	tgid, to uint32 // to 0: all receivers
}

// creditPools gathers the payloads of all requests.
type creditPools struct {
	byReceiver map[creditPool][]payload
	gives      map[string]bool // by message type
}

// hopCredit is the wait of one hop.
type hopCredit struct {
	request, hop uint32
	lo, est, hi  float64
	rule         string
}

func newCreditPools() creditPools {
	return creditPools{byReceiver: map[creditPool][]payload{}, gives: map[string]bool{}}
}

func (c *creditPools) request(i int, q *RequestTimeline) {
	for _, p := range c.payloads(q) {
		h := &q.Hops[p.hop]
		p.request = uint32(i)
		if p.visit >= 0 {
			v := &q.Visits[p.visit]
			p.visit |= int64(i) << 32
			p.ready, p.start, p.finish = timesOf(&v.Ready), timesOf(&v.Start), timesOf(&v.Finish)
		}
		k := creditPool{h.From, h.FromTGID, h.ToTGID}
		c.byReceiver[k] = append(c.byReceiver[k], p)
	}
}

// tell sets Hop.CreditWaitUS where a limit shows: of a stage, else of one of its receivers.
func (c *creditPools) tell(r *Result) {
	byStage := map[creditPool][]creditPool{}
	for k := range c.byReceiver {
		of := creditPool{k.stage, k.tgid, 0}
		byStage[of] = append(byStage[of], k)
	}
	var out []hopCredit
	for _, pools := range byStage {
		var all []payload
		for _, k := range pools {
			all = append(all, c.byReceiver[k]...)
		}
		slices.SortFunc(all, func(a, b payload) int { return cmp.Or(cmp.Compare(a.request, b.request), cmp.Compare(a.hop, b.hop)) })
		waits, ok := limitWaits(all, "stage")
		for _, k := range pools {
			if !ok {
				of, _ := limitWaits(c.byReceiver[k], "receiver")
				waits = append(waits, of...)
			}
		}
		out = append(out, waits...)
	}
	slices.SortFunc(out, func(a, b hopCredit) int { return cmp.Or(cmp.Compare(a.request, b.request), cmp.Compare(a.hop, b.hop)) })
	if r.kept != nil {
		r.kept.credits = out
		return
	}
	for _, w := range out {
		r.Requests[w.request].Hops[w.hop].CreditWaitUS = &CreditWait{w.lo, w.est, w.hi, w.rule}
	}
}

// creditsOf is the part of a list that belongs to one request.
func creditsOf(l []hopCredit, request uint32) []hopCredit {
	at := func(r uint32) int {
		i, _ := slices.BinarySearchFunc(l, r, func(w hopCredit, r uint32) int { return cmp.Compare(w.request, r) })
		return i
	}
	return l[at(request):at(request+1)]
}

// ackKey is what an acknowledgement has in common with the payload that it answers: their ends, and
// the segment or, without one, the payload's stage and chunk.
type ackKey struct {
	from, to uint32 // processes, of the acknowledgement
	what     string
	chunk    int64
	chunked  bool
	named    bool
}

// payloads are the acknowledged payloads of one request: each takes the first acknowledgement that
// answers it and that no other has. Their visits are numbers within the request.
func (c *creditPools) payloads(q *RequestTimeline) (out []payload) {
	acks := map[ackKey][]int{}
	for j := range q.Hops {
		if a := &q.Hops[j]; a.Recv.NS != nil && c.givesCredit(a.Type) {
			k := a.ackKey(a.FromTGID, a.ToTGID, a.To)
			acks[k] = append(acks[k], j)
		}
	}
	if len(acks) == 0 {
		return nil
	}
	byHop := map[int]int{}
	for i := range q.Hops {
		h := &q.Hops[i]
		if h.ShmName == "" || h.Send.NS == nil || c.givesCredit(h.Type) {
			continue
		}
		j := takeAck(q, acks, h)
		if j < 0 {
			continue
		}
		p := payload{hop: uint32(i), visit: -1, sentNS: *h.Send.NS, handedNS: *h.Send.NS, ackNS: *q.Hops[j].Recv.NS}
		if h.ShmPhases != nil && h.ShmPhases.CreatedNS != nil {
			p.sentNS = min(p.sentNS, *h.ShmPhases.CreatedNS)
		}
		byHop[i] = len(out)
		out = append(out, p)
	}
	for i := range q.Visits {
		for _, k := range q.Visits[i].Outputs {
			if n, ok := byHop[k]; ok {
				out[n].visit = int64(i)
			}
		}
	}
	return out
}

// ackKey of a hop, between processes, as an acknowledgement to a stage.
func (h *Hop) ackKey(from, to uint32, stage string) ackKey {
	if h.ShmName != "" {
		return ackKey{from: from, to: to, what: h.ShmName, named: true}
	}
	return h.chunkKey(from, to, stage)
}

func (h *Hop) chunkKey(from, to uint32, stage string) ackKey {
	k := ackKey{from: from, to: to, what: stage}
	if h.Chunk != nil {
		k.chunk, k.chunked = *h.Chunk, true
	}
	return k
}

// takeAck takes the first acknowledgement of a payload out of acks: one that comes back from its
// receiver after it was sent, and names the same segment or, in the same request, the same chunk;
// -1 where there is none.
func takeAck(q *RequestTimeline, acks map[ackKey][]int, h *Hop) int {
	first := -1
	var of ackKey
	for _, k := range [...]ackKey{h.ackKey(h.ToTGID, h.FromTGID, ""), h.chunkKey(h.ToTGID, h.FromTGID, h.From)} {
		for _, j := range acks[k] {
			if *q.Hops[j].Recv.NS >= *h.Send.NS {
				if first < 0 || j < first {
					first, of = j, k
				}
				break
			}
		}
	}
	if first >= 0 {
		i := slices.Index(acks[of], first)
		acks[of] = slices.Delete(acks[of], i, i+1)
	}
	return first
}

func (c *creditPools) givesCredit(typ string) bool {
	is, ok := c.gives[typ]
	if !ok {
		is = givesCredit(typ)
		if len(c.gives) < maxNames {
			c.gives[typ] = is
		}
	}
	return is
}

func givesCredit(typ string) bool {
	for _, w := range strings.FieldsFunc(typ, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if creditWords[strings.ToLower(w)] {
			return true
		}
	}
	return false
}

// creditStep is one change of what is in flight.
type creditStep struct {
	ns   int64
	send *payload // nil: an acknowledgement
}

// limitWaits looks for the limit of a pool and gives the waits under it; false: none shows.
func limitWaits(l []payload, pool string) ([]hopCredit, bool) {
	steps := make([]creditStep, 0, 2*len(l))
	for i := range l {
		p := &l[i]
		steps = append(steps, creditStep{p.sentNS, p}, creditStep{ns: p.ackNS})
	}
	slices.SortStableFunc(steps, func(a, b creditStep) int { return cmp.Compare(a.ns, b.ns) })
	flight, limit := 0, 0
	for _, s := range steps {
		if s.send == nil {
			flight--
			continue
		}
		flight++
		limit = max(limit, flight)
	}
	freed := freedAt(steps, limit)
	prompt := 0
	for _, f := range freed {
		if f.held() {
			prompt++
		}
	}
	if prompt < creditEvidence || float64(prompt) < creditShare*float64(len(freed)) {
		return nil, false
	}
	rule := fmt.Sprintf("at most %d in flight for a %s; %d of %d followed an acknowledgement at once", limit, pool, prompt, len(freed))
	at := map[*payload]freedCredit{}
	for _, f := range freed {
		at[f.next] = f
	}
	out := make([]hopCredit, len(l))
	for i := range l {
		w := hopCredit{request: l[i].request, hop: l[i].hop, rule: rule}
		if f, ok := at[&l[i]]; ok {
			w.lo, w.est, w.hi = f.wait()
		}
		out[i] = w
	}
	return out, true
}

// freedCredit is an acknowledgement that came while all credits were out, and the payload written
// next.
type freedCredit struct {
	fullNS, ackNS int64 // the last credit was taken; one came back
	next          *payload
}

func freedAt(steps []creditStep, limit int) (out []freedCredit) {
	flight := 0
	var full int64
	var open *freedCredit
	var last *payload
	for _, s := range steps {
		if s.send == nil {
			if flight == limit && open == nil {
				open = &freedCredit{fullNS: full, ackNS: s.ns}
			}
			flight--
			continue
		}
		flight++
		if open != nil {
			open.next = s.send
			if last != nil && last.visit == s.send.visit { // its sender wrote that one first
				open.fullNS = max(open.fullNS, last.handedNS)
			}
			out = append(out, *open)
			open = nil
		}
		if flight == limit {
			full = s.ns
		}
		last = s.send
	}
	return out
}

// held reports that the payload followed the acknowledgement at once, and that nothing it was made
// of came or was computed after it.
func (f freedCredit) held() bool {
	v := f.next
	return v.sentNS-f.ackNS <= promptNS && (v.visit < 0 || v.ready.lo <= f.ackNS && v.finish.lo <= f.ackNS)
}

// wait bounds the credit wait, in µs: the payload was held back from when it was computed, at the
// earliest from when the last credit had gone, to the acknowledgement. Without a finish of the visit
// it is estimated as all of that if the payload followed at once, else as nothing.
func (f freedCredit) wait() (lo, est, hi float64) {
	us := func(from int64) float64 { return max(0, float64(f.ackNS-max(from, f.fullNS))/1e3) }
	if !f.held() { // something else held it up: at most it waited for both
		return 0, 0, us(f.fullNS)
	}
	hi = us(f.fullNS)
	est = hi
	if v := f.next; v.visit >= 0 {
		if v.start.lo != 0 {
			hi = us(v.start.lo)
		}
		if v.finish.ns != 0 && v.finish.ns < f.ackNS {
			est, lo = us(v.finish.ns), us(v.finish.hi)
		}
	}
	est = min(est, hi)
	return min(lo, est), est, hi
}
