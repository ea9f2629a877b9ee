package main

import (
	"bufio"
	"fmt"
	"io"
	"math"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate/stat"
)

// Comparison is loads with a recorder against loads without. Ratios are recorded ÷ not recorded, of
// the noise second ÷ first load of a pair, medians with their 95 % interval over the pairs.
type Comparison struct {
	What       string           `json:"what"` // "recording", or the command that took its place
	Ratios     []RatioOf        `json:"ratios"`
	Recorder   []RecorderFigure `json:"recorder"`
	Sentence   string           `json:"sentence"`
	Conclusive bool             `json:"conclusive"`
	Pairs      [][2]roundLoad   `json:"pairs"` // in the order they were sent
}

// RatioOf is one figure of the load.
type RatioOf struct {
	What  string        `json:"what"`
	OnOff stat.Interval `json:"on_off"`
	Noise stat.Interval `json:"off_off"`
}

// RecorderFigure is what recording itself took: the median over the recorded loads, and their range.
type RecorderFigure struct {
	What string   `json:"what"`
	Unit string   `json:"unit"`
	N    int      `json:"n"`
	P50  stat.Num `json:"p50"`
	Min  stat.Num `json:"min"`
	Max  stat.Num `json:"max"`
}

const (
	resamples  = 10000
	confidence = 0.95
)

func newComparison(rounds []roundPair, what string, tolerance float64) *Comparison {
	c := &Comparison{What: what}
	for _, f := range []struct {
		what string
		of   func(*roundLoad) *float64
	}{
		{"throughput", func(l *roundLoad) *float64 { return l.Throughput }},
		{"JCT p50", func(l *roundLoad) *float64 { return l.P50MS }},
		{"JCT p99", func(l *roundLoad) *float64 { return l.P99MS }},
		{"CPU of the processes per request", func(l *roundLoad) *float64 { return l.TargetMS }},
	} {
		var on, noise []float64
		for i := range rounds {
			p := &rounds[i]
			above, below := &p.loads[1], &p.loads[0]
			if p.loads[0].Recorded {
				above, below = below, above
			}
			a, b := f.of(above), f.of(below)
			switch {
			case a == nil || b == nil || *b == 0:
			case p.noise:
				noise = append(noise, *a / *b)
			default:
				on = append(on, *a / *b)
			}
		}
		c.Ratios = append(c.Ratios, RatioOf{f.what, stat.MedianOf(on, resamples, confidence), stat.MedianOf(noise, resamples, confidence)})
	}
	c.Recorder = recorderFigures(rounds)
	for i := range rounds {
		c.Pairs = append(c.Pairs, rounds[i].loads)
	}
	c.judge(tolerance)
	return c
}

func recorderFigures(rounds []roundPair) []RecorderFigure {
	var costs []*run.Overhead
	var requests []float64
	for i := range rounds {
		for k := range rounds[i].loads {
			if l := &rounds[i].loads[k]; l.Overhead != nil {
				costs, requests = append(costs, l.Overhead), append(requests, float64(l.Requests))
			}
		}
	}
	if costs == nil {
		return nil // another command took the recorder's place
	}
	figure := func(what, unit string, of func(o *run.Overhead, n float64) (float64, bool)) RecorderFigure {
		var v []float64
		for i, o := range costs {
			if x, ok := of(o, requests[i]); ok && !math.IsNaN(x) && !math.IsInf(x, 0) {
				v = append(v, x)
			}
		}
		d := stat.Of(v, len(costs)-len(v))
		return RecorderFigure{What: what, Unit: unit, N: d.N, P50: d.P50, Min: stat.Quantile(v, 1e-9), Max: d.Max}
	}
	kernel := func(o *run.Overhead) (float64, bool) { ns, ok := o.KernelNS(); return float64(ns), ok }
	recorder := func(o *run.Overhead) float64 { _, hi := o.RecorderNS(); return float64(hi) }
	return []RecorderFigure{
		figure("kernel programs, whole host", "ms per request", func(o *run.Overhead, n float64) (float64, bool) { k, ok := kernel(o); return k / 1e6 / n, ok }),
		figure("kernel programs, whole host", "% of the processes' CPU", func(o *run.Overhead, _ float64) (float64, bool) {
			k, ok := kernel(o)
			return 100 * k / float64(o.TargetCPUNS), ok
		}),
		figure("recorder's work (ring to disk)", "ms per request", func(o *run.Overhead, n float64) (float64, bool) { return float64(o.DrainCPUNS) / 1e6 / n, true }),
		figure("recorder, whole process, attaching too", "ms per request", func(o *run.Overhead, n float64) (float64, bool) { return recorder(o) / 1e6 / n, true }),
		figure("recorder's work", "% of the processes' CPU", func(o *run.Overhead, _ float64) (float64, bool) {
			return 100 * float64(o.DrainCPUNS) / float64(o.TargetCPUNS), true
		}),
		figure("kernel programs and recorder's work", "% of the processes' CPU", func(o *run.Overhead, _ float64) (float64, bool) {
			k, ok := kernel(o)
			return 100 * (k + float64(o.DrainCPUNS)) / float64(o.TargetCPUNS), ok
		}),
		figure("kernel programs and recorder's work", "% of a core", func(o *run.Overhead, _ float64) (float64, bool) {
			k, ok := kernel(o)
			return 100 * (k + float64(o.DrainCPUNS)) / float64(o.ToNS-o.FromNS), ok
		}),
	}
}

