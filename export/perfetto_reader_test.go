package export

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// What follows reads a timeline as trace_processor does: packets are sorted by time, equal times keep
// the order of the file, slices of a track are a stack. It reports what that program is silent about.

type field struct {
	num   protowire.Number
	n     uint64 // varint or fixed64
	bytes []byte
}

func fields(t testing.TB, b []byte) []field {
	t.Helper()
	var out []field
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatalf("tag: %v", protowire.ParseError(n))
		}
		b = b[n:]
		f := field{num: num}
		switch typ {
		case protowire.VarintType:
			f.n, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.n, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			t.Fatalf("field %d has wire type %d", num, typ)
		}
		if n < 0 {
			t.Fatalf("field %d: %v", num, protowire.ParseError(n))
		}
		b = b[n:]
		out = append(out, f)
	}
	return out
}

func first(fs []field, num protowire.Number) (field, bool) {
	for _, f := range fs {
		if f.num == num {
			return f, true
		}
	}
	return field{}, false
}

func number(fs []field, num protowire.Number) uint64 { f, _ := first(fs, num); return f.n }
func textOf(fs []field, num protowire.Number) string { f, _ := first(fs, num); return string(f.bytes) }

type readTrack struct {
	name, unit, process string
	parent              uint64
	rank, pid           uint64
	labels              []string
}

type readEvent struct {
	ns          int64
	kind, track uint64
	name        string
	value       float64
	notes       map[string]any
	flows, ends []uint64
	correlation uint64
}

// readSlice is a slice or instant with its place.
type readSlice struct {
	Process, Lane, Name, Parent string
	Begin, Dur                  int64
	event                       *readEvent
	parent                      *readSlice
}

func (s *readSlice) row() string {
	return fmt.Sprintf("%s | %s | %s | %s | %d | %d", s.Process, s.Lane, s.Parent, s.Name, s.Begin, s.Dur)
}

type readTrace struct {
	clocks   map[uint64]uint64
	tracks   map[uint64]*readTrack
	slices   []*readSlice // by begin
	counters map[string][]readEvent
	flows    [][2]*readSlice
}

// readPerfetto decodes a file and fails the test on each mistake that makes Perfetto drop or bend
// something.
func readPerfetto(t testing.TB, file []byte) *readTrace {
	t.Helper()
	tr := &readTrace{clocks: map[uint64]uint64{}, tracks: map[uint64]*readTrack{}, counters: map[string][]readEvent{}}
	var events []*readEvent
	interned := readTables{internedEventNames: {}, internedAnnotationNames: {}, internedStrings: {}, wordTable: {}}
	ns := int64(0)
	for i, p := range fields(t, file) {
		fs := fields(t, p.bytes)
		if p.num != tracePacket || number(fs, packetSequence) == 0 {
			t.Fatalf("packet %d: field %d, sequence %d", i, p.num, number(fs, packetSequence))
		}
		if tr.head(t, i, fs) {
			ns = int64(tr.clocks[clockStep])
		}
		if f, ok := first(fs, packetDescriptor); ok {
			readDescriptor(t, f.bytes, interned)
		}
		if f, ok := first(fs, packetInterned); ok {
			readInterned(t, fields(t, f.bytes), interned)
		}
		if f, ok := first(fs, packetTrack); ok {
			tr.track(t, fields(t, f.bytes))
		}
		if f, ok := first(fs, packetTrackEvent); ok {
			if number(fs, packetFlags)&flagNeeds == 0 {
				t.Fatalf("packet %d uses defaults without saying so", i)
			}
			e := readTrackEvent(t, fields(t, f.bytes), interned)
			ns += int64(number(fs, packetTimestamp))
			e.ns = ns
			if tr.tracks[e.track] == nil {
				t.Fatalf("event %q on track %d, which is not described before it", e.name, e.track)
			}
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b *readEvent) int { return int(min(1, max(-1, a.ns-b.ns))) })
	tr.stack(t, events)
	return tr
}

