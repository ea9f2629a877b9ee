package loadgen

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Text writes the summary as tables; every percentile stands beside its n, and the definitions of
// what is printed follow.
func (s *Summary) Text(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	s.counts(tw)
	fmt.Fprintln(tw, "\n\tn\tfailed\tn/a\tn?\tp50\tp90\tp95\tp99\tmax\tCV")
	lag, own := "send lag (plan → sent), ms", "of that the generator's own, ms"
	if !s.Open {
		lag, own = "send lag (taken up → sent), ms", "generator's own (reply before → sent), ms"
	}
	s.SendLag.row(tw, lag)
	s.Generator.Lag.row(tw, own)
	s.Generator.ReadLag.row(tw, "arrival → read (in no figure), ms")
	for i := range metrics {
		m := &metrics[i]
		(*m.into(s)).row(tw, withUnit(m.name, m.unit))
	}
	if s.Goodput != nil {
		s.Goodput.table(tw)
	}
	s.layers(tw)
	if s.Compat != nil {
		s.Compat.table(tw)
	}
	s.verified(tw)
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, why := range s.Generator.Because {
		fmt.Fprintf(w, "\nINVALID: %s\n", why)
	}
	fmt.Fprintln(w, "\nWORDS")
	for _, d := range s.Definitions {
		if _, err := fmt.Fprintf(w, "  %s: %s\n", d.Name, d.Meaning); err != nil {
			return err
		}
	}
	return nil
}

func (s *Summary) counts(w io.Writer) {
	fmt.Fprintf(w, "requests\tplanned %d, sent %d, success %d", s.Planned, s.Sent, s.Success)
	if s.Warmup > 0 {
		fmt.Fprintf(w, " (and %d warm-up)", s.Warmup)
	}
	if s.Retries > 0 {
		fmt.Fprintf(w, ", %d retries", s.Retries)
	}
	if s.Stopped {
		fmt.Fprint(w, ", stopped early")
	}
	fmt.Fprintln(w)
	for _, st := range slices.Sorted(maps.Keys(s.States)) {
		fmt.Fprintf(w, "  %s\t%d\n", st, s.States[st])
	}
	fmt.Fprintf(w, "success rate\t%s\n", s.outcome())
	if s.FirstError != "" {
		fmt.Fprintf(w, "first error\t%s\n", s.FirstError)
	}
	fmt.Fprintf(w, "rate\tplanned %s/s, achieved %s/s\n", orNone(s.PlannedRate), orNone(s.AchievedRate))
	fmt.Fprintf(w, "throughput\t%s successes/s\n", orNone(s.Throughput))
	if v := s.Generator.IdleShare; v != nil {
		fmt.Fprintf(w, "idle\t%.2f %% of the concurrency was unused because of the generator's own lag\n", *v*100)
	}
	if s.Coalesced > 0 {
		fmt.Fprintf(w, "coalesced\t%d content events shared a read with the one before: no gap of their own\n", s.Coalesced)
	}
}

func withUnit(name, unit string) string {
	if unit == "" {
		return name
	}
	return name + ", " + unit
}

