package loadgen

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

// shape is how the body of a reply is read.
type shape uint8

const (
	shapeNone  shape = iota
	shapeError       // an error text, whatever its type
	shapeSSE
	shapeLines // one JSON object a line
	shapeJSON
	shapeAudio
	shapeRaw
)

// maxText bounds a body that is read as a whole; of an error body only a head is looked at.
const (
	maxText      = 64 << 20
	maxErrorText = 64 << 10
)

// failure is why a request did not succeed.
type failure struct {
	state string
	text  string
}

// reply turns the body bytes of one exchange into events and a judgement. The caller sets nowNS to
// the stamp of each socket read before handing its bytes on.
type reply struct {
	cfg    *Config
	mode   Reply
	stream bool
	req    *run.Request
	nowNS  int64 // when the bytes of the current read had arrived

	readLagNS int64 // from nowNS until this process had read them

	shape    shape
	sse      sseParser
	lines    lineParser
	meter    *audioMeter // nil: no audio yet
	keep     *keptAudio  // not nil: the audio is to be compared later
	buf      []byte
	fail     *failure
	contents int // events with content
	done     bool
	doneNS   int64
	eventNS  int64 // stamp of the last event
	tokens   int64 // counted so far by the server
	fresh    int64 // of these, not yet given to an event
}

func newReply(cfg *Config, req *run.Request) *reply {
	r := &reply{cfg: cfg, mode: cfg.Reply, stream: cfg.Stream, req: req}
	r.sse.emit = r.event
	r.sse.comment = func(n int) { r.add("comment", n) }
	r.lines.emit = r.line
	return r
}

func (r *reply) failed(state, format string, args ...any) {
	if r.fail == nil {
		r.fail = &failure{state, fmt.Sprintf(format, args...)}
	}
}

// begin chooses how to read the body.
func (r *reply) begin(h *responseHead) {
	r.req.Status = h.status
	isSSE := h.contentType == "text/event-stream"
	isLines := strings.Contains(h.contentType, "ndjson") || strings.Contains(h.contentType, "jsonl")
	isJSON := strings.Contains(h.contentType, "json") && !isLines
	isText := r.mode == ReplyChat || r.mode == ReplyText
	ruled, hasRule := r.cfg.Client.Rule.shape()
	switch {
	case h.encoding != "":
		r.failed(run.StateInvalidOutput, "reply is encoded as %q though no encoding was accepted", h.encoding)
	case h.status/100 != 2:
		r.shape = shapeError
	case r.mode == ReplyAny && hasRule:
		r.shape = ruled
	case r.mode == ReplySpeech && (isJSON || strings.HasPrefix(h.contentType, "text/") && !isSSE):
		r.shape = shapeError
	case isSSE, isText && r.stream && !isJSON:
		r.shape = shapeSSE
	case isLines, r.mode == ReplyOllama && r.stream && !isJSON:
		r.shape = shapeLines
	case isJSON, isText, r.mode == ReplyOllama:
		r.shape = shapeJSON
	case r.mode == ReplySpeech, strings.HasPrefix(h.contentType, "audio/"):
		r.shape = shapeAudio
		r.audioOf(h.contentType + ";" + h.parameters)
	default:
		r.shape = shapeRaw
	}
}

// audioOf returns the meter of the reply's audio, made at the first need.
func (r *reply) audioOf(contentType string) *audioMeter {
	if r.meter == nil {
		r.meter = newAudioMeter(r.cfg, contentType, r.keep)
	}
	return r.meter
}

// data takes body bytes of the current read.
func (r *reply) data(b []byte) {
	switch r.shape {
	case shapeError:
		r.buf = append(r.buf, b[:min(len(b), maxErrorText-len(r.buf))]...)
	case shapeJSON:
		if len(r.buf)+len(b) > maxText {
			r.failed(run.StateInvalidOutput, "reply is longer than 64 MiB")
			return
		}
		r.buf = append(r.buf, b...)
	case shapeSSE:
		if err := r.sse.feed(b); err != nil {
			r.failed(run.StateInvalidOutput, "%v", err)
			r.shape = shapeNone
		}
	case shapeLines:
		if err := r.lines.feed(b); err != nil {
			r.failed(run.StateInvalidOutput, "%v", err)
			r.shape = shapeNone
		}
	case shapeAudio:
		r.raw("audio", r.meter.feed(r.nowNS, b))
	case shapeRaw:
		r.raw("content", len(b))
	}
}

// raw adds n bytes of a body without events of its own. The bytes of one read are one event, however
// the server cut its HTTP chunks: only the read has a time.
func (r *reply) raw(kind string, n int) {
	if n == 0 {
		return
	}
	if ev := r.req.Events; len(ev) > 0 && ev[len(ev)-1].MonoNS == r.nowNS && ev[len(ev)-1].Kind == kind {
		ev[len(ev)-1].Bytes += n
		return
	}
	r.add(kind, n)
}

// text adds an event of text or reasoning, if there is any, with the tokens that came with it.
func (r *reply) text(kind string, n, chars int) {
	if n == 0 {
		return
	}
	r.req.TextChars += int64(chars)
	r.add(kind, n)
	r.req.Events[len(r.req.Events)-1].Tokens, r.fresh = int(r.fresh), 0
}

