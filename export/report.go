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
	// Series is what stood and ran at each stage over time; null: the timeline renderings, which alone
	// need it, make it from Result, one stage after the other.
	Series []diagnose.StageSeries
}

// definitions are the meanings of the columns and figures, in the order of the text report. Each
// rendering prints them, so that no number travels without its definition.
var definitions = []Definition{
	{Term: "queue wait", Meaning: "ready → start: the last needed input is in the stage's hands, its activation has not begun"},
	{Term: "service", Meaning: "start → finish: the activation runs, until its last output for the request is handed over"},
	{Term: "residency", Meaning: "arrival of the first input → write call of the last output"},
	{Term: "join wait", Meaning: "first → last input of a visit with several upstream stages"},
	{Term: "chunk gap", Meaning: "finish of one chunk of a request → finish of the next, at a stage that fires once per chunk"},
	{Term: "busy", Meaning: "share of the time in which the stage serves at least one visit; all its processes together"},
	{Term: "queue", Meaning: "visits that are ready and not started, over time: mean weighted by time, and largest"},
	{Term: "oldest", Meaning: "age of the visit that waits longest, mean weighted by time while any waits"},
	{Term: "batch", Meaning: "visits that one thread serves at once: mean weighted by time over all activations; max counts only what is certain"},
	{Term: "activation", Meaning: "visits that were served together: carried by one message, or overlapping in time on one thread beyond what is uncertain; n?: visits of which that cannot be told"},
	{Term: "on CPU", Meaning: "share of the service time in which the thread that serves ran; run queue: ready to run, without a CPU; asleep: the rest, and its main reason. Members of a batch each have all of their thread's time"},
	{Term: "reasons", Meaning: "of sleep, by call: lock (a futex that others wait on, the GIL among them; a file lock), futex, timer, poll, io, memory (mappings), fault (in no call), yield, ioctl (drivers), child, other; unseen: the moment it was woken was not seen, so that run queue may be in it", detail: true},
	{Term: "transit", Meaning: "send call that carries the first byte entered → receive call that brings the last byte returned"},
	{Term: "in hand", Meaning: "the same send → the receiver has read the segment that the message refers to"},
	{Term: "handed", Meaning: "bytes of messages and of the segments they refer to; what goes to several receivers counts for each"},
	{Term: "visible", Meaning: "send → the last byte is in the receiver's queue, at the latest; TCP, where arrivals were recorded", detail: true},
	{Term: "pick-up", Meaning: "send → the read call of the first byte is entered; 0 when its reader waited in that call. copy: the rest of the transit", detail: true},
	{Term: "path", Meaning: "how far apart the two ends are; where in a host a process ran is not recorded", detail: true},
	{Term: "offset", Meaning: "first input of a join → last input from this upstream; more inputs than joins: several of one request come from there"},
	{Term: "JCT", Meaning: "entry has read the request → last reply write (engine), or → end of the reply at the client"},
	{Term: "send→read", Meaning: "the client's first write → the engine's read of the request's last byte: what lies between the two zero points"},
	{Term: "residual", Meaning: "part of the engine's JCT that no visit and no hop covers; overlaps are counted once"},
	{Term: "identity", Meaning: "exact: the id stands in the bytes or name at both ends; paired: at one end, the other by stream position or segment; ordered: only one candidate in time"},
	{Term: "timing", Meaning: "seen: an event of the kernel is the boundary; bounded: estimate inside [lo, hi]; unknown: null"},
	{Term: "percentiles", Meaning: "nearest rank over n known values; a quantile q needs n·(1−q) ≥ 1; - is unknown; n? counts unknown values, which are in no percentile"},
}

// Definition says what a term of a report means.
type Definition struct {
	Term    string `json:"term"`
	Meaning string `json:"meaning"`
	detail  bool   // of a column that the text report has only in detail
}
