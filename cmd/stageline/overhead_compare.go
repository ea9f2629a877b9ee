package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/stageline/stageline/correlate/stat"
)

// Comparison is observed loads against those of the same blocks that nothing observed.
type Comparison struct {
	Load       string       `json:"load"`
	Bare       []Figure     `json:"bare"` // loads that nothing observed
	Arms       []ArmFigures `json:"arms"` // the first is unobserved as well: the noise
	Sentence   string       `json:"sentence"`
	Conclusive bool         `json:"conclusive"`
	Blocks     []block      `json:"blocks"`
}

// ArmFigures is what loads of one kind showed: medians over the blocks with their 95 % interval.
type ArmFigures struct {
	Name    string `json:"name"`
	Command string `json:"command,omitempty"`
	// Failed says why the arm is missing from some blocks, or from all: its figures are then unknown.
	Failed string `json:"failed,omitempty"`
	// Ratios are load ÷ geometric mean of the block's two unobserved loads. Those of the noise are
	// second ÷ first, and so wider by a factor of up to 1.15.
	Ratios []Figure `json:"ratios"`
	Costs  []Figure `json:"costs"` // of the observer itself; none for the noise
}

// Figure is one line of the table. The value is unknown where no load gave one.
type Figure struct {
	What string `json:"what"`
	Unit string `json:"unit"`
	stat.Interval
}

const (
	resamples  = 10000
	confidence = 0.95
)

func newComparison(load string, blocks []block, arms []arm, failed map[string]string, tolerance float64) *Comparison {
	c := &Comparison{Load: load, Blocks: blocks}
	for _, a := range arms {
		if a.name == armBare {
			continue
		}
		f := ArmFigures{Name: a.name, Command: a.command, Failed: failed[a.name], Ratios: ratiosOf(blocks, a.name)}
		if a.observe != nil {
			f.Costs = costsOf(blocks, a)
		}
		c.Arms = append(c.Arms, f)
	}
	c.Bare = figuresOf(blocks, []string{armBare, armAgain}, []quantity{
		{"throughput", "requests/s", func(l *armLoad) float64 { return orNaN(l.Throughput) }},
		{"JCT p50", "ms", func(l *armLoad) float64 { return orNaN(l.P50MS) }},
		{"CPU of the processes", "ms per request", func(l *armLoad) float64 { return l.TargetMS / float64(l.All) }},
		{"CPU of the processes", hostShare, func(l *armLoad) float64 { return 100 * l.TargetMS / l.HostMS }},
		{"CPU of others on the host, stolen time too", hostShare, func(l *armLoad) float64 { return 100 * orNaN(l.OthersMS) / l.HostMS }},
	})
	c.judge(tolerance)
	return c
}

// of is the block's load of an arm; nil when it failed.
func (b block) of(name string) *armLoad {
	if i := slices.IndexFunc(b, func(l *armLoad) bool { return l.Arm == name }); i >= 0 {
		return b[i]
	}
	return nil
}

func ratiosOf(blocks []block, name string) (out []Figure) {
	single := func(of func(*armLoad) *float64) func(l, a, b *armLoad) *float64 {
		return func(l, a, b *armLoad) *float64 {
			x, y, z := of(l), of(a), of(b)
			if x == nil || y == nil || z == nil || *y <= 0 || *z <= 0 {
				return nil
			}
			r := *x / math.Sqrt(*y**z)
			return &r
		}
	}
	for _, f := range []struct {
		what string
		of   func(l, a, b *armLoad) *float64
	}{
		{"throughput", single(func(l *armLoad) *float64 { return l.Throughput })},
		{"JCT p50", single(func(l *armLoad) *float64 { return l.P50MS })},
		{"JCT of the same request", sameRequest},
		{"JCT p99", single(func(l *armLoad) *float64 { return l.P99MS })},
		{"CPU of the processes per request", single(func(l *armLoad) *float64 { r := l.TargetMS / float64(l.All); return &r })},
	} {
		var v []float64
		for _, b := range blocks {
			l, first, second := b.of(name), b.of(armBare), b.of(armAgain)
			if name == armAgain {
				second = first // itself ÷ the other
			}
			if l == nil || first == nil || second == nil {
				continue
			}
			if r := f.of(l, first, second); r != nil {
				v = append(v, *r)
			}
		}
		out = append(out, Figure{f.what, "÷ nothing", stat.MedianOf(v, resamples, confidence)})
	}
	return out
}

