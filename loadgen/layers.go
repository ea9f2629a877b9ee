package loadgen

import (
	"maps"
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// Layer is the summary of the requests that have one property in common.
type Layer struct {
	By            string   `json:"by"` // "class", "tenant", "input", "output", "finish"
	Value         string   `json:"value"`
	Planned       int      `json:"planned"`
	Success       int      `json:"success"`
	NotApplicable int      `json:"not_applicable,omitempty"`
	Zero          string   `json:"zero"` // "plan" or "send": where the times count from
	TTFT          *Dist    `json:"ttft_ms"`
	TTFA          *Dist    `json:"ttfa_ms"`
	TPOT          *Dist    `json:"tpot_ms"`
	JCT           *Dist    `json:"jct_ms"`
	Goodput       *Goodput `json:"goodput"`
}

// maxLayers bounds the values of one property; the rest are taken together.
const (
	maxLayers  = 24
	otherLayer = "(others)"
)

type layerKey struct{ by, value string }

type layer struct {
	Layer
	ttft, ttfa, tpot, jct figures
	good                  *goodTally
}

type layerTally struct {
	slo *SLO
	all map[layerKey]*layer
	by  map[string]int
}

func newLayerTally(slo *SLO) *layerTally {
	return &layerTally{slo: slo, all: map[layerKey]*layer{}, by: map[string]int{}}
}

func (t *layerTally) add(r *run.Request, m *Measures) {
	for _, k := range []layerKey{
		{"class", r.Class}, {"tenant", r.Tenant}, {"input", inputLength(r)}, {"output", outputLength(r)}, {"finish", r.Finish},
	} {
		if k.value != "" {
			t.at(k).add(r, m)
		}
	}
}

func (t *layerTally) at(k layerKey) *layer {
	l := t.all[k]
	if l == nil {
		if t.by[k.by] >= maxLayers && k.value != otherLayer {
			return t.at(layerKey{k.by, otherLayer})
		}
		t.by[k.by]++
		l = &layer{Layer: Layer{By: k.by, Value: k.value}, good: newGoodTally(t.slo)}
		t.all[k] = l
	}
	return l
}

func (l *layer) add(r *run.Request, m *Measures) {
	l.Planned++
	l.Success += count(r.State == run.StateSuccess)
	l.NotApplicable += count(r.State == run.StateNotApplicable)
	l.ttft.take(m.TTFT.first())
	l.ttfa.take(m.TTFA.first())
	l.jct.take(m.JCT.first())
	l.tpot.take(m.TPOT)
	l.good.add(r, m)
}

// first is from the plan where there is one.
func (z Zeroes) first() Figure {
	if z.Plan.Standing != None {
		return z.Plan
	}
	return z.Send
}

// inputLength classes a request by the server's count of prompt tokens, else by its size on the wire.
func inputLength(r *run.Request) string {
	if r.PromptTokens != nil {
		return lengthClass(*r.PromptTokens, "prompt tokens", 256, 4096)
	}
	return lengthClass(r.BytesOut, "request bytes", 2<<10, 32<<10)
}

func outputLength(r *run.Request) string {
	if r.Tokens == nil {
		return ""
	}
	return lengthClass(*r.Tokens, "tokens", 64, 512)
}

// lengthClass names short, mid and long by their bounds.
func lengthClass(n int64, unit string, short, long int64) string {
	switch {
	case n == 0:
		return ""
	case n <= short:
		return "short: ≤ " + itoa(short) + " " + unit
	case n <= long:
		return "mid: ≤ " + itoa(long) + " " + unit
	}
	return "long: > " + itoa(long) + " " + unit
}

// result leaves out properties by which all requests are alike.
func (t *layerTally) result(open bool, seconds float64) []Layer {
	out := []Layer{}
	keys := slices.SortedFunc(maps.Keys(t.all), func(a, b layerKey) int {
		if c := slices.Compare([]string{a.by, a.value}, []string{b.by, b.value}); c != 0 {
			return c
		}
		return 0
	})
	for _, k := range keys {
		if t.by[k.by] < 2 {
			continue
		}
		l := t.all[k]
		l.Zero = "send"
		if open {
			l.Zero = "plan"
		}
		l.TTFT, l.TTFA, l.TPOT, l.JCT = l.ttft.dist(), l.ttfa.dist(), l.tpot.dist(), l.jct.dist()
		l.Goodput = l.good.result(open, seconds)
		out = append(out, l.Layer)
	}
	return out
}
