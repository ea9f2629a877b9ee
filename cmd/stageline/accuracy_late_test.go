package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stageline/stageline/correlate"
)

// Errors over 1 ms are filed under what the report says held threads up in the interval; the smaller
// ones need no cause.
func TestLateErrors(t *testing.T) {
	point := func(ns int64, h *correlate.Held) correlate.Point {
		return correlate.Point{NS: &ns, Timing: correlate.TimingBounded, Held: h}
	}
	truth := int64(50_000_000)
	var st stageSet
	for _, p := range []correlate.Point{
		point(truth+900_000, nil),
		point(truth+4_000_000, &correlate.Held{NoCPUUS: 2000, LockUS: 4000}),
		point(truth-4_000_000, &correlate.Held{NoCPUUS: 1999, LockUS: 2000}),
		point(truth+4_000_000, &correlate.Held{NoCPUUS: 500, LockUS: 500}),
		point(truth+2_000_000, nil),
	} {
		st.ready.boundary(p, &truth, false)
	}
	st.start.boundary(point(truth, nil), &truth, false)
	late := st.lateErrors()
	if want := (LateErrors{Boundary: "ready", N: 4, Of: 5, NoCPU: 1, Lock: 1, Busy: 1, Unsaid: 1}); len(late) != 1 || late[0] != want {
		t.Fatalf("got %+v, want only %+v", late, want)
	}
	var out bytes.Buffer
	lateRows(&out, &Accuracy{Stages: []StageErrors{{Stage: "encoder", Late: late}}})
	if got := strings.Fields(out.String()); strings.Join(got[len(got)-8:], " ") != "encoder ready 5 4 1 1 1 1" {
		t.Errorf("row: %s", out.String())
	}
}
