package export

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/stageline/stageline/correlate/diagnose"
)

func textVerdict(w io.Writer, v *diagnose.Verdict) {
	title := strings.TrimSpace(v.Kind + " " + printable(v.Where))
	if v.Cause != "" {
		title += " (" + v.Cause + ")"
	}
	section(w, "VERDICT  %s", title)
	for _, text := range []string{v.Reason, v.Advice} {
		if text == "" {
			continue
		}
		for _, line := range wrap(printable(text), lineWidth-2) {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	if len(v.Evidence) > 0 {
		t := table{left: 1}
		t.add("evidence (mean)", "value", "unit", "n", "n?")
		for _, f := range v.Evidence {
			t.add(printable(f.What), figure(f.Value), f.Unit, strconv.Itoa(f.N), strconv.Itoa(f.Unknown))
		}
		t.write(w)
	}
	textSuspects(w, &v.Numbers)
}

func textSuspects(w io.Writer, n *diagnose.Numbers) {
	if len(n.Suspects) == 0 {
		return
	}
	t := table{left: 2}
	t.add("suspect", "", "share", "95 %", "total µs", "queue", "service", "sender", "crossing", "payload", "± µs", "n")
	for _, s := range n.Suspects {
		t.add(s.Kind, printable(s.Where), fmt.Sprintf("%.1f %%", 100*s.Share), fmt.Sprintf("%.0f–%.0f", 100*s.ShareLo, 100*s.ShareHi), figure(s.TotalUS),
			figure(s.QueueUS), figure(s.ServiceUS), figure(s.SenderUS), figure(s.CrossingUS), figure(s.PayloadUS), figure(s.WidthUS), strconv.Itoa(s.N))
	}
	t.write(w)
	fmt.Fprintf(w, "  means per request on the critical paths of %d requests; %s of their time is unexplained\n", n.Requests, share(n.Unexplained))
	if n.Support.Known() {
		fmt.Fprintf(w, "  it leads in both halves of the requests and in %s of their resamples\n", share(n.Support))
	}
}