// head checks that the clocks come first and that the state is cleared once.
func (tr *readTrace) head(t testing.TB, i int, fs []field) bool {
	t.Helper()
	snapshot, ok := first(fs, packetClockSnapshot)
	if ok != (i == 0) || (number(fs, packetFlags)&flagCleared != 0) != (i == 0) {
		t.Fatalf("packet %d: clock snapshot %v, flags %d", i, ok, number(fs, packetFlags))
	}
	if !ok {
		return false
	}
	for _, c := range fields(t, snapshot.bytes) {
		if c.num == snapshotClock {
			cs := fields(t, c.bytes)
			tr.clocks[number(cs, clockID)] = number(cs, clockTimestamp)
			if (number(cs, clockDelta) == 1) != (number(cs, clockID) == clockStep) {
				t.Fatalf("clock %d: steps %d", number(cs, clockID), number(cs, clockDelta))
			}
		}
	}
	defaults, _ := first(fs, packetDefaults)
	if number(fields(t, snapshot.bytes), snapshotPrimary) != clockMono || number(fields(t, defaults.bytes), defaultsClock) != clockStep || tr.clocks[clockMono] == 0 || tr.clocks[clockMono] != tr.clocks[clockStep] {
		t.Fatalf("clocks %v: the monotonic one is not the clock of the trace, or not what the steps count from", tr.clocks)
	}
	return true
}

func readInterned(t testing.TB, fs []field, into readTables) {
	t.Helper()
	for _, f := range fs {
		entry := fields(t, f.bytes)
		id := number(entry, internedID)
		if _, twice := into[f.num][id]; twice || id == 0 {
			t.Fatalf("table %d: id %d is given twice or 0", f.num, id)
		}
		into[f.num][id] = textOf(entry, internedText)
	}
}

func (tr *readTrace) track(t testing.TB, fs []field) {
	t.Helper()
	d := &readTrack{name: textOf(fs, trackName), parent: number(fs, trackParent), rank: number(fs, trackRank)}
	if f, ok := first(fs, trackProcess); ok {
		p := fields(t, f.bytes)
		d.process, d.pid = textOf(p, processName), number(p, processPID)
		for _, l := range p {
			if l.num == processLabel {
				d.labels = append(d.labels, string(l.bytes))
			}
		}
		for _, o := range tr.tracks {
			if o.process != "" && o.pid == d.pid {
				t.Fatalf("processes %q and %q share pid %d: Perfetto makes them one", o.process, d.process, d.pid)
			}
		}
	}
	if f, ok := first(fs, trackCounter); ok {
		d.unit = textOf(fields(t, f.bytes), counterUnit)
	}
	uuid := number(fs, trackUUID)
	if tr.tracks[uuid] != nil {
		t.Fatalf("track %d is described twice", uuid)
	}
	if d.parent != 0 && tr.tracks[d.parent] == nil {
		t.Fatalf("track %d %q: its parent %d is not known", uuid, d.name, d.parent)
	}
	tr.tracks[uuid] = d
}

func readTrackEvent(t testing.TB, fs []field, interned readTables) *readEvent {
	t.Helper()
	e := &readEvent{kind: number(fs, eventType), track: number(fs, eventTrack), notes: map[string]any{}, correlation: number(fs, eventCorrelation)}
	for _, f := range fs {
		switch f.num {
		case eventNameID:
			e.name = interned.lookup(t, internedEventNames, f.n)
		case eventInt:
			e.value = float64(f.n)
		case eventDouble:
			e.value = math.Float64frombits(f.n)
		case eventFlow:
			e.flows = append(e.flows, f.n)
		case eventFlowEnd:
			e.ends = append(e.ends, f.n)
		case eventAnnotation:
			as := fields(t, f.bytes)
			e.notes[interned.lookup(t, internedAnnotationNames, number(as, annotationNameID))] = readValue(t, as, interned)
		case eventNotes:
			for _, n := range fields(t, f.bytes) {
				e.notes[annotations[n.num].name] = readNote(t, n, interned)
			}
		}
	}
	return e
}

