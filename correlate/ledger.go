package correlate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// ledger adds up what could not be taken in.
type ledger struct {
	entries map[[2]string]*LossEntry
	spans   []lossSpan // times of loss, merged where they touch
}

type lossSpan struct {
	from, to int64
	what     string
	n        uint64
}

// maxSpans bounds the list of times; past it the closest neighbours are merged.
const maxSpans = 8192

// meanings say in one line what each kind of loss does to the report.
var meanings = map[string]string{
	"ring-full":       "the kernel's buffer was full: records were dropped before they could be read",
	"map-full":        "a table in the kernel was full: calls or endpoints were not tracked",
	"read-fault":      "memory of the target could not be read: the bytes of those calls are missing",
	"debug-drop":      "records were dropped on purpose by the debug setting",
	"recursion":       "a probe could not run because another was running on that CPU",
	"decode":          "a record could not be interpreted",
	"spool":           "the recording could not be written",
	"truncated":       "calls carried more bytes than were captured: ids beyond the head are missing",
	"malformed":       "records of the kernel could not be read",
	"no-task-storage": "the kernel had no memory for a thread's state: times of some calls are missing",
	"decoder-memory":  "decoders held too many bytes: unfinished messages were given up",
	"watch-full":      "hits of watchpoints on rings were lost: the times of those messages lie between two looks",
	"gap-capture":     "bytes beyond the captured head, skipped by frame length",
	"gap-lost":        "stretches of streams whose records were lost: their messages are missing at that end",
	"gap-frame":       "bytes dropped while looking for the next frame",
	"gap-unknown":     "bytes of streams with no known framing",
}

// harmless kinds lose nothing that the timeline needs.
var harmless = map[string]bool{"gap-capture": true, "gap-unknown": true, "truncated": true, "watch-full": true}

func (l *ledger) count(reason, what string, n, bytes uint64, ns int64) {
	l.add(reason, what, n, bytes, ns, ns)
}

func (l *ledger) add(reason, what string, n, bytes uint64, from, to int64) {
	if l.entries == nil {
		l.entries = map[[2]string]*LossEntry{}
	}
	k := [2]string{reason, what}
	e := l.entries[k]
	if e == nil {
		e = &LossEntry{Reason: reason, What: what, FromNS: from, ToNS: to, Severity: "data-loss", Meaning: meanings[reason]}
		if harmless[reason] {
			e.Severity = "info"
		}
		if e.Meaning == "" {
			e.Meaning = "records were not taken"
		}
		l.entries[k] = e
	}
	e.N += n
	e.Bytes += bytes
	e.FromNS, e.ToNS = min(e.FromNS, from), max(e.ToNS, to)
}

func (l *ledger) loss(r *run.Loss) {
	if r.N == 0 {
		return
	}
	l.add(r.Reason, r.What, r.N, r.Bytes, r.FromNS, r.ToNS)
	if !harmless[r.Reason] {
		l.span(lossSpan{r.FromNS, r.ToNS, r.What, r.N})
	}
}

func (l *ledger) gap(r *run.Gap) {
	reason := map[run.GapCause]string{run.GapCapture: "gap-capture", run.GapLost: "gap-lost", run.GapUnframed: "gap-frame", run.GapUnknown: "gap-unknown"}[r.Cause]
	l.add(reason, "stream", 1, r.End-r.Pos, r.AtNS, r.AtNS)
}

func (l *ledger) span(s lossSpan) {
	if n := len(l.spans); n > 0 {
		p := &l.spans[n-1]
		if p.what == s.what && s.from <= p.to+1e6 && s.to >= p.from {
			p.from, p.to, p.n = min(p.from, s.from), max(p.to, s.to), p.n+s.n
			return
		}
	}
	l.spans = append(l.spans, s)
	if len(l.spans) > maxSpans {
		half := l.spans[:0]
		for i := 0; i+1 < len(l.spans); i += 2 {
			a, b := l.spans[i], l.spans[i+1]
			what := a.what
			if b.what != what {
				what = "records"
			}
			half = append(half, lossSpan{min(a.from, b.from), max(a.to, b.to), what, a.n + b.n})
		}
		l.spans = half
	}
}

// hit reports that records were lost inside [from, to], so that a rule may have missed an event.
func (l *ledger) hit(from, to int64) bool {
	for _, s := range l.spans {
		if s.from <= to && s.to >= from {
			return true
		}
	}
	return false
}

// during lists what was lost inside [from, to], by class.
func (l *ledger) during(from, to int64) []string {
	n := map[string]uint64{}
	for _, s := range l.spans {
		if s.from <= to && s.to >= from {
			n[s.what] += s.n
		}
	}
	var out []string
	for what, k := range n {
		out = append(out, fmt.Sprintf("%s %d", what, k))
	}
	slices.Sort(out)
	return out
}

func (l *ledger) sorted() []LossEntry {
	out := []LossEntry{}
	for _, e := range l.entries {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b LossEntry) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.What, b.What))
	})
	return out
}
