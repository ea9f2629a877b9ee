package export

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/diagnose"
	"github.com/stageline/stageline/correlate/stat"
)

func textRequests(w io.Writer, s *diagnose.RequestSummary) {
	section(w, "REQUESTS  %d (%s); states: %s", s.N, counts(s.Sources), counts(s.States))
	if s.InFlight > 0 {
		fmt.Fprintf(w, "  in flight when recording began, and in none of these figures: %d\n", s.InFlight)
	}
	t := table{left: 1}
	t.add("µs", "n", "n?", "p50", "p90", "p95", "p99", "max")
	for _, row := range []struct {
		name string
		d    stat.Dist
	}{
		{"client: TTFT from first write", s.ClientTTFT},
		{"client: JCT from first write", s.ClientJCT},
		{"client's TTFT from entry's read", s.EntryTTFT},
		{"client's JCT from entry's read", s.EntryJCT},
		{"engine: entry's read → first reply write", s.EngineFirst},
		{"engine: entry's read → last reply write", s.EngineJCT},
		{"client's first write → entry's read", s.ZeroDifference},
		{"planned → client's first write", s.SendLag},
		{"residual (engine's JCT not explained)", s.Residual},
	} {
		if row.d.N+row.d.Unknown > 0 {
			t.add(append([]string{row.name}, distCells(row.d)...)...)
		}
	}
	if len(t.rows) > 1 {
		t.write(w)
	}
}

func counts(m map[string]int) string {
	if len(m) == 0 {
		return "none"
	}
	var parts []string
	for _, k := range sortedKeys(m) {
		parts = append(parts, fmt.Sprintf("%s %d", printable(k), m[k]))
	}
	return strings.Join(parts, ", ")
}

// slowRequest is a request that may be listed: its time, and its cells.
type slowRequest struct {
	us    float64
	cells []string
}

func textSlowest(w io.Writer, r *correlate.Result, n int) {
	var slowest []slowRequest
	for _, q := range r.All() {
		if q.JCTUS == nil || n <= 0 || len(slowest) == n && *q.JCTUS <= slowest[n-1].us {
			continue
		}
		// Behind those of the same time: these came before.
		at := sort.Search(len(slowest), func(i int) bool { return slowest[i].us < *q.JCTUS })
		slowest = slices.Insert(slowest[:min(len(slowest), n-1)], at, slowRequest{*q.JCTUS, slowCells(q)})
	}
	if len(slowest) == 0 {
		return
	}
	section(w, "SLOWEST  by the engine's JCT, µs")
	t := table{left: 2}
	t.add("request", "state", "JCT", "residual", "send→read", "visits", "hops", "notes")
	for _, s := range slowest {
		t.add(s.cells...)
	}
	t.write(w)
}

func slowCells(q *correlate.RequestTimeline) []string {
	var between *float64
	if q.FromEntry != nil {
		between = q.FromEntry.SentBeforeUS
	}
	return []string{printable(q.ID), printable(q.State), figure(num(q.JCTUS)), figure(num(q.Residual)), figure(num(between)), strconv.Itoa(len(q.Visits)), strconv.Itoa(len(q.Hops)), strconv.Itoa(len(q.Notes))}
}

func num(v *float64) stat.Num {
	if v == nil {
		return stat.Unknown()
	}
	return stat.Num(*v)
}

func textUncovered(w io.Writer, r *correlate.Result) {
	t := table{left: 1, last: true}
	for _, u := range r.Uncovered {
		t.add(printable(u.From+" → "+u.To), strconv.Itoa(u.N), printable(u.Why))
	}
	for i := range r.Channels {
		if c := &r.Channels[i]; !c.Covered {
			t.add(printable(c.From+" → "+c.To), strconv.FormatUint(c.Messages, 10), printable(c.Transport+": "+c.Why))
		}
	}
	if len(t.rows) > 0 {
		section(w, "NOT COVERED  hops and channels that cannot be followed (n, why)")
		t.write(w)
	}
	if r.Counts.BytesUnframed > 0 || r.Counts.Gaps > 0 {
		fmt.Fprintf(w, "  %d gaps in streams, %d bytes without frames, framing found again %d times\n", r.Counts.Gaps, r.Counts.BytesUnframed, r.Counts.Resyncs)
	}
}

func textNotes(w io.Writer, r *correlate.Result) {
	if len(r.Notes) == 0 {
		return
	}
	section(w, "NOTES")
	for _, n := range r.Notes {
		for i, line := range wrap(fmt.Sprintf("%s %s: %s", noteLevel(&n), printable(n.Code), printable(n.Text)), lineWidth-4) {
			fmt.Fprintf(w, "  %s%s\n", strings.Repeat("  ", min(i, 1)), line)
		}
	}
}

func noteLevel(n *run.Note) string {
	if n.Level == "" {
		return "info"
	}
	return printable(n.Level)
}

func textDefinitions(w io.Writer, detail bool) {
	section(w, "WORDS")
	t := table{left: 2}
	for _, d := range definitions {
		if d.detail && !detail {
			continue
		}
		term := d.Term
		for _, line := range wrap(d.Meaning, lineWidth-16) {
			t.add(term, line)
			term = ""
		}
	}
	t.write(w)
}
