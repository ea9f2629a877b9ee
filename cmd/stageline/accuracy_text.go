package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/stageline/stageline/correlate/stat"
	"github.com/stageline/stageline/export"
)

// accuracyText prints a comparison for people.
func accuracyText(out io.Writer, a *Accuracy) error {
	w := bufio.NewWriter(export.Plain(out))
	c, f := &a.Counts, &a.Figures
	fmt.Fprintf(w, "ACCURACY  run %s against %s: %d requests (%d missed), %d visits (%d missed, %d invented)\n",
		a.RunID, a.Source, c.Requests, c.RequestsMissed, c.Visits, c.VisitsMissed, c.VisitsInvented)
	fmt.Fprintf(w, "  hops      %d: %d missed, %d invented; %d in memory are not covered; beside them %d known by count alone, %d segments, %d hops to outside\n",
		c.Hops, f.HopsMissed, f.HopsInvented, c.HopsInMemory, c.HopsCounted, c.Segments, c.HopsOutside)
	if c.OutsideSpan > 0 {
		fmt.Fprintf(w, "  %d visits and hops of the truth are not wholly inside the recording and not judged\n", c.OutsideSpan)
	}
	if e := c.Excused; e != (Excused{}) {
		fmt.Fprintf(w, "  of requests in flight at attach %d visits, %d hops, %d times and inputs of %d joins are lacking and not judged\n", e.Visits, e.Hops, e.Times, e.Joins)
	}
	fmt.Fprintf(w, "  joins     %d: %d wrong, %d not known\n", c.Joins, f.JoinsWrong, f.JoinsUnknown)
	fmt.Fprintf(w, "  visits    exact %s  paired %s  ordered %s  unknown %s\n", pct(a.Identity.Exact), pct(a.Identity.Paired), pct(a.Identity.Ordered), pct(a.Identity.Unknown))
	fmt.Fprintf(w, "  times     seen %s  bounded %s  unknown %s of %d ready, start and finish; set apart %s\n", pct(a.Timing.Seen), pct(a.Timing.Bounded), pct(a.Timing.Unknown), c.Boundaries, pct(f.SetApartShare))
	fmt.Fprintf(w, "  intervals cover %s; width p50 %s p99 %s µs (n %d)\n", pct(f.IntervalCoverage), us(f.IntervalWidth.P50), us(f.IntervalWidth.P99), f.IntervalWidth.N)
	fmt.Fprintf(w, "  score     mean %s, p50 %s, p99 %s µs (interval score at %g %%: width, and %g times the distance of a miss; n %d)\n",
		us(f.IntervalScore.Mean), us(f.IntervalScore.P50), us(f.IntervalScore.P99), 100*(1-scoreAlpha), 2/scoreAlpha, f.IntervalScore.N)
	fmt.Fprintf(w, "\n  %-28s %7s %8s %10s %10s %10s %10s\n", "absolute error, µs", "n", "missing", "p50", "p90", "p99", "max")
	errorRow(w, "hop (send and receive)", f.Hop)
	errorRow(w, "ready", f.Ready)
	errorRow(w, "start", f.Start)
	errorRow(w, "finish", f.Finish)
	if a.Counts.SetApart > 0 {
		errorRow(w, "all three, with set apart", f.All)
	}
	for i := range a.Stages {
		s := &a.Stages[i]
		errorRow(w, s.Stage+" arrivals", s.Arrivals)
		errorRow(w, s.Stage+" ready", s.Ready)
		errorRow(w, s.Stage+" start", s.Start)
		errorRow(w, s.Stage+" finish", s.Finish)
		errorRow(w, s.Stage+" departure", s.Departure)
	}
	lateRows(w, a)
	for _, e := range a.Examples {
		fmt.Fprintf(w, "  %s\n", e)
	}
	return w.Flush()
}

func errorRow(w io.Writer, name string, e stat.Errors) {
	if e.N > 0 {
		fmt.Fprintf(w, "  %-28s %7d %8d %10s %10s %10s %10s\n", name, e.N, e.Missing, us(e.P50), us(e.P90), us(e.P99), us(e.Max))
	}
}

func us(n stat.Num) string {
	switch {
	case n.Unbounded():
		return "inf"
	case !n.Known():
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(n))
}

func pct(n stat.Num) string {
	if !n.Known() {
		return "-"
	}
	if n < 1 && n > 0.9999 {
		return "99.99 %" // never rounded up to everything
	}
	return fmt.Sprintf("%.2f %%", 100*float64(n))
}
