package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stageline/stageline/correlate"
)

type sqlRow map[string]any

// traceSQL asks Perfetto's own trace_processor. It skips the test where that cannot be had.
func traceSQL(t *testing.T, file []byte, queries ...string) [][]sqlRow {
	t.Helper()
	if testing.Short() {
		t.Skip("short: trace_processor is not started")
	}
	for _, need := range []string{"node", "npm"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skipf("%s is missing: the timeline is checked by this package's own reader only; install Node 20 or newer with npm", need)
		}
	}
	path := filepath.Join(t.TempDir(), "t.pftrace")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, notes bytes.Buffer
	cmd := exec.Command("../scripts/trace-sql", append([]string{path}, queries...)...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		t.Skipf("trace_processor cannot be had: %s", bytes.TrimSpace(notes.Bytes()))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, notes.Bytes())
	}
	var answers [][]sqlRow
	for d := json.NewDecoder(&out); d.More(); {
		var rows []sqlRow
		if err := d.Decode(&rows); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, rows)
	}
	if len(answers) != len(queries) {
		t.Fatalf("%d answers to %d queries", len(answers), len(queries))
	}
	return answers
}

const (
	sqlFaults = `select name, severity, value from stats where severity in ('error', 'data_loss') and value > 0`
	sqlSlices = `select p.name as process, t.name as lane, coalesce(a.name, '') as parent, s.name, s.ts, s.dur
		from slice s join process_track t on s.track_id = t.id join process p using (upid) left join slice a on s.parent_id = a.id`
	sqlFlows = `select pa.name as process_a, a.name as name_a, a.ts + a.dur as end_a, pb.name as process_b, b.name as name_b, b.ts as begin_b
		from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id
		join process_track ta on a.track_id = ta.id join process pa on ta.upid = pa.upid
		join process_track tb on b.track_id = tb.id join process pb on tb.upid = pb.upid`
	sqlCounters = `select p.name as process, t.name as track, t.unit as unit, c.ts, c.value
		from counter c join process_counter_track t on c.track_id = t.id join process p using (upid) order by t.id, c.id`
	sqlArgs = `select s.name, s.ts, a.key, a.display_value as value, a.value_type as type from slice s join args a using (arg_set_id)
		where a.key glob 'debug.*' and a.key != 'debug.note'`
	sqlMono  = `select min(ts) as low, max(ts + dur) as high, count(*) as n from slice`
	sqlInner = `select count(*) as n from slice c join slice p on c.parent_id = p.id where c.ts < p.ts or c.ts + c.dur > p.ts + p.dur`
)

func cells(rows []sqlRow, format string, keys ...string) []string {
	var out []string
	for _, r := range rows {
		args := make([]any, len(keys))
		for i, k := range keys {
			args[i] = r[k]
			if f, ok := r[k].(float64); ok {
				args[i] = int64(f)
			}
		}
		out = append(out, fmt.Sprintf(format, args...))
	}
	slices.Sort(out)
	return out
}

func ofProcess(rows []string, process string) (out []string) {
	for _, r := range rows {
		if strings.HasPrefix(r, process+" |") {
			out = append(out, r)
		}
	}
	return out
}

// What Perfetto makes of the odd report is what its own reader here makes of it, row by row.
func TestPerfettoSQLOddTimes(t *testing.T) {
	file, stats := draw(t, odd(), PerfettoOptions{})
	a := traceSQL(t, file, sqlFaults, sqlSlices, sqlFlows, sqlCounters, sqlArgs, sqlMono, sqlInner)
	if len(a[0]) != 0 {
		t.Errorf("trace_processor reports %v", a[0])
	}
	rows := cells(a[1], "%v | %v | %v | %v | %v | %v", "process", "lane", "parent", "name", "ts", "dur")
	sameRows(t, "work", ofProcess(rows, "work"), oddWork)
	sameRows(t, "requests", ofProcess(rows, "requests"), oddRequests)
	if uint64(len(rows)) != stats.Slices+stats.Instants {
		t.Errorf("%d slices loaded of %+v", len(rows), stats)
	}
	sameRows(t, "arrows", cells(a[2], "%v | %v | %v -> %v | %v | %v", "process_a", "name_a", "end_a", "process_b", "name_b", "begin_b"), oddArrows)
	if uint64(len(a[3])) != stats.Counters || len(ofProcess(cells(a[3], "%v | %v | %v | %v", "process", "track", "unit", "ts"), "work | oldest wait | ms")) != 4 {
		t.Errorf("counters: %v", a[3])
	}
	args := cells(a[4], "%v %v %v %v", "name", "ts", "key", "value")
	sameRows(t, "annotations", args, strings.Join(readPerfetto(t, file).noteRows(), "\n"))
	for _, want := range []string{"service 1150 debug.begin bounded: futex-wake", "service 1150 debug.begin_lo_ns -3", "r-1 1100 debug.chunk 0",
		"batch of 2 1150 debug.members[1] r-2", "lost: decode 1000 debug.severity info"} {
		if !slices.Contains(args, want) {
			t.Errorf("no annotation %q in %q", want, args)
		}
	}
	types := cells(a[4], "%v %v", "key", "type")
	for _, want := range []string{"debug.begin string", "debug.begin_lo_ns int", "debug.pid uint", "debug.on_cpu_us real"} {
		if !slices.Contains(types, want) {
			t.Errorf("no annotation of type %q in %q", want, slices.Compact(types))
		}
	}
	if a[5][0]["low"] != 1000.0 || a[6][0]["n"] != 0.0 {
		t.Errorf("times %v: not CLOCK_MONOTONIC as recorded; %v slices stick out", a[5][0], a[6][0]["n"])
	}
}

