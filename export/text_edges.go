package export

import (
	"io"
	"strconv"

	"github.com/stageline/stageline/correlate/diagnose"
	"github.com/stageline/stageline/correlate/stat"
)

// textEdges shows every hand-off of data between two stages; where messages refer to shared memory,
// a second row says when that had been read.
func textEdges(w io.Writer, edges []diagnose.Connector) {
	section(w, "HAND-OFFS  messages with data, µs")
	if len(edges) == 0 {
		io.WriteString(w, "  none seen\n")
		return
	}
	t := table{left: 3}
	t.add("from → to", "", "transport", "n", "n?", "p50", "p95", "p99", "max", "bytes p50", "kB handed")
	for i := range edges {
		c := &edges[i]
		t.add(append(append([]string{printable(c.From + " → " + c.To), "transit", c.Transport}, shortCells(c.Transit)...), figure(c.Bytes.P50), figure(stat.Num(c.Handed)/1e3))...)
		if c.Delivery.N+c.Delivery.Unknown > 0 {
			t.add(append(append([]string{"", "in hand", ""}, shortCells(c.Delivery)...), figure(c.ShmBytes.P50), "")...)
		}
	}
	t.write(w)
}

func shortCells(d stat.Dist) []string {
	return []string{strconv.Itoa(d.N), strconv.Itoa(d.Unknown), figure(d.P50), figure(d.P95), figure(d.P99), figure(d.Max)}
}

// textPhases divides the transit of hand-offs.
func textPhases(w io.Writer, edges []diagnose.Connector) {
	t := table{left: 4}
	t.add("from → to", "transport", "path", "", "n", "n?", "p50", "p95", "p99", "max")
	for i := range edges {
		c := &edges[i]
		names := []string{printable(c.From + " → " + c.To), c.Transport, c.Path}
		for _, row := range []struct {
			name string
			d    stat.Dist
		}{{"visible", c.Visible}, {"pick-up", c.Pickup}, {"copy", c.Copy}} {
			if row.d.N == 0 {
				continue
			}
			t.add(append(append(names, row.name), shortCells(row.d)...)...)
			names = []string{"", "", ""}
		}
	}
	if len(t.rows) > 1 {
		section(w, "PHASES  of the hand-offs, µs")
		t.write(w)
	}
}

func textConnectors(w io.Writer, connectors []diagnose.Connector) {
	if len(connectors) == 0 {
		return
	}
	section(w, "HOPS  by message type, control messages too; transit in µs")
	t := table{left: 3}
	t.add("from → to", "type", "transport", "n", "n?", "p50", "p95", "p99", "max", "bytes p50", "shm p50")
	for i := range connectors {
		c := &connectors[i]
		t.add(append(append([]string{printable(c.From + " → " + c.To), printable(c.Type), c.Transport}, shortCells(c.Transit)...), figure(c.Bytes.P50), figure(c.ShmBytes.P50))...)
	}
	t.write(w)
}

func textJoins(w io.Writer, stages []diagnose.StageSummary) {
	t := table{left: 2}
	t.add("stage", "input from", "joins", "inputs", "last", "share", "n", "n?", "offset p50", "p95", "p99", "max")
	for i := range stages {
		s := &stages[i]
		name := printable(s.Stage)
		for j := range s.Upstreams {
			u := &s.Upstreams[j]
			t.add(append([]string{name, printable(u.From), strconv.Itoa(u.Joins), strconv.Itoa(u.Inputs), strconv.Itoa(u.Last), percent(u.Last, s.Joins)},
				shortCells(u.Offset)...)...)
			name = ""
		}
		if n := s.LastInput[""]; n > 0 {
			t.add(name, "(not known)", "", "", strconv.Itoa(n), percent(n, s.Joins), "", "", "", "", "", "")
		}
	}
	if len(t.rows) > 1 {
		section(w, "JOINS  which input came last, and how long after the first each came, µs")
		t.write(w)
	}
}
