package loadgen

import (
	"fmt"
	"time"

	"github.com/stageline/stageline/collector/run"
)

// Generator says how well the load was sent: how much of what was measured is the generator's own,
// and whether that is within the bound that was declared.
type Generator struct {
	Valid    bool     `json:"valid"`
	Because  []string `json:"invalid_because,omitempty"`
	MaxLagMS *float64 `json:"max_lag_ms"` // declared bound on the 99th percentile of lag; null: none
	// Lag is how much later than it could have been each request was sent, warm-up included: after its
	// plan and after a place under the cap was free; in closed loop after the reply before it.
	Lag Dist `json:"lag_ms"`
	// ReadLag is from the kernel's stamp of an arrival to this program's read of it. It is in no other
	// figure, because those count from the kernel's stamp; null where there are no kernel stamps.
	ReadLag       *Dist `json:"read_lag_ms"`
	EventsStamped int   `json:"events_stamped_by_kernel"`
	Events        int   `json:"events"`
}

// rateTolerance is the share of an open loop's duration by which the sends may be stretched.
const rateTolerance = 0.01

// generatorTally collects a Generator.
type generatorTally struct {
	lag, readLag        series
	events, stamped     int
	firstPlan, lastPlan int64
	firstSent, lastSent int64
}

func (t *generatorTally) add(r *run.Request) {
	if r.LagNS != nil {
		t.lag.add(*r.LagNS)
		span(&t.firstSent, &t.lastSent, r.SentNS)
		span(&t.firstPlan, &t.lastPlan, r.PlannedNS)
	}
	last := int64(0)
	for i := range r.Events {
		e := &r.Events[i]
		t.events++
		if e.ReadLagNS > 0 {
			t.stamped++
			if e.MonoNS != last { // one read counts once
				t.readLag.add(e.ReadLagNS)
			}
		}
		last = e.MonoNS
	}
}

func (t *generatorTally) result(p *Plan) Generator {
	g := Generator{Lag: *t.lag.dist(), Events: t.events, EventsStamped: t.stamped}
	if t.stamped > 0 {
		g.ReadLag = t.readLag.dist()
	}
	bound := p.cfg.MaxLag
	if bound > 0 {
		ms := float64(bound) / float64(time.Millisecond)
		g.MaxLagMS = &ms
		if p99 := g.Lag.P99; p99 != nil && *p99 > ms {
			g.Because = append(g.Because, fmt.Sprintf("one request in a hundred was sent more than %.3f ms late (longest %.3f ms), the bound is %v: give the generator more processor time, or lower the load",
				*p99, *g.Lag.Max, bound))
		}
		g.stretched(t, p)
	}
	g.Valid = len(g.Because) == 0
	return g
}

// stretched finds a load that was not sent in the time planned for it though nothing but the
// generator held it back.
func (g *Generator) stretched(t *generatorTally, p *Plan) {
	planned, sent := t.lastPlan-t.firstPlan, t.lastSent-t.firstSent
	if !p.Open() || p.cfg.Concurrency > 0 || p.turns || planned <= 0 {
		return
	}
	if over := sent - planned; over > max(int64(rateTolerance*float64(planned)), p.cfg.MaxLag.Nanoseconds()) {
		g.Because = append(g.Because, fmt.Sprintf("what was planned for %.3f s took %.3f s to send", float64(planned)/1e9, float64(sent)/1e9))
	}
}
