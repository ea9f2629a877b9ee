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

func (w *packetWriter) annotate(a annotation) {
	w.note = appendUint(w.note[:0], annotationNameID, uint64(a))
}

func (w *packetWriter) annotated() {
	w.event = appendMessage(w.event, eventAnnotation, w.note)
}

func (w *packetWriter) noteInt(a annotation, v int64) {
	w.annotate(a)
	w.note = appendUint(w.note, annotationInt, uint64(v))
	w.annotated()
}

func (w *packetWriter) noteUint(a annotation, v uint64) {
	w.annotate(a)
	w.note = appendUint(w.note, annotationUint, v)
	w.annotated()
}

func (w *packetWriter) noteDouble(a annotation, v float64) {
	w.annotate(a)
	w.note = appendDouble(w.note, annotationDouble, v)
	w.annotated()
}

// noteID annotates with an interned string.
func (w *packetWriter) noteID(a annotation, s stringID) {
	w.annotate(a)
	w.note = appendUint(w.note, annotationStringID, s)
	w.annotated()
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
	w.annotate(a)
	w.note = appendText(w.note, annotationString, printable(s))
	w.annotated()
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
	w.annotate(a)
	var element [16]byte
	for _, id := range ids {
		w.note = appendMessage(w.note, annotationArray, appendUint(element[:0], annotationStringID, id))
	}
	w.annotated()
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
}

// grades interns the text of each grade once, without building it again.
type grades map[grade]stringID

func (w *packetWriter) noteGrade(g grades, a annotation, p *correlate.Point) {
	k := grade{p.Timing, p.Rule}
	id, ok := g[k]
	if !ok {
		text := string(p.Timing)
		if p.Rule != "" {
			text += ": " + p.Rule
		}
		id = w.intern(&w.strings, text)
		g[k] = id
	}
	w.noteID(a, id)
}

// notePoint shows how sure a boundary is: its grade and, where they differ from it, the ends of its
// interval. a, lo and hi are three annotations in a row.
func (w *packetWriter) notePoint(g grades, a annotation, p *correlate.Point) {
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
