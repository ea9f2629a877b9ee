package export

import (
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of Perfetto's trace format (protos/perfetto/trace: trace_packet.proto and, under
// track_event, track_event.proto, track_descriptor.proto and debug_annotation.proto).
const (
	tracePacket = 1

	packetClockSnapshot = 6
	packetTimestamp     = 8
	packetSequence      = 10
	packetTrackEvent    = 11
	packetInterned      = 12
	packetFlags         = 13
	packetDefaults      = 59
	packetTrack         = 60
	packetDescriptor    = 72

	defaultsClock = 58

	snapshotClock   = 1
	snapshotPrimary = 2
	clockID         = 1
	clockTimestamp  = 2
	clockDelta      = 3

	internedEventNames      = 2
	internedAnnotationNames = 3
	internedStrings         = 29
	internedID              = 1
	internedText            = 2

	eventAnnotation  = 4
	eventType        = 9
	eventNameID      = 10
	eventTrack       = 11
	eventInt         = 30
	eventDouble      = 44
	eventFlow        = 47
	eventFlowEnd     = 48
	eventCorrelation = 52

	annotationNameID   = 1
	annotationString   = 6
	annotationArray    = 12
	annotationStringID = 17
)

// Values of Perfetto's enums.
const (
	typeBegin   = 1
	typeEnd     = 2
	typeInstant = 3
	typeCounter = 4

	flagCleared = 1 // the sequence's interned data begins here
	flagNeeds   = 2 // the packet uses interned data or defaults

	clockReal = 1
	clockMono = 3
	clockBoot = 6

	// clockStep is the clock of all events: CLOCK_MONOTONIC as the distance from the event before.
	// The numbers from 64 on are for clocks of one sequence.
	clockStep = 64
)

// sequence is the one packet sequence of a file; a packet without one is dropped silently.
const sequence = 1

// stringID is the number under which a string was interned; 0 is none.
type stringID = uint64

// internTable numbers the strings of one kind.
type internTable struct {
	field protowire.Number // of InternedData
	ids   map[string]stringID
}

// bufferBytes is about how much is written at once.
const bufferBytes = 1 << 16

// packetWriter writes one packet after another. An event is put together by the calls between begin,
// end, instant or counter and emit; buffers are reused, so that an event allocates nothing once its
// strings are known. The first error of the output stays and is returned by flush.
type packetWriter struct {
	to       io.Writer
	err      error
	out      []byte // packets that are not written yet
	event    []byte // TrackEvent under construction
	notes    []byte // its annotations of known type
	interned []byte // InternedData that the next packet must carry
	packet   []byte // of a packet that is no event
	list     []byte // elements of an annotation under construction
	atNS     int64  // of the event under construction
	lastNS   int64  // of the one before

	names   internTable // of slices
	strings internTable // values of annotations
	words   map[string]stringID

	stats PerfettoStats
}

func newPacketWriter(w io.Writer) *packetWriter {
	return &packetWriter{
		to:      w,
		names:   internTable{field: internedEventNames, ids: map[string]stringID{}},
		strings: internTable{field: internedStrings, ids: map[string]stringID{}},
		words:   map[string]stringID{},
	}
}

func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

// intern returns the number of s. A new one is announced in the packet that is written next, which
// is the first that can use it.
func (w *packetWriter) intern(t *internTable, s string) stringID {
	if id, ok := t.ids[s]; ok {
		return id
	}
	id := stringID(len(t.ids) + 1)
	t.ids[s] = id
	w.announce(t.field, id, printable(s))
	return id
}

func (w *packetWriter) announce(field protowire.Number, id stringID, s string) {
	entry := appendUint(nil, internedID, id)
	w.interned = appendMessage(w.interned, field, appendText(entry, internedText, s))
}

func (w *packetWriter) name(s string) stringID { return w.intern(&w.names, s) }

// head writes the packets that must come first: one that clears the sequence's state, makes
// CLOCK_MONOTONIC the clock of the trace and steps of it that of the events, and names the
// annotations; and one that describes them.
func (w *packetWriter) head(mono, real, boot int64) {
	w.packet = appendUint(w.packet[:0], packetSequence, sequence)
	w.packet = appendUint(w.packet, packetFlags, flagCleared)
	var clocks []byte
	for _, c := range []struct {
		id uint64
		ns int64
	}{{clockReal, real}, {clockMono, mono}, {clockBoot, boot}, {clockStep, mono}} {
		if c.ns == 0 && c.id != clockMono && c.id != clockStep {
			continue
		}
		reading := appendUint(appendUint(nil, clockID, c.id), clockTimestamp, uint64(c.ns))
		if c.id == clockStep {
			reading = appendUint(reading, clockDelta, 1)
		}
		clocks = appendMessage(clocks, snapshotClock, reading)
	}
	w.lastNS = mono
	clocks = appendUint(clocks, snapshotPrimary, clockMono)
	w.packet = appendMessage(w.packet, packetClockSnapshot, clocks)
	w.packet = appendMessage(w.packet, packetDefaults, appendUint(nil, defaultsClock, clockStep))
	for i, a := range annotations {
		if i > 0 && a.kind == noteDynamic {
			w.announce(internedAnnotationNames, stringID(i), a.name)
		}
	}
	w.packet = appendMessage(w.packet, packetInterned, w.interned)
	w.interned = w.interned[:0]
	w.writePacket()
	w.describe(descriptorFile(noteMessage(), noteExtension()))
}

// writePacket writes what was put together in w.packet.
func (w *packetWriter) writePacket() {
	w.out = appendMessage(w.out, tracePacket, w.packet)
	w.stats.Bytes += int64(1 + protowire.SizeBytes(len(w.packet)))
	w.drain(bufferBytes)
}

// drain writes what is buffered once it is more than so many bytes.
func (w *packetWriter) drain(more int) {
	if len(w.out) <= more {
		return
	}
	if w.err == nil {
		_, w.err = w.to.Write(w.out)
	}
	w.out = w.out[:0]
}

// track writes a TrackDescriptor; rest are its fields besides the uuid.
func (w *packetWriter) track(uuid uint64, rest []byte) {
	w.packet = appendUint(w.packet[:0], packetSequence, sequence)
	w.packet = protowire.AppendTag(w.packet, packetTrack, protowire.BytesType)
	w.packet = protowire.AppendVarint(w.packet, uint64(1+protowire.SizeVarint(uuid)+len(rest)))
	w.packet = appendUint(w.packet, trackUUID, uuid)
	w.packet = append(w.packet, rest...)
	w.writePacket()
	w.stats.Tracks++
}

// start begins an event; emit ends it.
func (w *packetWriter) start(kind byte, track uint64, ns int64) {
	w.atNS = ns
	w.notes = w.notes[:0]
	w.event = append(w.event[:0], eventType<<3, kind, eventTrack<<3)
	w.event = protowire.AppendVarint(w.event, track)
}

// begin starts the event that opens a slice. Slices of one track must nest; at equal times the
// order of writing is the order of the events.
func (w *packetWriter) begin(track uint64, ns int64, name stringID) {
	w.start(typeBegin, track, ns)
	w.event = protowire.AppendVarint(append(w.event, eventNameID<<3), name)
	w.stats.Slices++
}

// instant starts an event without a duration.
func (w *packetWriter) instant(track uint64, ns int64, name stringID) {
	w.start(typeInstant, track, ns)
	w.event = protowire.AppendVarint(append(w.event, eventNameID<<3), name)
	w.stats.Instants++
}

// end closes the innermost open slice of a track.
func (w *packetWriter) end(track uint64, ns int64) {
	w.start(typeEnd, track, ns)
	w.emit()
}

// counter gives a counter track a value from ns on. Whole numbers take less space.
func (w *packetWriter) counter(track uint64, ns int64, v float64) {
	w.start(typeCounter, track, ns)
	if whole := int64(v); float64(whole) == v && whole >= 0 {
		w.event = appendUint(w.event, eventInt, uint64(whole))
	} else {
		w.event = appendDouble(w.event, eventDouble, v)
	}
	w.emit()
	w.stats.Counters++
}

// emit writes the event that was started. Events need not come in the order of their times: a step
// back is a negative distance, in ten bytes.
func (w *packetWriter) emit() {
	step := uint64(w.atNS - w.lastNS)
	w.lastNS = w.atNS
	notes := len(w.notes)
	if notes > 0 {
		notes = 3 + protowire.SizeBytes(notes)
	}
	event := len(w.event) + notes
	size := 1 + protowire.SizeVarint(step) + 4 + 1 + protowire.SizeBytes(event)
	if len(w.interned) > 0 {
		size += 1 + protowire.SizeBytes(len(w.interned))
	}
	from := len(w.out)
	w.out = protowire.AppendVarint(append(w.out, tracePacket<<3|2), uint64(size))
	w.out = protowire.AppendVarint(append(w.out, packetTimestamp<<3), step)
	w.out = append(w.out, packetSequence<<3, sequence, packetFlags<<3, flagNeeds)
	if len(w.interned) > 0 {
		w.out = appendMessage(w.out, packetInterned, w.interned)
		w.interned = w.interned[:0]
	}
	w.out = protowire.AppendVarint(append(w.out, packetTrackEvent<<3|2), uint64(event))
	w.out = append(w.out, w.event...)
	if notes > 0 {
		w.out = appendMessage(w.out, eventNotes, w.notes)
	}
	w.stats.Bytes += int64(len(w.out) - from)
	w.drain(bufferBytes)
}

func (w *packetWriter) flush() error {
	w.drain(0)
	if w.err != nil {
		return fmt.Errorf("write timeline: %w", w.err)
	}
	return nil
}
