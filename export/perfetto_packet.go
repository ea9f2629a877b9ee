package export

import (
	"bufio"
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

	defaultsClock = 58

	snapshotClock   = 1
	snapshotPrimary = 2
	clockID         = 1
	clockTimestamp  = 2

	internedEventNames      = 2
	internedAnnotationNames = 3
	internedStrings         = 29
	internedID              = 1
	internedText            = 2

	eventAnnotation  = 4
	eventType        = 9
	eventNameID      = 10
	eventTrack       = 11
	eventDouble      = 44
	eventFlow        = 47
	eventFlowEnd     = 48
	eventCorrelation = 52

	annotationNameID   = 1
	annotationUint     = 3
	annotationInt      = 4
	annotationDouble   = 5
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

// packetWriter writes one packet after another. An event is put together by the calls between begin,
// end, instant or counter and emit; buffers are reused, so that an event allocates nothing once its
// strings are interned. The first error of the output stays and is returned by flush.
type packetWriter struct {
	out      *bufio.Writer
	err      error
	event    []byte // TrackEvent under construction
	interned []byte // InternedData that the next packet must carry
	packet   []byte
	list     []byte // elements of an annotation under construction
	frame    []byte // of a packet: its tag and length
	atNS     int64

	names   internTable // of slices
	strings internTable // values of annotations

	stats PerfettoStats
}

func newPacketWriter(w io.Writer) *packetWriter {
	return &packetWriter{
		out:     bufio.NewWriterSize(w, 1<<17),
		names:   internTable{internedEventNames, map[string]stringID{}},
		strings: internTable{internedStrings, map[string]stringID{}},
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

// head writes the packet that must come first: it clears the sequence's state, makes
// CLOCK_MONOTONIC the clock of the trace and of every packet, and names the annotations.
func (w *packetWriter) head(mono, real, boot int64) {
	w.packet = appendUint(w.packet[:0], packetSequence, sequence)
	w.packet = appendUint(w.packet, packetFlags, flagCleared)
	var clocks []byte
	for _, c := range []struct {
		id uint64
		ns int64
	}{{clockReal, real}, {clockMono, mono}, {clockBoot, boot}} {
		if c.ns != 0 || c.id == clockMono {
			reading := appendUint(appendUint(nil, clockID, c.id), clockTimestamp, uint64(c.ns))
			clocks = appendMessage(clocks, snapshotClock, reading)
		}
	}
	clocks = appendUint(clocks, snapshotPrimary, clockMono)
	w.packet = appendMessage(w.packet, packetClockSnapshot, clocks)
	w.packet = appendMessage(w.packet, packetDefaults, appendUint(nil, defaultsClock, clockMono))
	for i, s := range annotationNames {
		if s != "" {
			w.announce(internedAnnotationNames, stringID(i), s)
		}
	}
	w.flushInterned()
	w.writePacket(nil)
}

func (w *packetWriter) flushInterned() {
	if len(w.interned) > 0 {
		w.packet = appendMessage(w.packet, packetInterned, w.interned)
		w.interned = w.interned[:0]
	}
}

// writePacket writes the packet; rest is the end of it that is not in w.packet.
func (w *packetWriter) writePacket(rest []byte) {
	w.frame = protowire.AppendTag(w.frame[:0], tracePacket, protowire.BytesType)
	w.frame = protowire.AppendVarint(w.frame, uint64(len(w.packet)+len(rest)))
	w.put(w.frame)
	w.put(w.packet)
	w.put(rest)
	w.stats.Bytes += int64(len(w.frame) + len(w.packet) + len(rest))
}

func (w *packetWriter) put(b []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
	}
}

// track writes a TrackDescriptor; rest are its fields besides the uuid.
func (w *packetWriter) track(uuid uint64, rest []byte) {
	w.packet = appendUint(w.packet[:0], packetSequence, sequence)
	w.packet = protowire.AppendTag(w.packet, packetTrack, protowire.BytesType)
	w.packet = protowire.AppendVarint(w.packet, uint64(1+protowire.SizeVarint(uuid)+len(rest)))
	w.packet = appendUint(w.packet, trackUUID, uuid)
	w.packet = append(w.packet, rest...)
	w.writePacket(nil)
	w.stats.Tracks++
}

// start begins an event; emit ends it.
func (w *packetWriter) start(kind uint64, track uint64, ns int64) {
	w.atNS = ns
	w.event = appendUint(w.event[:0], eventType, kind)
	w.event = appendUint(w.event, eventTrack, track)
}

// begin starts the event that opens a slice. Slices of one track must nest; at equal times the
// order of writing is the order of the events.
func (w *packetWriter) begin(track uint64, ns int64, name stringID) {
	w.start(typeBegin, track, ns)
	w.event = appendUint(w.event, eventNameID, name)
	w.stats.Slices++
}

// instant starts an event without a duration.
func (w *packetWriter) instant(track uint64, ns int64, name stringID) {
	w.start(typeInstant, track, ns)
	w.event = appendUint(w.event, eventNameID, name)
	w.stats.Instants++
}

// end closes the innermost open slice of a track.
func (w *packetWriter) end(track uint64, ns int64) {
	w.start(typeEnd, track, ns)
	w.emit()
}

// counter gives a counter track a value from ns on.
func (w *packetWriter) counter(track uint64, ns int64, v float64) {
	w.start(typeCounter, track, ns)
	w.event = appendDouble(w.event, eventDouble, v)
	w.emit()
	w.stats.Counters++
}

// emit writes the event that was started. What stands before it in its packet is written apart, so
// that the event itself is copied once.
func (w *packetWriter) emit() {
	w.packet = appendUint(w.packet[:0], packetTimestamp, uint64(w.atNS))
	w.packet = appendUint(w.packet, packetSequence, sequence)
	w.packet = appendUint(w.packet, packetFlags, flagNeeds)
	w.flushInterned()
	w.packet = protowire.AppendTag(w.packet, packetTrackEvent, protowire.BytesType)
	w.packet = protowire.AppendVarint(w.packet, uint64(len(w.event)))
	w.writePacket(w.event)
}

func (w *packetWriter) flush() error {
	if w.err == nil {
		w.err = w.out.Flush()
	}
	if w.err != nil {
		return fmt.Errorf("write timeline: %w", w.err)
	}
	return nil
}
