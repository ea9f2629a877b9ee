package main

import (
	"fmt"
	"io"

	"github.com/stageline/stageline/correlate"
)

// LateErrors sorts the errors over lateUS of one boundary of a stage by cause: what the report, which
// knows no truth, says of the interval accounts for at least half of the error.
type LateErrors struct {
	Boundary string `json:"boundary"`
	N        int    `json:"n"`      // errors over lateUS
	Of       int    `json:"of"`     // all
	NoCPU    int    `json:"no_cpu"` // a thread was ready to run and had no CPU
	Lock     int    `json:"lock"`   // else: a thread slept on a lock
	Busy     int    `json:"busy"`   // else: the threads were at other work
	Unsaid   int    `json:"unsaid"` // the interval is too narrow for a cause
}

// lateUS is the error from which on its cause is looked for.
const lateUS = 1000

// count files an error over lateUS under its cause.
func (l *LateErrors) count(p correlate.Point, us float64) {
	if l.Of++; us <= lateUS {
		return
	}
	l.N++
	switch h := p.Held; {
	case h == nil:
		l.Unsaid++
	case h.NoCPUUS*2 >= us:
		l.NoCPU++
	case h.LockUS*2 >= us:
		l.Lock++
	default:
		l.Busy++
	}
}

// lateErrors lists the boundaries that have errors over lateUS.
func (st *stageSet) lateErrors() []LateErrors {
	out := []LateErrors{}
	for _, b := range [...]struct {
		name string
		set  *errorSet
	}{{"ready", &st.ready}, {"start", &st.start}, {"finish", &st.finish}} {
		if l := b.set.late; l.N > 0 {
			l.Boundary = b.name
			out = append(out, l)
		}
	}
	return out
}

// lateRows says what the large errors come from, where there are such.
func lateRows(w io.Writer, a *Accuracy) {
	head := false
	for i := range a.Stages {
		for _, l := range a.Stages[i].Late {
			if !head {
				head = true
				fmt.Fprintf(w, "\n  %-28s %7s %8s %10s %10s %10s %10s\n", fmt.Sprintf("errors over %d µs, by cause", lateUS), "n", "over", "no CPU", "lock", "other work", "not said")
			}
			fmt.Fprintf(w, "  %-28s %7d %8d %10d %10d %10d %10d\n", a.Stages[i].Stage+" "+l.Boundary, l.Of, l.N, l.NoCPU, l.Lock, l.Busy, l.Unsaid)
		}
	}
}
