package export

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/stageline/stageline/correlate"
)

// annotation is a name beside a value on a slice. SQL finds it as debug.<name>.
//
// Most have a type that the file itself describes (perfetto_schema.go); their number is that of a
// field, and those below 16 take a byte less. The others are Perfetto's own DebugAnnotations: a
// string that comes often but of which there are many, one that comes once, a list.
type annotation int

const (
	noteBegin annotation = iota + 1
	noteBeginLo
	noteBeginHi
	noteEnd
	noteEndLo
	noteEndHi
	noteIdentity
	noteChunk
	noteBytes
	notePID
	noteFrom
	noteTo
	noteTransport
	noteSegmentBytes
	noteOnCPU
	noteRunQueue
	noteState
	noteSource
	noteResidual
	noteBatch
	noteN
	noteStatus
	noteRecords
	noteSegment
	noteReason
	noteFault
	noteRequest
	noteNote
	noteMembers
	noteWhat
	noteSeverity
	noteMeaning
	noteError
	noteTool
	noteKernel
	noteVerdict
)

// noteKind is how the value of an annotation is written; for all but noteDynamic it is the type in
// Perfetto's descriptors (FieldDescriptorProto.Type).
type noteKind byte

const (
	noteDynamic  noteKind = 0 // a DebugAnnotation
	noteDouble   noteKind = 1
	noteInteger  noteKind = 3
	noteUnsigned noteKind = 4
	noteWord     noteKind = 14 // one of a few strings: an enum that grows (see word)
	noteDistance noteKind = 18 // an integer of either sign
)

// annotations are what people and SQL see. Names ending in _ns are nanoseconds from the shown
// boundary to the end of its interval, so never positive for lo and never negative for hi.
var annotations = [...]struct {
	name string
	kind noteKind
}{
	{},               // annotations count from 1
	noteBegin:        {"begin", noteWord},
	noteBeginLo:      {"begin_lo_ns", noteDistance},
	noteBeginHi:      {"begin_hi_ns", noteDistance},
	noteEnd:          {"end", noteWord},
	noteEndLo:        {"end_lo_ns", noteDistance},
	noteEndHi:        {"end_hi_ns", noteDistance},
	noteIdentity:     {"identity", noteWord},
	noteChunk:        {"chunk", noteInteger},
	noteBytes:        {"bytes", noteInteger},
	notePID:          {"pid", noteUnsigned},
	noteFrom:         {"from", noteWord},
	noteTo:           {"to", noteWord},
	noteTransport:    {"transport", noteWord},
	noteSegmentBytes: {"segment_bytes", noteInteger},
	noteOnCPU:        {"on_cpu_us", noteDouble},
	noteRunQueue:     {"run_queue_us", noteDouble},
	noteState:        {"state", noteWord},
	noteSource:       {"source", noteWord},
	noteResidual:     {"residual_us", noteDouble},
	noteBatch:        {"batch", noteInteger},
	noteN:            {"n", noteUnsigned},
	noteStatus:       {"http_status", noteInteger},
	noteRecords:      {"records", noteUnsigned},
	noteSegment:      {"segment", noteDynamic},
	noteReason:       {"reason", noteDynamic},
	noteFault:        {"drawn", noteDynamic},
	noteRequest:      {"request", noteDynamic},
	noteNote:         {"note", noteDynamic},
	noteMembers:      {"members", noteDynamic},
	noteWhat:         {"what", noteDynamic},
	noteSeverity:     {"severity", noteDynamic},
	noteMeaning:      {"meaning", noteDynamic},
	noteError:        {"error", noteDynamic},
	noteTool:         {"tool", noteDynamic},
	noteKernel:       {"kernel", noteDynamic},
	noteVerdict:      {"verdict", noteDynamic},
}

func appendDouble(b []byte, field protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(v))
}

// field begins an annotation of known type; wire is its wire type.
func (w *packetWriter) field(a annotation, wire byte) {
	if a < 16 {
		w.notes = append(w.notes, byte(a)<<3|wire)
		return
	}
	w.notes = protowire.AppendVarint(w.notes, uint64(a)<<3|uint64(wire))
}

func (w *packetWriter) noteInt(a annotation, v int64) { w.noteUint(a, uint64(v)) }

func (w *packetWriter) noteUint(a annotation, v uint64) {
	w.field(a, 0)
	if v < 1<<7 {
		w.notes = append(w.notes, byte(v))
		return
	}
	w.notes = protowire.AppendVarint(w.notes, v)
}

func (w *packetWriter) noteDistance(a annotation, v int64) {
	w.noteUint(a, protowire.EncodeZigZag(v))
}

