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
	shapeJSON
	shapeWAV
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
	mode   Reply
	stream bool
	req    *run.Request
	nowNS  int64 // when the bytes of the current read had arrived

	readLagNS int64 // from nowNS until this process had read them

	shape    shape
	sse      sseParser
	wav      wavSkipper
	buf      []byte
	fail     *failure
	contents int // events with content
	done     bool
	doneNS   int64
	eventNS  int64 // stamp of the last event
}

func newReply(cfg *Config, req *run.Request) *reply {
	r := &reply{mode: cfg.Reply, stream: cfg.Stream, req: req}
	r.sse.emit = r.event
	r.sse.comment = func(n int) { r.add("comment", n) }
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
	isJSON := strings.Contains(h.contentType, "json")
	isSSE := h.contentType == "text/event-stream"
	switch {
	case h.encoding != "":
		r.failed(run.StateInvalidOutput, "reply is encoded as %q though no encoding was accepted", h.encoding)
	case h.status/100 != 2:
		r.shape = shapeError
	case r.mode == ReplySpeech && (isJSON || strings.HasPrefix(h.contentType, "text/") && !isSSE):
		r.shape = shapeError
	case isSSE, r.mode == ReplyChat && r.stream && !isJSON:
		r.shape = shapeSSE
	case isJSON, r.mode == ReplyChat:
		r.shape = shapeJSON
	case strings.Contains(h.contentType, "wav"):
		r.shape = shapeWAV
	default:
		r.shape = shapeRaw
	}
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
	case shapeWAV:
		r.audio(r.wav.samples(b))
	case shapeRaw:
		r.audio(len(b))
	}
}

// audio adds n bytes of playable audio (any other raw body: of content). The bytes of one read are
// one event, however the server cut its HTTP chunks: only the read has a time.
func (r *reply) audio(n int) {
	if n == 0 {
		return
	}
	kind := "audio"
	if r.mode == ReplyAny && r.shape == shapeRaw {
		kind = "content"
	}
	if ev := r.req.Events; len(ev) > 0 && ev[len(ev)-1].MonoNS == r.nowNS {
		ev[len(ev)-1].Bytes += n
		return
	}
	r.add(kind, n)
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
		if n, ok := plainChunk(data); ok {
			r.add("content", n)
			return
		}
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		if r.mode != ReplyChat && name != "error" {
			r.add("content", len(data))
			return
		}
		r.add("other", len(data))
		r.failed(run.StateInvalidOutput, "event %d of the stream is no chat completion chunk", len(r.req.Events))
		return
	}
	if name == "error" || c.isError() {
		r.add("error", len(data))
		r.engineFailed(0, data)
		return
	}
	r.take(&c, len(data))
}

// engineFailed notes an error that the server stated, with its HTTP status (0: inside a 2xx reply).
func (r *reply) engineFailed(status int, body []byte) {
	text, code := errorText(body)
	state := stateOf(status, code, text)
	if status == 0 {
		r.failed(state, "server: %s", text)
		return
	}
	r.failed(state, "HTTP %d: %s", status, text)
}

// take applies one chat completion chunk, or the one object of a reply that is not streamed.
func (r *reply) take(c *chunk, size int) {
	if r.req.ReplyID == "" && idShaped(c.ID) {
		r.req.ReplyID = c.ID
	}
	if c.Usage != nil && c.Usage.CompletionTokens != nil {
		r.req.Tokens = c.Usage.CompletionTokens
	}
	kind, n := c.kind()
	if f := c.finish(); f != "" {
		r.req.Finish = f
		if f == "abort" || f == "error" {
			r.failed(run.StateInvalidOutput, "server ended the reply with finish_reason %q", f)
		}
	}
	if r.mode != ReplyChat && len(c.Choices) == 0 && kind == "other" {
		kind, n = "content", size
	}
	r.add(kind, n)
}

// end judges a reply whose HTTP framing is complete. It is called once.
func (r *reply) end() {
	switch r.shape {
	case shapeError:
		if r.req.Status/100 == 2 {
			r.engineFailed(0, r.buf)
			return
		}
		r.engineFailed(r.req.Status, r.buf)
	case shapeSSE:
		r.sse.end()
		r.endOfStream()
	case shapeJSON:
		r.endOfJSON()
	case shapeWAV:
		if r.wav.invalid {
			r.failed(run.StateInvalidOutput, "audio/wav reply has no RIFF header")
		}
	}
	if r.contents == 0 {
		r.failed(run.StateInvalidOutput, "no content in the reply")
	}
}

func (r *reply) endOfStream() {
	if r.contents > 0 && r.mode == ReplyChat && !r.done && r.req.Finish == "" {
		r.failed(run.StateInvalidOutput, "reply is truncated: the stream ended without finish_reason or [DONE]")
	}
}

func (r *reply) endOfJSON() {
	var c chunk
	err := json.Unmarshal(r.buf, &c)
	switch {
	case err != nil && r.mode == ReplyAny && json.Valid(r.buf):
		r.add("content", len(r.buf))
	case err != nil:
		r.failed(run.StateInvalidOutput, "reply is no JSON chat completion")
	case c.isError():
		r.add("error", len(r.buf))
		r.engineFailed(0, r.buf)
	case r.mode == ReplyChat && r.stream:
		r.failed(run.StateInvalidOutput, "a stream was asked for, the reply is one JSON object")
	default:
		r.take(&c, len(r.buf))
	}
}