func readValue(t testing.TB, fs []field, interned readTables) any {
	var list []any
	for _, f := range fs {
		switch f.num {
		case annotationString:
			return string(f.bytes)
		case annotationStringID:
			return interned.lookup(t, internedStrings, f.n)
		case annotationArray:
			list = append(list, readValue(t, fields(t, f.bytes), interned))
		}
	}
	return list
}

// stack builds slices and flows from events in time order.
func (tr *readTrace) stack(t testing.TB, events []*readEvent) {
	t.Helper()
	open := map[uint64][]*readSlice{}
	sources := map[uint64]*readSlice{}
	for _, e := range events {
		d := tr.tracks[e.track]
		process := d.process
		if p := tr.tracks[d.parent]; d.parent != 0 {
			process = p.process
		}
		st := open[e.track]
		switch e.kind {
		case typeCounter:
			key := process + " | " + d.name + " | " + d.unit
			tr.counters[key] = append(tr.counters[key], *e)
			continue
		case typeEnd:
			if len(st) == 0 {
				t.Fatalf("%s, %s: a slice ends at %d, none is open", process, d.name, e.ns)
			}
			s := st[len(st)-1]
			s.Dur = e.ns - s.Begin
			open[e.track] = st[:len(st)-1]
			continue
		}
		s := &readSlice{Process: process, Lane: d.name, Name: e.name, Begin: e.ns, event: e}
		if len(st) > 0 {
			s.parent = st[len(st)-1]
			s.Parent = s.parent.Name
		}
		if e.kind == typeBegin {
			open[e.track] = append(st, s)
		}
		tr.slices = append(tr.slices, s)
		tr.tie(t, s, sources)
	}
	for track, st := range open {
		if len(st) > 0 {
			t.Fatalf("track %d: %q never ends", track, st[0].Name)
		}
	}
	for id, s := range sources {
		if s != nil {
			t.Fatalf("flow %d begins at %q and never ends", id, s.Name)
		}
	}
	tr.checkNesting(t)
}

// tie follows the flows of a slice; sources holds those that have begun, nil once ended.
func (tr *readTrace) tie(t testing.TB, s *readSlice, sources map[uint64]*readSlice) {
	t.Helper()
	for _, id := range s.event.flows {
		if _, twice := sources[id]; twice {
			t.Fatalf("flow %d begins twice", id)
		}
		sources[id] = s
	}
	for _, id := range s.event.ends {
		if sources[id] == nil {
			t.Fatalf("flow %d ends at %q %d without a source before it, or twice", id, s.Name, s.Begin)
		}
		tr.flows = append(tr.flows, [2]*readSlice{sources[id], s})
		sources[id] = nil
	}
}

// checkNesting fails when a slice sticks out of the one it is in.
func (tr *readTrace) checkNesting(t testing.TB) {
	t.Helper()
	for _, s := range tr.slices {
		if p := s.parent; p != nil && (s.Begin < p.Begin || s.Begin+s.Dur > p.Begin+p.Dur) {
			t.Fatalf("%s does not lie in %s", s.row(), p.row())
		}
		if s.Dur < 0 {
			t.Fatalf("%s ends before it begins", s.row())
		}
	}
}

// rows are the slices and instants of the stages, sorted.
func (tr *readTrace) rows(process string) []string {
	var out []string
	for _, s := range tr.slices {
		if s.Process == process {
			out = append(out, s.row())
		}
	}
	slices.Sort(out)
	return out
}

// arrows are the flows, as "process name -> process name", sorted.
func (tr *readTrace) arrows() []string {
	var out []string
	for _, f := range tr.flows {
		out = append(out, fmt.Sprintf("%s | %s | %d -> %s | %s | %d", f[0].Process, f[0].Name, f[0].Begin+f[0].Dur, f[1].Process, f[1].Name, f[1].Begin))
	}
	slices.Sort(out)
	return out
}