// counted takes the server's count of completion tokens so far.
func (r *reply) counted(n int64, from string) {
	r.req.Tokens, r.req.TokensFrom = &n, from
	r.fresh += max(n-r.tokens, 0)
	r.tokens = max(n, r.tokens)
}

// add records one event at the current read.
func (r *reply) add(kind string, n int) {
	r.req.Events = append(r.req.Events, run.ReplyEvent{
		MonoNS: r.nowNS, Kind: kind, Bytes: n, Coalesced: r.eventNS == r.nowNS, ReadLagNS: r.readLagNS,
	})
	r.eventNS = r.nowNS
	switch kind {
	case "content", "reasoning", "audio":
		r.contents++
		at := r.nowNS
		if r.req.FirstNS == nil {
			r.req.FirstNS = &at
		}
		r.req.LastNS = &at
	}
}

// event takes one event of a stream.
func (r *reply) event(name string, data []byte) {
	if string(data) == "[DONE]" {
		r.done, r.doneNS = true, r.nowNS
		r.add("done", 0)
		return
	}
	if r.mode == ReplyChat && name == "" && r.req.ReplyID != "" {
		if n, chars, ok := plainChunk(data); ok {
			r.text("content", n, chars)
			return
		}
	}
	if r.mode == ReplyAny && r.cfg.Client.Rule.isSet() && name != "error" {
		r.byRule(data)
		return
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		if r.mode == ReplyAny && name != "error" {
			r.add("content", len(data))
			return
		}
		r.add("other", len(data))
		r.failed(run.StateInvalidOutput, "event %d of the stream is no chunk of this protocol", len(r.req.Events))
		return
	}
	if name == "error" || c.isError() {
		r.add("error", len(data))
		r.engineFailed(0, data)
		return
	}
	r.take(&c, len(data))
}

// line takes one line of a stream of JSON objects.
func (r *reply) line(data []byte) {
	if r.mode == ReplyOllama {
		r.ollama(data)
		return
	}
	r.event("", data)
}

// engineFailed notes an error that the server stated, with its HTTP status (0: inside a 2xx reply).
func (r *reply) engineFailed(status int, body []byte) {
	text, code := errorText(body)
	state := r.stateOf(status, code, text)
	if status == 0 {
		r.failed(state, "server: %s", text)
		return
	}
	r.failed(state, "HTTP %d: %s", status, text)
}

// end judges a reply whose HTTP framing is complete. It is called once.
func (r *reply) end() {
	switch r.shape {
	case shapeError:
		status := r.req.Status
		if status/100 == 2 {
			status = 0
		}
		r.engineFailed(status, r.buf)
		return
	case shapeSSE:
		r.sse.end()
		r.endOfStream()
	case shapeLines:
		r.lines.end()
		r.endOfStream()
	case shapeJSON:
		r.endOfJSON()
	}
	if r.meter != nil {
		r.endOfAudio()
	}
	if r.contents == 0 {
		r.failed(run.StateInvalidOutput, "no content in the reply")
	}
}

// endOfStream finds out whether the stream ended where it should: every protocol but a free one says
// so.
func (r *reply) endOfStream() {
	states := r.mode == ReplyChat || r.mode == ReplyText || r.mode == ReplyOllama || r.cfg.Client.Rule.End != ""
	if r.contents > 0 && states && !r.done && r.req.Finish == "" {
		r.failed(run.StateInvalidOutput, "reply is truncated: the stream ended without its end mark (finish_reason, [DONE], done)")
	}
}

// endOfAudio judges the audio by itself. A reply without a sample, and one with fewer than declared,
// is no valid output; other faults miss the quality gate.
func (r *reply) endOfAudio() {
	q := r.meter.end(r.req)
	a := q.Audio
	switch {
	case r.meter.wav.invalid:
		r.failed(run.StateInvalidOutput, "reply said to be WAV has no RIFF header")
	case r.contents == 0:
		r.failed(run.StateInvalidOutput, "no content in the reply: no sample of audio came")
	case a.Declared != nil && *a.Samples < *a.Declared:
		r.failed(run.StateInvalidOutput, "audio is truncated: %s", strings.Join(q.Why, "; "))
	case q.Status == run.QualityFailed:
		r.failed(run.StateQualityFailed, "audio: %s", strings.Join(q.Why, "; "))
	}
	r.req.Quality = q
}

// closeAudio gives the request the figures of whatever audio came.
func (r *reply) closeAudio() {
	if r.meter == nil {
		return
	}
	if r.req.Quality == nil {
		r.meter.end(r.req)
	}
	r.req.Audio = r.meter.audio
}

func (r *reply) endOfJSON() {
	switch {
	case r.mode == ReplyOllama:
		r.ollama(r.buf)
		return
	case r.mode == ReplyAny && r.cfg.Client.Rule.isSet():
		r.byRule(r.buf)
		return
	}
	var c chunk
	err := json.Unmarshal(r.buf, &c)
	switch {
	case err != nil && r.mode == ReplyAny && json.Valid(r.buf):
		r.add("content", len(r.buf))
	case err != nil:
		r.failed(run.StateInvalidOutput, "reply is no JSON object of this protocol")
	case c.isError():
		r.add("error", len(r.buf))
		r.engineFailed(0, r.buf)
	case (r.mode == ReplyChat || r.mode == ReplyText) && r.stream:
		r.failed(run.StateInvalidOutput, "a stream was asked for, the reply is one JSON object")
	default:
		r.take(&c, len(r.buf))
	}
}