func (d *Dist) row(w io.Writer, name string) {
	if d == nil || d.N+d.Missing+d.Unknown == 0 {
		return
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d", name, d.N, d.Missing, d.NotApplicable, d.Unknown)
	for _, v := range []*float64{d.P50, d.P90, d.P95, d.P99, d.Max} {
		fmt.Fprintf(w, "\t%s", d.cell(v))
	}
	cv := "-"
	if d.CV != nil {
		cv = fmt.Sprintf("%.3f", *d.CV)
	}
	fmt.Fprintf(w, "\t%s\n", cv)
}

// cell is a percentile; null is unbounded where attempts failed, and nothing where there are no
// values.
func (d *Dist) cell(v *float64) string {
	switch {
	case v != nil:
		return fmt.Sprintf("%.3f", *v)
	case d.Missing > 0:
		return "unbounded"
	}
	return "-"
}

func orNone(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *v)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func (g *Goodput) table(w io.Writer) {
	fmt.Fprintf(w, "\ngoodput (%s, from %s)\tmet %d, missed %d, not judged %d: ", g.SLO, g.Zero, g.Met, g.Missed, g.NotJudged)
	if g.Share != nil {
		fmt.Fprintf(w, "%.2f %%, ", *g.Share*100)
	}
	fmt.Fprintf(w, "%s/s\n", orNone(g.PerSecond))
	for _, b := range g.Bounds {
		fmt.Fprintf(w, "  %s\tpassed %d, missed %d, not applicable %d, not known %d\n", b.Name, b.Passed, b.Missed, b.NotApplicable, b.Unknown)
	}
}

func (s *Summary) layers(w io.Writer) {
	if len(s.Layers) == 0 {
		return
	}
	zero := "send"
	if s.Open {
		zero = "plan"
	}
	fmt.Fprintf(w, "\nlayers (times from %s)\tn\tsuccess\tTTFT p50\tp99\tTTFA p50\tp99\tTPOT p50\tp99\tJCT p50\tp99\tgoodput\n", zero)
	for i := range s.Layers {
		l := &s.Layers[i]
		fmt.Fprintf(w, "%s %s\t%d\t%d", l.By, l.Value, l.Planned, l.Success)
		for _, d := range []*Dist{l.TTFT, l.TTFA, l.TPOT, l.JCT} {
			if d == nil {
				fmt.Fprint(w, "\t-\t-")
				continue
			}
			fmt.Fprintf(w, "\t%s\t%s", d.cell(d.P50), d.cell(d.P99))
		}
		good := "-"
		if l.Goodput != nil && l.Goodput.Share != nil {
			good = fmt.Sprintf("%.1f %%", *l.Goodput.Share*100)
		}
		fmt.Fprintf(w, "\t%s\n", good)
	}
}

func (c *Compat) table(w io.Writer) {
	fmt.Fprintf(w, "\nM1–M8 compatibility view\tn\tmedian\tmean\tstd\n")
	for _, row := range []struct {
		name string
		f    *CompatFigure
	}{
		{"M1 tok_per_sec", c.TokPerSec}, {"M2 ttft_ms (" + c.TTFTFrom + ")", c.TTFT}, {"M3 total_duration_ms", c.Total},
		{"M4 tokens_generated (" + strings.Join(c.TokensFrom, ", ") + ")", c.Tokens}, {"M5 generation_duration_ms", c.Generation},
	} {
		if row.f == nil {
			fmt.Fprintf(w, "%s\t0\t-\t-\t-\n", row.name)
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%.3f\t%.3f\t%.3f\n", row.name, row.f.N, row.f.Median, row.f.Mean, row.f.Std)
	}
	fmt.Fprintf(w, "M6 power_watts, M7 tok_per_sec_per_watt\t0\t-\t-\t-\n")
	fmt.Fprintf(w, "M8 std_dev_tok_s (%d prompts with two or more runs)\t%s, CV %s %% %s\n", c.Prompts, orNone(c.StdDev), orNone(c.CVPercent), c.Stability)
}

func (s *Summary) verified(w io.Writer) {
	if len(s.Verified) == 0 {
		return
	}
	fmt.Fprintln(w, "\naudio against the complete output\tstatus\tsamples\tcomplete\tlost\trepeated\tdiffering")
	for i := range s.Verified {
		q := &s.Verified[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", q.RequestID, q.Status, orDash(q.Audio.Samples), orDash(q.CompleteSamples), orDash(q.Lost), orDash(q.Repeated), orDash(q.Differing))
		for _, why := range q.Why {
			fmt.Fprintf(w, "  %s\n", why)
		}
	}
}

func orDash(v *int64) string {
	if v == nil {
		return "-"
	}
	return itoa(*v)
}

// CSV writes the distributions of the summary and of its layers, one a line.
func (s *Summary) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"layer", "value", "metric", "unit", "n", "failed", "not_applicable", "unknown", "p50", "p90", "p95", "p99", "max", "mean", "cv"}) // its error is kept for Error
	line := func(by, value, name, unit string, d *Dist) {
		if d == nil {
			return
		}
		cells := []string{by, value, name, unit, strconv.Itoa(d.N), strconv.Itoa(d.Missing), strconv.Itoa(d.NotApplicable), strconv.Itoa(d.Unknown)}
		for _, v := range []*float64{d.P50, d.P90, d.P95, d.P99, d.Max, d.Mean, d.CV} {
			cell := ""
			if v != nil {
				cell = strconv.FormatFloat(*v, 'g', -1, 64)
			} else if d.Missing > 0 && len(cells) < 13 {
				cell = "unbounded"
			}
			cells = append(cells, cell)
		}
		_ = c.Write(cells)
	}
	line("all", "", "send lag", "ms", &s.SendLag)
	for i := range metrics {
		line("all", "", metrics[i].name, metrics[i].unit, *metrics[i].into(s))
	}
	for i := range s.Layers {
		l := &s.Layers[i]
		line(l.By, l.Value, "TTFT from "+l.Zero, "ms", l.TTFT)
		line(l.By, l.Value, "TTFA from "+l.Zero, "ms", l.TTFA)
		line(l.By, l.Value, "TPOT", "ms", l.TPOT)
		line(l.By, l.Value, "JCT from "+l.Zero, "ms", l.JCT)
	}
	c.Flush()
	return c.Error()
}