// sameRequest is the median over the requests of how long each took under l, against its mean in a and
// b: what differs between requests is not in it. Unknown with too few of them.
func sameRequest(l, a, b *armLoad) *float64 {
	var v []float64
	for id, t := range l.times {
		if x, y := a.times[id], b.times[id]; x > 0 && y > 0 {
			v = append(v, t/math.Sqrt(x*y))
		}
	}
	m := float64(stat.MedianOf(v, 0, 0).At)
	if len(v) < stat.MinResampled {
		return nil
	}
	return &m
}

func costsOf(blocks []block, a arm) (out []Figure) {
	// own is what the observer takes: its processes, and the kernel programs where it has any. Other
	// tools' work in the kernel is in the time of the engine's processes only.
	own := func(l *armLoad) float64 {
		kernel := 0.0
		if a.records {
			kernel = orNaN(l.KernelMS)
		}
		return orNaN(l.ToolMS) + kernel
	}
	return figuresOf(blocks, []string{a.name}, []quantity{
		{"its processes", "ms per request", func(l *armLoad) float64 { return orNaN(l.ToolMS) / float64(l.All) }},
		{"its kernel programs, whole host", "ms per request", func(l *armLoad) float64 { return orNaN(l.KernelMS) / float64(l.All) }},
		{"both", "% of the CPU time that the engine's processes used", func(l *armLoad) float64 { return 100 * own(l) / l.TargetMS }},
		{"both", hostShare, func(l *armLoad) float64 { return 100 * own(l) / l.HostMS }},
		{"attaching and ending", "ms of CPU per load, not in the above", func(l *armLoad) float64 { return orNaN(l.BesideMS) }},
	})
}

const hostShare = "% of the host's CPU time (cores × wall)"

// quantity is something that one load shows; NaN where it is not known.
type quantity struct {
	what, unit string
	of         func(*armLoad) float64
}

// figuresOf are the medians of quantities over all loads of some arms.
func figuresOf(blocks []block, names []string, quantities []quantity) (out []Figure) {
	for _, q := range quantities {
		var v []float64
		for _, b := range blocks {
			for _, name := range names {
				if l := b.of(name); l != nil {
					if x := q.of(l); !math.IsNaN(x) && !math.IsInf(x, 0) {
						v = append(v, x)
					}
				}
			}
		}
		out = append(out, Figure{q.what, q.unit, stat.MedianOf(v, resamples, confidence)})
	}
	return out
}

// orNaN is NaN for what is not known.
func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// judge says in one sentence what recording does to the throughput.
func (c *Comparison) judge(tolerance float64) {
	var on, noise stat.Interval
	for _, a := range c.Arms {
		switch a.Name {
		case armAgain:
			noise = a.Ratios[0].Interval
		case armRecorder:
			if on = a.Ratios[0].Interval; on.N == 0 {
				c.Sentence = "nothing can be said of recording: " + a.Failed
				return
			}
		}
	}
	said := fmt.Sprintf("recording changes the throughput by %s (95 %% interval %s to %s, n = %d blocks); the same load twice without it by %s (%s to %s, n = %d)",
		change(on.At), change(on.Lo), change(on.Hi), on.N, change(noise.At), change(noise.Lo), change(noise.Hi), noise.N)
	// What the machine does by itself within a block weakens what is said of recording by as much.
	drift := 0.0
	if noise.Lo.Known() && !noise.Holds(1) {
		drift = math.Abs(float64(noise.At) - 1)
	}
	excluded := 1 - float64(on.Lo) + drift
	switch {
	case !on.Lo.Known():
		c.Sentence = said + fmt.Sprintf(": fewer than %d blocks say nothing about the noise", stat.MinResampled)
	case drift > tolerance:
		c.Sentence = said + ": the machine itself drifts, so that nothing can be said; repeat with more blocks or less beside it"
	case !on.Holds(1) && math.Abs(float64(on.At)-1) > drift:
		c.Sentence, c.Conclusive = said+": the effect stands out from the noise", true
	case excluded > tolerance:
		c.Sentence = said + fmt.Sprintf(": the noise hides effects of the %.1f %% that matter; repeat with more blocks or longer loads", 100*tolerance)
	default:
		c.Sentence, c.Conclusive = said+fmt.Sprintf(": no effect stands out, and a loss of more than %.1f %% can be excluded", 100*excluded), true
	}
}

func change(n stat.Num) string {
	if !n.Known() {
		return "?"
	}
	return fmt.Sprintf("%+.1f %%", 100*(float64(n)-1))
}
