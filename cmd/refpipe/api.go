package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"regexp"
	"slices"
	"time"
)

const (
	maxBody    = 64 << 20
	sampleRate = 24000
	maxEvents  = 8192 // a request gets fewer messages than this
)

// api serves the OpenAI-compatible entry.
type api struct {
	r *router
}

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", a.health)
	mux.HandleFunc("GET /v1/models", a.models)
	mux.HandleFunc("POST /v1/chat/completions", a.chat)
	mux.HandleFunc("POST /v1/audio/speech", a.speech)
	return mux
}

func (a *api) health(w http.ResponseWriter, req *http.Request) {
	connOf(req.Context()).ignore()
	if s := a.r.down(); s != "" {
		writeError(w, http.StatusServiceUnavailable, "stage "+s+" has no worker left")
		return
	}
	writeJSON(w, map[string]string{"status": "ok"})
}

func (a *api) models(w http.ResponseWriter, req *http.Request) {
	connOf(req.Context()).ignore()
	writeJSON(w, map[string]any{"object": "list", "data": []any{map[string]string{"id": "omni", "object": "model"}}})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // a client that left is no error here
}

func writeError(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": text, "code": code}})
}

func uuid() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&15|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func hex8() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// newTag makes names of a run that no other run has.
func newTag() string { return hex8()[:6] }

var idShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$`) // it becomes part of a file name

type chatBody struct {
	RequestID  string   `json:"request_id"`
	Model      string   `json:"model"`
	Stream     bool     `json:"stream"`
	Modalities []string `json:"modalities"`
	MaxTokens  int      `json:"max_tokens"`
	Format     string   `json:"response_format_audio"`
}

// counts draws how many tokens and audio chunks a request gets.
func (a *api) counts(wireID string, maxTokens int, audio bool) (tokens, chunks int) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", a.r.lay.top.Seed, wireID)
	v := h.Sum64()
	t := a.r.lay.top
	tokens = t.MinTokens + int(v%uint64(t.MaxTokens-t.MinTokens+1))
	if maxTokens > 0 {
		tokens = min(tokens, maxTokens)
	}
	if audio {
		chunks = t.MinChunks + int(v>>32%uint64(t.MaxChunks-t.MinChunks+1))
	}
	return tokens, chunks
}

func (a *api) hasAudio() bool { return a.r.lay.top.Kind != "small" }

// run is one request in the hands of the API.
type run struct {
	q              *request
	tokens, chunks int
	audio, text    bool // still to complete
}

// start reads the body's request into the pipeline. A nil run was answered.
func (a *api) start(w http.ResponseWriter, req *http.Request, q *request, maxTokens int, audio bool, body []byte) *run {
	q.events = make(chan *Message, maxEvents)
	q.lost = make(chan struct{})
	q.headerID = req.Header.Get("X-Request-Id")
	connOf(req.Context()).begin(&q.stamps)
	if a.r.truth != nil {
		a.r.truth.addRequest(q)
	}
	if !idShape.MatchString(q.id) {
		writeError(w, http.StatusBadRequest, "request id: want 1 to 64 letters, digits, '.', ':', '-' or '_'")
		return nil
	}
	if s := a.r.down(); s != "" {
		writeError(w, http.StatusServiceUnavailable, "stage "+s+" has no worker left")
		return nil
	}
	u := &run{q: q, audio: audio, text: true}
	u.tokens, u.chunks = a.counts(q.wireID, maxTokens, audio)
	payload := append(fmt.Appendf(nil, "tokens=%d chunks=%d\n", u.tokens, u.chunks), body...)
	if !a.r.submit(q, payload) {
		writeError(w, http.StatusConflict, "request id "+q.id+" is in flight")
		return nil
	}
	return u
}

func readBody(w http.ResponseWriter, req *http.Request) ([]byte, *chatBody) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	var v chatBody
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	if err != nil {
		connOf(req.Context()).ignore()
		writeError(w, http.StatusBadRequest, "read request body: "+err.Error())
		return nil, nil
	}
	return body, &v
}

func (a *api) chat(w http.ResponseWriter, req *http.Request) {
	body, v := readBody(w, req)
	if v == nil {
		return
	}
	q := &request{endpoint: "chat", id: v.RequestID}
	if q.id == "" {
		q.id = req.Header.Get("X-Request-Id")
	}
	if q.id == "" {
		q.id = uuid()
	}
	q.replyID, q.wireID = "chatcmpl-"+q.id, q.id
	if a.r.lay.top.WrapIDs {
		q.wireID = q.replyID + "-" + hex8()
	}
	audio := a.hasAudio() && (len(v.Modalities) == 0 || slices.Contains(v.Modalities, "audio"))
	u := a.start(w, req, q, v.MaxTokens, audio, body)
	if u == nil {
		return
	}
	out := &chatOut{w: w, id: q.replyID, model: v.Model, stream: v.Stream, created: time.Now().Unix(), prompt: len(body) / 4}
	out.begin()
	a.finish(u, req, a.pump(u, req, out.text, out.audio), out.end, out.fail)
}

// speech mints its own id: the header and the body's id are ignored here.
func (a *api) speech(w http.ResponseWriter, req *http.Request) {
	body, v := readBody(w, req)
	if v == nil {
		return
	}
	if !a.hasAudio() {
		connOf(req.Context()).ignore()
		writeError(w, http.StatusNotFound, "this pipeline has no audio output")
		return
	}
	id := "speech-" + uuid()
	q := &request{endpoint: "speech", id: id, wireID: id}
	u := a.start(w, req, q, 0, true, body)
	if u == nil {
		return
	}
	var f struct {
		Format string `json:"response_format"`
	}
	json.Unmarshal(body, &f) // parsed once already
	out := &speechOut{w: w, wav: f.Format != "pcm"}
	out.begin()
	a.finish(u, req, a.pump(u, req, func(*Message) {}, out.audio), func(int) {}, func(string) { panic(http.ErrAbortHandler) })
}

// pump passes the request's messages on until it is complete; the text says
// why it did not become so.
func (a *api) pump(u *run, req *http.Request, text, audio func(*Message)) string {
	for u.text || u.audio {
		select {
		case <-req.Context().Done():
			return "cancelled"
		case <-u.q.lost:
			return "a worker was lost"
		case m := <-u.q.events:
			role := a.roleOf(m.From)
			switch {
			case m.Type == MsgStream && role == RoleThink:
				text(m)
			case m.Type == MsgStream && role == RoleVocode:
				audio(m)
			case m.Type == MsgComplete && role == RoleThink:
				u.text = false
			case m.Type == MsgComplete && role == RoleVocode:
				u.audio = false
			}
		}
	}
	return ""
}

func (a *api) roleOf(name string) Role {
	s, err := a.r.lay.top.StageByName(name)
	if err != nil {
		return RoleAPI
	}
	return s.Role
}

func (a *api) finish(u *run, req *http.Request, why string, end func(tokens int), fail func(string)) {
	a.r.forget(u.q)
	switch {
	case why == "":
		end(u.tokens)
		u.q.state.Store("success")
	case req.Context().Err() != nil:
		u.q.state.Store("cancelled")
		a.r.abort(u.q)
	default:
		u.q.state.Store("error")
		a.r.abort(u.q)
		fail(why)
	}
}

// chatOut writes a chat completion, streamed or whole.
type chatOut struct {
	w         http.ResponseWriter
	id, model string
	stream    bool
	created   int64
	prompt    int
	content   []byte
	wave      []byte
}

func (o *chatOut) event(delta any, finish any, usage any) {
	v := map[string]any{"id": o.id, "object": "chat.completion.chunk", "created": o.created, "model": o.model,
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}}
	if usage != nil {
		v["usage"] = usage
		v["choices"] = []any{}
	}
	b, _ := json.Marshal(v) // of strings and numbers only
	o.w.Write(append(append([]byte("data: "), b...), "\n\n"...))
	http.NewResponseController(o.w).Flush()
}

func (o *chatOut) begin() {
	if !o.stream {
		return
	}
	o.w.Header().Set("Content-Type", "text/event-stream")
	o.w.Header().Set("Cache-Control", "no-cache")
	o.event(map[string]any{"role": "assistant", "content": ""}, nil, nil)
}

func (o *chatOut) text(m *Message) {
	if o.stream {
		o.event(map[string]any{"content": string(m.Data)}, nil, nil)
		return
	}
	o.content = append(o.content, m.Data...)
}

func (o *chatOut) audio(m *Message) {
	if o.stream {
		o.event(map[string]any{"audio": map[string]any{"id": o.id, "data": base64.StdEncoding.EncodeToString(m.Data), "sample_rate": sampleRate}}, nil, nil)
		return
	}
	o.wave = append(o.wave, m.Data...)
}

func (o *chatOut) usage(tokens int) map[string]int {
	return map[string]int{"prompt_tokens": o.prompt, "completion_tokens": tokens, "total_tokens": o.prompt + tokens}
}

func (o *chatOut) end(tokens int) {
	if o.stream {
		o.event(map[string]any{}, "stop", nil)
		o.event(nil, nil, o.usage(tokens))
		io.WriteString(o.w, "data: [DONE]\n\n")
		return
	}
	msg := map[string]any{"role": "assistant", "content": string(o.content)}
	if len(o.wave) > 0 {
		msg["audio"] = map[string]any{"id": o.id, "data": base64.StdEncoding.EncodeToString(o.wave), "sample_rate": sampleRate}
	}
	writeJSON(o.w, map[string]any{"id": o.id, "object": "chat.completion", "created": o.created, "model": o.model, "usage": o.usage(tokens),
		"choices": []any{map[string]any{"index": 0, "message": msg, "finish_reason": "stop"}}})
}

func (o *chatOut) fail(why string) {
	if !o.stream {
		writeError(o.w, http.StatusInternalServerError, why)
		return
	}
	b, _ := json.Marshal(map[string]any{"error": map[string]any{"message": why, "code": http.StatusInternalServerError}})
	fmt.Fprintf(o.w, "data: %s\n\ndata: [DONE]\n\n", b)
}

// speechOut writes audio as it comes: raw samples, or behind a WAV header that
// leaves the length open.
type speechOut struct {
	w   http.ResponseWriter
	wav bool
}

func (o *speechOut) begin() {
	if !o.wav {
		o.w.Header().Set("Content-Type", "audio/pcm")
		return
	}
	o.w.Header().Set("Content-Type", "audio/wav")
	le := binary.LittleEndian
	h := append([]byte("RIFF"), 0xff, 0xff, 0xff, 0xff)
	h = append(h, "WAVEfmt "...)
	h = le.AppendUint32(h, 16)
	h = le.AppendUint16(h, 1) // PCM
	h = le.AppendUint16(h, 1) // mono
	h = le.AppendUint32(h, sampleRate)
	h = le.AppendUint32(h, 2*sampleRate)
	h = le.AppendUint16(h, 2)
	h = le.AppendUint16(h, 16)
	h = append(h, "data"...)
	h = append(h, 0xff, 0xff, 0xff, 0xff)
	o.w.Write(h)
	http.NewResponseController(o.w).Flush()
}

func (o *speechOut) audio(m *Message) {
	o.w.Write(m.Data)
	http.NewResponseController(o.w).Flush()
}
