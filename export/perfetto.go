package export

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
)

// PerfettoOptions cut a part out of a timeline. A request is drawn whole or not at all.
type PerfettoOptions struct {
	// FromNS and ToNS (CLOCK_MONOTONIC) select the requests that were under way in between, and cut
	// counters and losses to it; 0 leaves that side open.
	FromNS, ToNS int64
	Last         int // only the last so many requests of those; 0: all
}

// PerfettoStats says what a timeline holds.
type PerfettoStats struct {
	Requests int
	Slices   uint64 // with a duration
	Instants uint64
	Counters uint64 // values
	Tracks   uint64
	Bytes    int64 // before compression
	Flows    uint64
	// FlowsLeftOut are hops with both ends known that got no arrow, because the receiver's time is
	// before the sender's.
	FlowsLeftOut uint64
	// Apart are slices that overlap another of their visit and stand on a track of their own;
	// Extended are visits drawn longer than arrival → departure, because a part of them ends later;
	// Negative are parts of visits that were left out, because they would end before they begin.
	Apart, Extended, Negative uint64
}

// timeline draws one report. It writes as it goes and keeps nothing of a request that is drawn.
type timeline struct {
	w         *packetWriter
	r         *Report
	grades    grades
	hops      map[hopKey]*hopKind
	partNames [4]stringID
	id        stringID // name of the request being drawn
	input     stringID
	output    stringID
	stages    map[string]*processTrack
	recording *processTrack
	requests  *processTrack
	processes int
	lastUUID  uint64
	lastFlow  uint64
	fromNS    int64
	toNS      int64

	// Scratch of the request being drawn.
	boxes []box
	edges []edge
	marks []mark
}

// Perfetto writes the timeline in Perfetto's native format, for ui.perfetto.dev and its
// trace_processor. Times are CLOCK_MONOTONIC, as in the other renderings.
//
// Each stage is a process, with lanes for the visits of requests, activations, hops sent and
// shared memory, and with counters. Hops are arrows (flows) as well, from the sending to the
// receiving visit.
func Perfetto(w io.Writer, r *Report, o PerfettoOptions) (PerfettoStats, error) {
	t := &timeline{
		w: newPacketWriter(w), r: r, hops: map[hopKey]*hopKind{}, stages: map[string]*processTrack{},
	}
	chosen := t.cut(o)
	t.clocks(r.Meta)
	t.root()
	t.recording = t.process("recording", nil, "")
	t.requests = t.process("requests", nil, "")
	t.stageTracks()
	t.drawRecording()
	t.drawLoss()
	t.input, t.output = t.w.name("input"), t.w.name("output")
	for i, p := range parts(&correlate.Visit{}) {
		t.partNames[i] = t.w.name(p.name)
	}
	for i, q := range r.Result.All() {
		if chosen[i] {
			t.request(i, q)
			t.w.stats.Requests++
		}
		if t.w.err != nil {
			break
		}
	}
	t.drawActivations(chosen)
	t.drawCounters()
	return t.w.stats, errors.Join(r.Result.Err(), t.w.flush())
}

// clocks begins the file. Without a reading of the clocks only the monotonic clock is known.
func (t *timeline) clocks(m *run.Metadata) {
	if c := m.Clocks.Start; c != nil {
		t.w.head(c.MonoNS, c.RealNS, c.BootNS)
		return
	}
	t.w.head(t.r.Result.FromNS, 0, 0)
}

// drawRecording shows what was recorded, when, and the verdict on it.
func (t *timeline) drawRecording() {
	res, m := t.r.Result, t.r.Meta
	if res.ToNS < res.FromNS {
		return
	}
	track := t.lane(t.recording, laneRecording, res.FromNS, res.ToNS)
	t.w.begin(track, res.FromNS, t.w.name("run "+m.RunID))
	t.w.noteOnce(noteTool, strings.TrimSpace(m.Tool.Name+" "+m.Tool.Version))
	t.w.noteOnce(noteKernel, m.Host.Kernel)
	t.w.noteUint(noteRecords, res.Counts.Records)
	t.w.noteOnce(noteVerdict, strings.TrimSpace(t.r.Verdict.Kind+" "+t.r.Verdict.Where))
	t.w.noteOnce(noteReason, t.r.Verdict.Reason)
	t.w.emit()
	t.w.end(track, res.ToNS)
}

// drawLoss shows each line of the loss ledger over the time in which the loss occurred. A loss
// outside the cut is drawn too: what is missing must not depend on where one looks.
func (t *timeline) drawLoss() {
	for i := range t.r.Result.Loss {
		l := &t.r.Result.Loss[i]
		name := t.w.name("lost: " + l.Reason)
		switch {
		case l.FromNS != 0 && l.ToNS >= l.FromNS:
			track := t.lane(t.recording, laneLoss, l.FromNS, l.ToNS)
			t.w.begin(track, l.FromNS, name)
			t.noteLoss(l, "")
			t.w.end(track, l.ToNS)
		case l.FromNS != 0 || l.ToNS != 0:
			at := max(l.FromNS, l.ToNS)
			t.w.instant(t.lane(t.recording, laneLoss, at, at), at, name)
			t.noteLoss(l, "only one end of the time of this loss is known")
		default:
			at := t.r.Result.FromNS
			t.w.instant(t.lane(t.recording, laneLoss, at, at), at, name)
			t.noteLoss(l, "when this was lost is not known: shown at the begin of the recording")
		}
	}
}

func (t *timeline) noteLoss(l *correlate.LossEntry, fault string) {
	t.w.noteUint(noteN, l.N)
	t.w.noteInt(noteBytes, int64(l.Bytes))
	t.w.noteString(noteWhat, l.What)
	t.w.noteString(noteSeverity, l.Severity)
	t.w.noteOnce(noteMeaning, l.Meaning)
	t.w.noteString(noteFault, fault)
	t.w.emit()
}

// stage is the track of a stage; every name that a result can hold was written by stageTracks.
func (t *timeline) stage(name string) *processTrack {
	p := t.stages[name]
	if p == nil {
		panic(fmt.Sprintf("stage %q has no track", name))
	}
	return p
}