// Slices and arrows of each request in the timeline are those of the JSON report. The report has no
// reading of the wall clock: nothing may be dropped for that.
func TestPerfettoSQLEqualsReport(t *testing.T) {
	r := pipeline(50)
	file, _ := draw(t, r, PerfettoOptions{})
	var b bytes.Buffer
	if err := JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	doc, err := ReadDocument(&b)
	if err != nil {
		t.Fatal(err)
	}
	a := traceSQL(t, file, sqlFaults, sqlInner,
		`select v.name as id, p.name as stage, s.name, count(*) as n, sum(s.dur) as dur from slice s join slice v on s.parent_id = v.id
			join process_track t on s.track_id = t.id join process p using (upid) where t.name = 'requests' and s.name not in ('input', 'output') group by 1, 2, 3`,
		`select s.name as id, p.name as stage, '' as name, count(*) as n, sum(dur) as dur from slice s join process_track t on s.track_id = t.id
			join process p using (upid) where t.name = 'requests' and s.parent_id is null group by 1, 2`,
		`select extract_arg(h.arg_set_id, 'correlation_id') as id, 'hops' as stage, p.name, count(*) as n, sum(h.dur) as dur
			from slice h join process_track t on h.track_id = t.id join process p using (upid) where t.name = 'hops out' group by 1, 3`,
		`select s.name as id, 'engine' as stage, extract_arg(s.arg_set_id, 'correlation_id') as name, count(*) as n, sum(dur) as dur
			from slice s join process_track t on s.track_id = t.id where t.name = 'engine: entry to exit' and s.parent_id is null group by 1, 3`,
		sqlFlows)
	if len(a[0]) != 0 || a[1][0]["n"] != 0.0 {
		t.Errorf("trace_processor reports %v, %v slices stick out", a[0], a[1])
	}
	var got []string
	for _, rows := range a[2:6] {
		got = append(got, cells(rows, "%v | %v | %v | %v | %v", "id", "stage", "name", "n", "dur")...)
	}
	want, arrows := reportRows(doc.Requests)
	sameRows(t, "slices", got, strings.Join(want, "\n"))
	sameRows(t, "flows", cells(a[6], "%v %v -> %v %v", "process_a", "end_a", "process_b", "begin_b"), strings.Join(arrows, "\n"))
}

// reportRows sums what the report says of each request: visits, parts of visits, hops, and one arrow
// a hop, from its send to its receive.
func reportRows(requests []correlate.RequestTimeline) (rows, arrows []string) {
	type sum struct{ n, dur int64 }
	for i := range requests {
		q := &requests[i]
		sums := map[string]sum{}
		group := fmt.Sprintf("tp:#%d", i+1) // how trace_processor shows a correlation id
		add := func(id, stage, name string, from, to *int64) {
			k := id + " | " + stage + " | " + name
			sums[k] = sum{sums[k].n + 1, sums[k].dur + *to - *from}
		}
		for j := range q.Visits {
			v := &q.Visits[j]
			add(q.ID, v.Stage, "", v.Arrival.NS, v.Departure.NS)
			if v.Join || *v.Ready.NS > *v.Arrival.NS {
				add(q.ID, v.Stage, "wait for inputs", v.Arrival.NS, v.Ready.NS)
			}
			add(q.ID, v.Stage, "queue wait", v.Ready.NS, v.Start.NS)
			add(q.ID, v.Stage, "service", v.Start.NS, v.Finish.NS)
			add(q.ID, v.Stage, "send", v.Finish.NS, v.Departure.NS)
		}
		add(q.ID, "engine", group, q.Entry.NS, q.Exit.NS)
		for j := range q.Hops {
			h := &q.Hops[j]
			add(group, "hops", h.From, h.Send.NS, h.Recv.NS)
			arrows = append(arrows, fmt.Sprintf("%s %d -> %s %d", h.From, *h.Send.NS, h.To, *h.Recv.NS))
		}
		for k, s := range sums {
			rows = append(rows, fmt.Sprintf("%s | %d | %d", k, s.n, s.dur))
		}
	}
	return rows, arrows
}