func (w *packetWriter) noteDouble(a annotation, v float64) {
	w.field(a, 1)
	w.notes = protowire.AppendFixed64(w.notes, math.Float64bits(v))
}

// noteWord annotates with one of a few strings; an empty one is left out.
func (w *packetWriter) noteWord(a annotation, s string) {
	w.noteKnown(a, w.word(s))
}

// noteKnown annotates with a word by its number; 0 is left out.
func (w *packetWriter) noteKnown(a annotation, word stringID) {
	if word != 0 {
		w.noteUint(a, word)
	}
}

// annotate begins a DebugAnnotation of size bytes besides its name. Names have numbers of one byte
// (checked by a test), so that the length is known before it is written.
func (w *packetWriter) annotate(a annotation, size int) {
	w.event = append(w.event, eventAnnotation<<3|2)
	w.event = protowire.AppendVarint(w.event, uint64(2+size))
	w.event = append(w.event, annotationNameID<<3, byte(a))
}

// noteID annotates with an interned string. The number of its field takes two bytes.
func (w *packetWriter) noteID(a annotation, s stringID) {
	w.annotate(a, 2+protowire.SizeVarint(s))
	w.event = appendUint(w.event, annotationStringID, s)
}

// noteString annotates with a string that comes again, one of many; an empty one is left out.
func (w *packetWriter) noteString(a annotation, s string) {
	if s != "" {
		w.noteID(a, w.intern(&w.strings, s))
	}
}

// noteOnce annotates with a string that hardly comes again, so that remembering it would not pay.
func (w *packetWriter) noteOnce(a annotation, s string) {
	if s == "" {
		return
	}
	s = printable(s)
	w.annotate(a, 1+protowire.SizeBytes(len(s)))
	w.event = appendText(w.event, annotationString, s)
}

func (w *packetWriter) noteMaybe(a annotation, v *int64) {
	if v != nil {
		w.noteInt(a, *v)
	}
}

func (w *packetWriter) noteMaybeDouble(a annotation, v *float64) {
	if v != nil {
		w.noteDouble(a, *v)
	}
}

// noteList annotates with a list of interned strings.
func (w *packetWriter) noteList(a annotation, ids []stringID) {
	w.list = w.list[:0]
	for _, id := range ids {
		w.list = protowire.AppendTag(w.list, annotationArray, protowire.BytesType)
		w.list = protowire.AppendVarint(w.list, uint64(2+protowire.SizeVarint(id)))
		w.list = appendUint(w.list, annotationStringID, id)
	}
	w.annotate(a, len(w.list))
	w.event = append(w.event, w.list...)
}

// correlation ties the slices of one request together.
func (w *packetWriter) correlation(request int) {
	w.event = appendUint(w.event, eventCorrelation, uint64(request)+1)
}

// flowStart makes the event's slice the source of an arrow, which begins at its end; flowEnd makes
// it the target, where the arrow ends at its begin. Perfetto wants the source's event first.
func (w *packetWriter) flowStart(id uint64) {
	w.event = protowire.AppendFixed64(protowire.AppendTag(w.event, eventFlow, protowire.Fixed64Type), id)
	w.stats.Flows++
}

func (w *packetWriter) flowEnd(id uint64) {
	w.event = protowire.AppendFixed64(protowire.AppendTag(w.event, eventFlowEnd, protowire.Fixed64Type), id)
}

// grade is timing and rule of a point, as shown in one annotation.
type grade struct {
	timing correlate.Timing
	rule   string
	word   stringID
}

// grades are those met so far. They are few and their texts are constants, so that comparing beats
// hashing.
type grades []grade

func (w *packetWriter) noteGrade(g *grades, a annotation, p *correlate.Point) {
	for i := range *g {
		if known := &(*g)[i]; known.rule == p.Rule && known.timing == p.Timing {
			w.noteUint(a, known.word)
			return
		}
	}
	text := string(p.Timing)
	if p.Rule != "" {
		text += ": " + p.Rule
	}
	word := w.word(text)
	*g = append(*g, grade{p.Timing, p.Rule, word})
	w.noteUint(a, word)
}

// notePoint shows how sure a boundary is: its grade and, where they differ from it, the ends of its
// interval. a, lo and hi are three annotations in a row.
func (w *packetWriter) notePoint(g *grades, a annotation, p *correlate.Point) {
	w.noteGrade(g, a, p)
	if p.NS == nil || p.Timing == correlate.TimingSeen {
		return
	}
	if p.LoNS != nil {
		w.noteDistance(a+1, *p.LoNS-*p.NS)
	}
	if p.HiNS != nil {
		w.noteDistance(a+2, *p.HiNS-*p.NS)
	}
}

func unsignedText(v uint32) string { return strconv.FormatUint(uint64(v), 10) }
