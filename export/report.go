// Package export renders a report: a timeline, its figures and the verdict on it. It computes
// nothing: every number it writes stands in the Report it is given, at most in another unit or as a
// share of a count beside it.
package export

import (
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/diagnose"
)

// Report is what the renderings of this package show.
type Report struct {
	Meta    *run.Metadata
	Result  *correlate.Result
	Summary *diagnose.Summary
	Verdict diagnose.Verdict
	// Series is what stood and ran at each stage over time; only the timeline renderings need it.
	Series []diagnose.StageSeries
}

// definitions are the meanings of the columns and figures, in the order of the text report. Each
// rendering prints them, so that no number travels without its definition.
var definitions = []Definition{
	{"queue wait", "ready → start: the last needed input is in the stage's hands, its activation has not begun"},
	{"service", "start → finish: the activation runs, until its last output for the request is handed over"},
	{"residency", "arrival of the first input → write call of the last output"},
	{"join wait", "first → last input of a visit with several upstream stages"},
	{"transit", "send call that carries the first byte entered → receive call that brings the last byte returned"},
	{"JCT", "entry has read the request → last reply write (engine), or → end of the reply at the client"},
	{"residual", "part of the engine's JCT that no visit and no hop covers; overlaps are counted once"},
	{"identity", "exact: the id stands in the bytes or name at both ends; paired: at one end, the other by stream position or segment; ordered: only one candidate in time"},
	{"timing", "seen: an event of the kernel is the boundary; bounded: estimate inside [lo, hi]; unknown: null"},
	{"percentiles", "nearest rank over n known values; a quantile q needs n·(1−q) ≥ 1; - is unknown; n? counts unknown values, which are in no percentile"},
}

// Definition says what a term of a report means.
type Definition struct {
	Term    string `json:"term"`
	Meaning string `json:"meaning"`
}
