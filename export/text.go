package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/diagnose"
	"github.com/stageline/stageline/correlate/stat"
)

// TextOptions tune the text report.
type TextOptions struct {
	Requests int  // how many requests to list, slowest first; 0 lists none
	Detail   bool // also list what the summary tables add up
}

// Text writes the report for people: the loss ledger first when it is not empty, then verdict,
// stages, their load, hand-offs, joins, requests, what is not covered, notes, and what the words mean.
func Text(w io.Writer, r *Report, o TextOptions) error {
	b := bufio.NewWriter(Plain(w))
	textHead(b, r)
	textLoss(b, r.Result.Loss)
	textVerdict(b, &r.Verdict)
	textStages(b, r)
	textLoad(b, r.Summary)
	textEdges(b, r.Summary.Edges)
	textJoins(b, r.Summary.Stages)
	if o.Detail {
		textSplit(b, r.Summary.Stages)
		textFanOut(b, r.Summary.Stages)
		textPhases(b, r.Summary.Edges)
		textConnectors(b, r.Summary.Connectors)
	}
	textRequests(b, &r.Summary.Requests)
	textSlowest(b, r.Result, o.Requests)
	textOverhead(b, r, o.Detail)
	textUncovered(b, r.Result)
	textNotes(b, r.Result)
	textDefinitions(b, o.Detail)
	if err := errors.Join(r.Result.Err(), b.Flush()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func section(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "\n"+format+"\n", args...)
}

func textHead(w io.Writer, r *Report) {
	m, res := r.Meta, r.Result
	fmt.Fprintf(w, "run %s  %s %s  host %s  kernel %s\n", printable(m.RunID), printable(m.Tool.Name), printable(m.Tool.Version), printable(m.Host.Name), printable(m.Host.Kernel))
	c := &res.Counts
	fmt.Fprintf(w, "%.3f s of records: %d records, %d requests, %d messages\n", float64(res.ToNS-res.FromNS)/1e9, c.Records, r.Summary.Requests.N, c.Messages)
	fmt.Fprintf(w, "messages: %d seen at both ends, %d at one, %d of the entry with its clients, %d with other outsiders, %d without an id\n",
		c.MessagesPaired, c.MessagesOneEnded, c.MessagesAtEntry, c.MessagesOutside, c.MessagesNoID)
}

func textLoss(w io.Writer, loss []correlate.LossEntry) {
	if len(loss) == 0 {
		return
	}
	section(w, "LOSS LEDGER  what is missing below")
	t := table{left: 3, last: true}
	t.add("severity", "reason", "what", "n", "bytes", "over ms", "meaning")
	for _, l := range loss {
		t.add(l.Severity, l.Reason, l.What, strconv.FormatUint(l.N, 10), strconv.FormatUint(l.Bytes, 10),
			lossSpan(&l), printable(l.Meaning))
	}
	t.write(w)
}

// lossSpan is the time over which records were lost, in milliseconds; "-" when its begin is unknown.
func lossSpan(l *correlate.LossEntry) string {
	if l.FromNS == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(l.ToNS-l.FromNS)/1e6)
}

func share(n stat.Num) string {
	if !n.Known() {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*n)
}

func distCells(d stat.Dist) []string {
	return []string{strconv.Itoa(d.N), strconv.Itoa(d.Unknown), figure(d.P50), figure(d.P90), figure(d.P95), figure(d.P99), figure(d.Max)}
}

func textStages(w io.Writer, r *Report) {
	section(w, "STAGES  µs")
	t := table{left: 2}
	t.add("stage", "", "n", "n?", "p50", "p90", "p95", "p99", "max")
	for _, d := range stageDocuments(r) {
		f := d.Figures
		if f == nil || f.Visits == 0 {
			t.add(printable(d.Name), "no visits", "0")
			continue
		}
		t.add(append([]string{printable(d.Name), "queue wait"}, distCells(f.QueueWait)...)...)
		t.add(append([]string{"", "service"}, distCells(f.Service)...)...)
		t.add(append([]string{"", "residency"}, distCells(f.Residency)...)...)
		if f.Joins > 0 {
			t.add(append([]string{"", "join wait"}, distCells(f.JoinWait)...)...)
		}
		if f.Chunks != nil {
			t.add(append([]string{"", "chunk gap"}, distCells(f.Chunks.Gap)...)...)
		}
	}
	t.write(w)
	section(w, "GRADES  share of visits (identity) and of ready, start, finish (timing)")
	textGrades(w, r)
}

func textGrades(w io.Writer, r *Report) {
	t := table{left: 1}
	t.add("stage", "visits", "requests", "exact", "paired", "ordered", "unknown", "seen", "bounded", "unknown", "width p50 µs", "processes")
	for _, d := range stageDocuments(r) {
		if f := d.Figures; f != nil && f.Visits > 0 {
			cells := []string{printable(d.Name), strconv.Itoa(f.Visits), strconv.Itoa(f.Requests)}
			cells = append(cells, gradeCells(f.Grades)...)
			t.add(append(cells, figure(f.IntervalWidth.P50), pids(d.TGIDs))...)
		}
	}
	t.write(w)
	if rules := stageRules(r.Result.Stages); rules != "" {
		fmt.Fprintf(w, "  stages are named by: %s\n", rules)
	}
}

func gradeCells(g diagnose.Grades) []string {
	var visits, points int
	for _, n := range g.Identity {
		visits += n
	}
	for _, n := range g.Timing {
		points += n
	}
	return []string{
		percent(g.Identity[correlate.IdentityExact], visits), percent(g.Identity[correlate.IdentityPaired], visits),
		percent(g.Identity[correlate.IdentityOrdered], visits), percent(g.Identity[correlate.IdentityUnknown], visits),
		percent(g.Timing[correlate.TimingSeen], points), percent(g.Timing[correlate.TimingBounded], points), percent(g.Timing[correlate.TimingUnknown], points),
	}
}

func pids(tgids []uint32) string {
	if len(tgids) == 0 {
		return "-"
	}
	s := make([]string, len(tgids))
	for i, p := range tgids {
		s[i] = strconv.FormatUint(uint64(p), 10)
	}
	return strings.Join(s, ",")
}

func stageRules(stages []correlate.Stage) string {
	seen := map[string]bool{}
	var rules []string
	for _, s := range stages {
		if s.Rule != "" && !seen[s.Rule] {
			seen[s.Rule] = true
			rules = append(rules, printable(s.Rule))
		}
	}
	sort.Strings(rules)
	return strings.Join(rules, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
