package export

import (
	"fmt"
	"io"
	"strconv"

	"github.com/stageline/stageline/correlate/diagnose"
	"github.com/stageline/stageline/correlate/stat"
)

// textLoad shows what stood and ran at each stage over time, and what its threads did meanwhile.
func textLoad(w io.Writer, s *diagnose.Summary) {
	if s.Window == nil {
		return
	}
	section(w, "LOAD  over the %.3f s from the first entry to the last exit; oldest in µs", float64(s.Window[1]-s.Window[0])/1e9)
	t := table{left: 1, last: true}
	t.add("stage", "busy", "queue", "max", "oldest", "batch", "max", "activations", "n?", "on CPU", "run queue", "asleep", "mostly")
	for i := range s.Stages {
		st := &s.Stages[i]
		l := &st.Load
		if st.Visits == 0 {
			continue
		}
		cells := []string{printable(st.Stage), share(l.Utilisation), ratio(l.QueueMean), known(l.QueueMean, l.QueueMax), figure(l.OldestMeanUS)}
		if l.Activations > 0 {
			cells = append(cells, ratio(l.BatchMean), strconv.Itoa(l.BatchMax), strconv.Itoa(l.Activations), strconv.Itoa(l.NoActivation))
		} else {
			cells = append(cells, "-", "-", "-", strconv.Itoa(l.NoActivation))
		}
		t.add(append(cells, splitCells(&st.Split)...)...)
	}
	t.write(w)
}

// splitCells are on CPU, run queue, asleep and the main reason of that.
func splitCells(s *diagnose.ServiceSplit) []string {
	var asleep stat.Num
	for _, b := range s.Blocked {
		asleep += b.Share
	}
	switch {
	case !s.OnCPU.Known():
		return []string{"-", "-", "-", ""}
	case len(s.Blocked) == 0:
		return []string{share(s.OnCPU), share(s.RunQueue), share(0), ""}
	}
	return []string{share(s.OnCPU), share(s.RunQueue), share(asleep), s.Blocked[0].Reason}
}

// known prints a count that means something only where a figure beside it is known.
func known(beside stat.Num, n int) string {
	if !beside.Known() {
		return "-"
	}
	return strconv.Itoa(n)
}

// ratio prints a small figure with two decimals.
func ratio(n stat.Num) string {
	if !n.Known() {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(n))
}

// textSplit lists the service split by reason.
func textSplit(w io.Writer, stages []diagnose.StageSummary) {
	t := table{left: 2}
	t.add("stage", "", "share", "visits")
	for i := range stages {
		s := &stages[i].Split
		if !s.OnCPU.Known() {
			continue
		}
		t.add(printable(stages[i].Stage), "on CPU", fine(s.OnCPU), strconv.Itoa(s.N))
		t.add("", "run queue", fine(s.RunQueue), strconv.Itoa(s.N))
		for _, b := range s.Blocked {
			t.add("", b.Reason, fine(b.Share), strconv.Itoa(b.N))
		}
		if s.Unknown > 0 {
			t.add("", "not known", "", strconv.Itoa(s.Unknown))
		}
	}
	if len(t.rows) > 1 {
		section(w, "SERVICE  shares of the service time by what the serving thread did; visits in which it did")
		t.write(w)
	}
}

func fine(n stat.Num) string {
	if !n.Known() {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100*n)
}

// textFanOut lists what each stage handed on, and to whom.
func textFanOut(w io.Writer, stages []diagnose.StageSummary) {
	t := table{left: 2}
	t.add("stage", "to", "visits", "outputs", "a visit", "receivers a visit", "kB handed", "size not known")
	for i := range stages {
		f := &stages[i].FanOut
		if f.Visits == 0 {
			continue
		}
		t.add(printable(stages[i].Stage), "(all)", strconv.Itoa(f.Visits), strconv.Itoa(f.Outputs), ratio(f.Mean), ratio(f.Targets),
			figure(stat.Num(f.Bytes)/1e3), strconv.Itoa(f.BytesUnknown))
		for _, to := range f.To {
			t.add("", printable(to.To), "", strconv.Itoa(to.Outputs), "", "", figure(stat.Num(to.Bytes)/1e3), "")
		}
	}
	if len(t.rows) > 1 {
		section(w, "FAN-OUT  outputs of visits and the bytes they carry")
		t.write(w)
	}
}
