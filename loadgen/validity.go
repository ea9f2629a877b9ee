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
	// IdleShare is the part of a closed loop's time in flight that lag took: by so much, at most, was
	// the concurrency lower than asked for, and the throughput with it. Null in open loop.
	IdleShare *float64 `json:"idle_share"`
	// ReadLag is from the kernel's stamp of an arrival to this program's read of it. It is in no other
	// figure, because those count from the kernel's stamp; null where there are no kernel stamps.
	ReadLag       *Dist `json:"read_lag_ms"`
	EventsStamped int   `json:"events_stamped_by_kernel"`
	Events        int   `json:"events"`
}

// loadTolerance is by how much of itself the offered load may be lower than asked for: the share of
// an open loop's duration by which the sends are stretched, the idle share of a closed loop.
const loadTolerance = 0.01

// generatorTally collects a Generator.
type generatorTally struct {
	lag, readLag        series
	lateNS, flightNS    int64 // sums of lag, and of sent → end
	events, stamped     int
	firstPlan, lastPlan int64
	firstSent, lastSent int64
}

func (t *generatorTally) add(r *run.Request) {
	if r.LagNS != nil {
		t.lag.add(*r.LagNS)
		if r.EndNS != nil {
			t.lateNS += max(*r.LagNS, 0)
			t.flightNS += max(*r.EndNS-*r.SentNS, 0)
		}
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
	if total := t.lateNS + t.flightNS; !p.Open() && total > 0 {
		share := float64(t.lateNS) / float64(total)
		g.IdleShare = &share
	}
	if p.cfg.MaxLag > 0 {
		g.late(p.cfg.MaxLag)
		g.stretched(t, p)
	}
	g.Valid = len(g.Because) == 0
	return g
}

// late judges the lag. In open loop it is in every figure that counts from the plan. In closed loop
// there is no plan and it is in no figure; what it does there is to leave places empty.
func (g *Generator) late(bound time.Duration) {
	ms := float64(bound) / float64(time.Millisecond)
	g.MaxLagMS = &ms
	if g.Lag.P99 == nil || *g.Lag.P99 <= ms || g.IdleShare != nil && *g.IdleShare <= loadTolerance {
		return
	}
	cost := ""
	if g.IdleShare != nil {
		cost = fmt.Sprintf(" and left %.1f %% of the concurrency unused, more than %g %%", *g.IdleShare*100, loadTolerance*100)
	}
	g.Because = append(g.Because, fmt.Sprintf("p99 of the generator's own lag is %.3f ms (n %d, longest %.3f ms), the bound is %v%s: give the generator more processor time, or lower the load",
		*g.Lag.P99, g.Lag.N, *g.Lag.Max, bound, cost))
}

// stretched finds a load that was not sent in the time planned for it though nothing but the
// generator held it back.
func (g *Generator) stretched(t *generatorTally, p *Plan) {
	planned, sent := t.lastPlan-t.firstPlan, t.lastSent-t.firstSent
	if !p.Open() || p.cfg.Concurrency > 0 || p.turns || planned <= 0 {
		return
	}
	if over := sent - planned; over > max(int64(loadTolerance*float64(planned)), p.cfg.MaxLag.Nanoseconds()) {
		g.Because = append(g.Because, fmt.Sprintf("what was planned for %.3f s took %.3f s to send", float64(planned)/1e9, float64(sent)/1e9))
	}
}
