package export

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/stageline/stageline/correlate"
)

// annotation is a name beside a value on a slice. SQL finds it as debug.<name>.
type annotation stringID

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
	noteSegment
	noteSegmentBytes
	noteReason
	noteFault
	noteRequest
	noteState
	noteSource
	noteResidual
	noteNote
	noteBatch
	noteMembers
	noteN
	noteWhat
	noteSeverity
	noteMeaning
	noteStatus
	noteError
	noteRule
	noteTool
	noteKernel
	noteVerdict
	noteRecords
	noteOnCPU
	noteRunQueue
)

// annotationNames are what people and SQL see. Names ending in _ns are nanoseconds from the shown
// boundary to the end of its interval, so never positive for lo and never negative for hi.
var annotationNames = [...]string{
	noteBegin: "begin", noteBeginLo: "begin_lo_ns", noteBeginHi: "begin_hi_ns",
	noteEnd: "end", noteEndLo: "end_lo_ns", noteEndHi: "end_hi_ns",
	noteIdentity: "identity", noteChunk: "chunk", noteBytes: "bytes", notePID: "pid", noteFrom: "from", noteTo: "to",
	noteTransport: "transport", noteSegment: "segment", noteSegmentBytes: "segment_bytes", noteReason: "reason", noteFault: "drawn",
	noteRequest: "request", noteState: "state", noteSource: "source", noteResidual: "residual_us", noteNote: "note",
	noteBatch: "batch", noteMembers: "members", noteN: "n", noteWhat: "what", noteSeverity: "severity", noteMeaning: "meaning",
	noteStatus: "http_status", noteError: "error", noteRule: "stage_named_by", noteTool: "tool", noteKernel: "kernel",
	noteVerdict: "verdict", noteRecords: "records", noteOnCPU: "on_cpu_us", noteRunQueue: "run_queue_us",
}

func appendDouble(b []byte, field protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(v))
}

// annotate begins a DebugAnnotation of size bytes besides its name. Names have numbers of one byte
// (checked by a test), so that the length is known before it is written.
func (w *packetWriter) annotate(a annotation, size int) {
	w.event = protowire.AppendTag(w.event, eventAnnotation, protowire.BytesType)
	w.event = protowire.AppendVarint(w.event, uint64(2+size))
	w.event = appendUint(w.event, annotationNameID, uint64(a))
}

func (w *packetWriter) noteInt(a annotation, v int64) {
	w.annotate(a, 1+protowire.SizeVarint(uint64(v)))
	w.event = appendUint(w.event, annotationInt, uint64(v))
}

func (w *packetWriter) noteUint(a annotation, v uint64) {
	w.annotate(a, 1+protowire.SizeVarint(v))
	w.event = appendUint(w.event, annotationUint, v)
}

func (w *packetWriter) noteDouble(a annotation, v float64) {
	w.annotate(a, 9)
	w.event = appendDouble(w.event, annotationDouble, v)
}

// noteID annotates with an interned string. The number of its field takes two bytes.
func (w *packetWriter) noteID(a annotation, s stringID) {
	w.annotate(a, 2+protowire.SizeVarint(s))
	w.event = appendUint(w.event, annotationStringID, s)
}

// noteString annotates with a string that comes again; an empty one is left out.
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
	id     stringID
}

// grades are those met so far. They are few and their texts are constants, so that comparing beats
// hashing.
type grades []grade

func (w *packetWriter) noteGrade(g *grades, a annotation, p *correlate.Point) {
	for i := range *g {
		if known := &(*g)[i]; known.rule == p.Rule && known.timing == p.Timing {
			w.noteID(a, known.id)
			return
		}
	}
	text := string(p.Timing)
	if p.Rule != "" {
		text += ": " + p.Rule
	}
	id := w.intern(&w.strings, text)
	*g = append(*g, grade{p.Timing, p.Rule, id})
	w.noteID(a, id)
}

// notePoint shows how sure a boundary is: its grade and, where they differ from it, the ends of its
// interval. a, lo and hi are three annotations in a row.
func (w *packetWriter) notePoint(g *grades, a annotation, p *correlate.Point) {
	w.noteGrade(g, a, p)
	if p.NS == nil || p.Timing == correlate.TimingSeen {
		return
	}
	if p.LoNS != nil {
		w.noteInt(a+1, *p.LoNS-*p.NS)
	}
	if p.HiNS != nil {
		w.noteInt(a+2, *p.HiNS-*p.NS)
	}
}

func unsignedText(v uint32) string { return strconv.FormatUint(uint64(v), 10) }
