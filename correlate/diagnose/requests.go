package diagnose

import (
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

// RequestSummary is the requests from both zero points: the moment the client began to write, and
// the moment the entry had read the request. Requests that were in flight when recording began are
// counted and left out of the distributions, because their beginning was not seen.
type RequestSummary struct {
	N        int            `json:"n"`
	InFlight int            `json:"in_flight_at_attach"`
	Sources  map[string]int `json:"sources"`
	States   map[string]int `json:"states"`

	SendLag stat.Dist `json:"send_lag_us"` // planned → first write; open loop only

	ClientTTFT stat.Dist `json:"client_ttft_us"` // first write → first content at the client
	ClientJCT  stat.Dist `json:"client_jct_us"`  // first write → end of the reply at the client

	EntryTTFT stat.Dist `json:"entry_ttft_us"` // entry's read → first content at the client
	EntryJCT  stat.Dist `json:"entry_jct_us"`  // entry's read → end of the reply at the client

	EngineFirst stat.Dist `json:"engine_first_reply_us"` // entry's read → its first reply write
	EngineJCT   stat.Dist `json:"engine_jct_us"`         // entry's read → its last reply write

	ZeroDifference stat.Dist `json:"zero_difference_us"` // entry's read − client's first write
	Residual       stat.Dist `json:"residual_us"`        // engine JCT in no visit and no hop
}

type requestGather struct {
	sum                                                         RequestSummary
	lag, cTTFT, cJCT, eTTFT, eJCT, gFirst, gJCT, zero, residual gather
}

func newRequestGather() requestGather {
	return requestGather{sum: RequestSummary{Sources: map[string]int{}, States: map[string]int{}}}
}

func (g *requestGather) request(q *correlate.RequestTimeline) {
	g.sum.N++
	g.sum.Sources[q.Source]++
	state := q.State
	if state == "" {
		state = "unknown"
	}
	g.sum.States[state]++
	if q.InFlight {
		g.sum.InFlight++
		return
	}
	g.engine(q)
	if q.Client != nil {
		g.client(q, q.Client)
	}
}

func (g *requestGather) summary() RequestSummary {
	sum := g.sum
	sum.SendLag, sum.ZeroDifference, sum.Residual = g.lag.dist(), g.zero.dist(), g.residual.dist()
	sum.ClientTTFT, sum.ClientJCT = g.cTTFT.dist(), g.cJCT.dist()
	sum.EntryTTFT, sum.EntryJCT = g.eTTFT.dist(), g.eJCT.dist()
	sum.EngineFirst, sum.EngineJCT = g.gFirst.dist(), g.gJCT.dist()
	return sum
}

func (g *requestGather) engine(q *correlate.RequestTimeline) {
	g.gFirst.between(q.Entry, q.Reply)
	g.gJCT.add(deref(q.JCTUS))
	g.residual.add(deref(q.Residual))
}

func (g *requestGather) client(q *correlate.RequestTimeline, c *run.Request) {
	if c.PlannedNS != nil {
		g.lag.add(betweenNS(c.PlannedNS, c.SentNS))
	}
	g.cTTFT.add(betweenNS(c.SentNS, c.FirstNS))
	g.cJCT.add(betweenNS(c.SentNS, c.EndNS))
	g.eTTFT.add(betweenNS(q.Entry.NS, c.FirstNS))
	g.eJCT.add(betweenNS(q.Entry.NS, c.EndNS))
	g.zero.add(betweenNS(c.SentNS, q.Entry.NS))
}

func deref(v *float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return *v, true
}