// judge says in one sentence what recording does to the throughput.
func (c *Comparison) judge(tolerance float64) {
	on, noise := c.Ratios[0].OnOff, c.Ratios[0].Noise
	said := fmt.Sprintf("%s changes the throughput by %s (95 %% interval %s to %s, n = %d pairs); the same load twice without it by %s (%s to %s, n = %d)",
		c.What, change(on.At), change(on.Lo), change(on.Hi), on.N, change(noise.At), change(noise.Lo), change(noise.Hi), noise.N)
	switch {
	case !on.Lo.Known():
		c.Sentence = said + fmt.Sprintf(": fewer than %d pairs say nothing about the noise", stat.MinResampled)
	case !noise.Holds(1):
		c.Sentence = said + ": the machine itself drifts, so that nothing can be said; repeat with more pairs or less beside it"
	case !on.Holds(1):
		c.Sentence, c.Conclusive = said+": the effect stands out from the noise", true
	case float64(on.Lo) < 1-tolerance:
		c.Sentence = said + fmt.Sprintf(": the noise hides effects of the %.1f %% that matter; repeat with more pairs or longer loads", 100*tolerance)
	default:
		c.Sentence, c.Conclusive = said+fmt.Sprintf(": no effect stands out, and a loss of more than %.1f %% can be excluded", 100*(1-float64(on.Lo))), true
	}
}

func change(n stat.Num) string {
	if !n.Known() {
		return "?"
	}
	return fmt.Sprintf("%+.1f %%", 100*(float64(n)-1))
}

func (c *Comparison) text(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "%-40s  %-32s  %s\n", "median of pairs (95 % interval)", "recorded ÷ not", "not ÷ not, the noise")
	for _, r := range c.Ratios {
		fmt.Fprintf(w, "%-40s  %-32s  %s\n", r.What, interval(r.OnOff), interval(r.Noise))
	}
	if c.Recorder != nil {
		fmt.Fprintf(w, "\n%-40s  %-24s  %8s  %8s  %8s  %s\n", "what recording takes", "", "median", "min", "max", "n")
	}
	for _, f := range c.Recorder {
		fmt.Fprintf(w, "%-40s  %-24s  %8s  %8s  %8s  %d\n", f.What, f.Unit, number(f.P50), number(f.Min), number(f.Max), f.N)
	}
	fmt.Fprintf(w, "\n%s.\n", c.Sentence)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

func interval(i stat.Interval) string {
	return fmt.Sprintf("%s (%s to %s), n = %d", number3(i.At), number3(i.Lo), number3(i.Hi), i.N)
}

func number3(n stat.Num) string {
	if !n.Known() {
		return "-"
	}
	return fmt.Sprintf("%.3f", float64(n))
}

func number(n stat.Num) string {
	if !n.Known() {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(n))
}
