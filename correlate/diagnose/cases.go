package diagnose

import (
	"sort"

	"github.com/stageline/stageline/correlate"
)

// place is where time can go: a stage by name, a hop as FROM:TO.
type place struct{ kind, where string }

// spent is a request's time at one place, µs. Times of overlapping visits or hops are counted once.
type spent struct {
	queue float64 // stages: ready → start
	work  float64 // stages: start → finish; hops: hand-over → receipt
	known bool    // false: it went there, but no time of it is known
}

// requestCase is one complete request as the judge sees it.
type requestCase struct {
	index int     // position in the timeline, which is order of time
	total float64 // end-to-end, µs
	spent map[place]spent
}

// interval is [from, to) in ns.
type interval struct{ from, to int64 }

// union is the length of the union of intervals, in microseconds; it sorts them.
func union(iv []interval) float64 {
	sort.Slice(iv, func(a, b int) bool { return iv[a].from < iv[b].from })
	var sum, end int64
	for i, v := range iv {
		if i == 0 || v.from > end {
			end = v.from
		}
		if v.to > end {
			sum += v.to - end
			end = v.to
		}
	}
	return float64(sum) / 1e3
}

// collectCases takes the requests whose beginning was seen and whose end-to-end time is known.
func collectCases(r *correlate.Result) (cases []*requestCase, leftOut int) {
	for i := range r.Requests {
		q := &r.Requests[i]
		total, ok := endToEnd(q)
		if q.InFlight || !ok || total <= 0 {
			leftOut++
			continue
		}
		c := &requestCase{index: i, total: total, spent: map[place]spent{}}
		c.stages(q)
		c.hops(q)
		c.client(q)
		cases = append(cases, c)
	}
	return cases, leftOut
}

// endToEnd is from the planned time (else the first write) to the end of the reply at the client,
// or the engine's own entry to exit when there is no client record.
func endToEnd(q *correlate.RequestTimeline) (float64, bool) {
	if c := q.Client; c != nil {
		from := c.SentNS
		if c.PlannedNS != nil {
			from = c.PlannedNS
		}
		if us, ok := betweenNS(from, c.EndNS); ok {
			return us, true
		}
	}
	return deref(q.JCTUS)
}

func (c *requestCase) stages(q *correlate.RequestTimeline) {
	queue, work, seen := map[string][]interval{}, map[string][]interval{}, map[string]bool{}
	for i := range q.Visits {
		v := &q.Visits[i]
		seen[v.Stage] = true
		if v.Ready.NS != nil && v.Start.NS != nil {
			queue[v.Stage] = append(queue[v.Stage], interval{*v.Ready.NS, *v.Start.NS})
		}
		if v.Start.NS != nil && v.Finish.NS != nil {
			work[v.Stage] = append(work[v.Stage], interval{*v.Start.NS, *v.Finish.NS})
		}
	}
	for name := range seen {
		c.spent[place{KindStage, name}] = spent{
			queue: union(queue[name]), work: union(work[name]),
			known: len(queue[name])+len(work[name]) > 0,
		}
	}
}

func (c *requestCase) hops(q *correlate.RequestTimeline) {
	cross, seen := map[string][]interval{}, map[string]bool{}
	for i := range q.Hops {
		h := &q.Hops[i]
		where := h.From + ":" + h.To
		seen[where] = true
		if h.Send.NS == nil || h.Recv.NS == nil {
			continue
		}
		cross[where] = append(cross[where], interval{handedOver(q, h), *h.Recv.NS})
	}
	for where := range seen {
		c.spent[place{KindHop, where}] = spent{work: union(cross[where]), known: len(cross[where]) > 0}
	}
}

// handedOver is when the sender was done with what the hop carries: the finish of the visit whose
// output it is (sent after finish and not after departure), else the send itself. Time between
// finish and send is the hop's, not the stage's: the output waits for a credit or a writer.
func handedOver(q *correlate.RequestTimeline, h *correlate.Hop) int64 {
	send := *h.Send.NS
	from := send
	for i := range q.Visits {
		v := &q.Visits[i]
		if v.Stage != h.From || v.TGID != h.FromTGID || v.Finish.NS == nil || v.Departure.NS == nil {
			continue
		}
		if *v.Finish.NS <= send && send <= *v.Departure.NS && (from == send || *v.Finish.NS > from) {
			from = *v.Finish.NS
		}
	}
	return from
}

func (c *requestCase) client(q *correlate.RequestTimeline) {
	if q.Client == nil || q.Client.PlannedNS == nil {
		return
	}
	lag, ok := betweenNS(q.Client.PlannedNS, q.Client.SentNS)
	c.spent[place{KindClient, "send lag"}] = spent{work: max(0, lag), known: ok}
}
