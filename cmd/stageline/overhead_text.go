package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/stageline/stageline/correlate/stat"
	"github.com/stageline/stageline/export"
)

func (c *Comparison) text(out io.Writer) error {
	w := bufio.NewWriter(export.Plain(out))
	fmt.Fprintf(w, "%s, observed by nothing, median (95 %% interval), n = loads\n", c.Load)
	for _, f := range c.Bare {
		fmt.Fprintf(w, "  %-44s  %-28s  %s\n", f.What, interval(f.Interval, 2), f.Unit)
	}
	fmt.Fprintln(w, "\nload ÷ loads of the same block that nothing observes, median (95 % interval), n = blocks")
	row := func(name string, figures []Figure, cell func(Figure) string) {
		fmt.Fprintf(w, "  %-16.16s", name)
		for _, f := range figures {
			fmt.Fprintf(w, "  %-24s", cell(f))
		}
		fmt.Fprintln(w)
	}
	if len(c.Arms) > 0 {
		row("with", c.Arms[0].Ratios, func(f Figure) string { return short[f.What] })
	}
	for _, a := range c.Arms {
		row(a.Name, a.Ratios, func(f Figure) string { return interval(f.Interval, 3) })
	}
	fmt.Fprintln(w, "\nCPU time of the tool itself, median over the blocks (95 % interval)")
	for _, a := range c.Arms {
		for _, f := range a.Costs {
			if f.N > 0 {
				fmt.Fprintf(w, "  %-16.16s  %-32s  %-28s  %s\n", a.Name, f.What, interval(f.Interval, 2), f.Unit)
			}
		}
	}
	for _, a := range c.Arms {
		if a.Failed != "" {
			fmt.Fprintf(w, "\n%s is missing from some or all blocks: %s\n", a.Name, a.Failed)
		}
	}
	fmt.Fprintf(w, "\n%s.\n", c.Sentence)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

// short are heads of columns.
var short = map[string]string{
	"throughput": "throughput", "JCT p50": "JCT p50", "JCT of the same request": "JCT, same request", "JCT p99": "JCT p99",
	"CPU of the processes per request": "CPU of the processes",
}

func interval(i stat.Interval, digits int) string {
	num := func(n stat.Num) string {
		if !n.Known() {
			return "-"
		}
		return fmt.Sprintf("%.*f", digits, float64(n))
	}
	switch {
	case !i.At.Known():
		return "-"
	case !i.Lo.Known():
		return fmt.Sprintf("%s, n=%d", num(i.At), i.N)
	}
	return fmt.Sprintf("%s (%s–%s) n=%d", num(i.At), num(i.Lo), num(i.Hi), i.N)
}
