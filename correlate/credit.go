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
	hop      *Hop
	visit    *Visit // that sent it, nil unknown
	sentNS   int64  // segment created, else message sent
	handedNS int64  // message sent
	ackNS    int64  // acknowledgement received by the sender
}

// creditPool is who shares credits: a sending stage, or one with a single receiver.
type creditPool struct {
	stage    string
	tgid, to uint32 // to 0: all receivers
}

// creditWaits sets Hop.CreditWaitUS where a limit shows.
func (t *Timeline) creditWaits(r *Result) {
	byStage, byReceiver := map[creditPool][]*payload{}, map[creditPool][]*payload{}
	for i := range r.Requests {
		for _, p := range payloads(&r.Requests[i]) {
			k := creditPool{p.hop.From, p.hop.FromTGID, 0}
			byStage[k] = append(byStage[k], p)
			k.to = p.hop.ToTGID
			byReceiver[k] = append(byReceiver[k], p)
		}
	}
	settled := map[creditPool]bool{}
	for k, l := range byStage {
		settled[k] = limitWaits(l, "stage")
	}
	for k, l := range byReceiver {
		if !settled[creditPool{k.stage, k.tgid, 0}] {
			limitWaits(l, "receiver")
		}
	}
}

// payloads are the acknowledged payloads of one request.
func payloads(q *RequestTimeline) []*payload {
	var out []*payload
	taken := map[int]bool{}
	for i := range q.Hops {
		h := &q.Hops[i]
		if h.ShmName == "" || h.Send.NS == nil || givesCredit(h.Type) {
			continue
		}
		for j := range q.Hops {
			a := &q.Hops[j]
			if taken[j] || !acknowledges(a, h) {
				continue
			}
			taken[j] = true
			p := &payload{hop: h, sentNS: *h.Send.NS, handedNS: *h.Send.NS, ackNS: *a.Recv.NS}
			if h.ShmPhases != nil && h.ShmPhases.CreatedNS != nil {
				p.sentNS = min(p.sentNS, *h.ShmPhases.CreatedNS)
			}
			out = append(out, p)
			break
		}
	}
	for i := range q.Visits {
		for _, k := range q.Visits[i].Outputs {
			for _, p := range out {
				if p.hop == &q.Hops[k] {
					p.visit = &q.Visits[i]
				}
			}
		}
	}
	return out
}

func givesCredit(typ string) bool {
	for _, w := range strings.FieldsFunc(typ, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if creditWords[strings.ToLower(w)] {
			return true
		}
	}
	return false
}

// acknowledges reports that a answers the payload of h: it comes back from its receiver, and names
// the same segment or, in the same request, the same chunk.
func acknowledges(a, h *Hop) bool {
	if a.FromTGID != h.ToTGID || a.ToTGID != h.FromTGID || a.Recv.NS == nil || *a.Recv.NS < *h.Send.NS || !givesCredit(a.Type) {
		return false
	}
	if a.ShmName != "" {
		return a.ShmName == h.ShmName
	}
	return a.To == h.From && (a.Chunk == nil) == (h.Chunk == nil) && (a.Chunk == nil || *a.Chunk == *h.Chunk)
}

// creditStep is one change of what is in flight.
type creditStep struct {
	ns   int64
	send *payload // nil: an acknowledgement
}

// limitWaits looks for the limit of a pool and sets the waits under it; false: none shows.
func limitWaits(l []*payload, pool string) bool {
	steps := make([]creditStep, 0, 2*len(l))
	for _, p := range l {
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
		return false
	}
	rule := fmt.Sprintf("at most %d in flight for a %s; %d of %d followed an acknowledgement at once", limit, pool, prompt, len(freed))
	at := map[*payload]freedCredit{}
	for _, f := range freed {
		at[f.next] = f
	}
	for _, p := range l {
		w := CreditWait{Rule: rule}
		if f, ok := at[p]; ok {
			w.Lo, w.Est, w.Hi = f.wait()
		}
		p.hop.CreditWaitUS = &w
	}
	return true
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
	v := f.next.visit
	return f.next.sentNS-f.ackNS <= promptNS && (v == nil || v.Ready.lo() <= f.ackNS && v.Finish.lo() <= f.ackNS)
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
	if v := f.next.visit; v != nil {
		if v.Start.lo() != 0 {
			hi = us(v.Start.lo())
		}
		if v.Finish.NS != nil && *v.Finish.NS < f.ackNS {
			est, lo = us(*v.Finish.NS), us(v.Finish.hi())
		}
	}
	est = min(est, hi)
	return min(lo, est), est, hi
}
