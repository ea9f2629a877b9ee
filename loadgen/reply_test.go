package loadgen

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
)

const pauseMark = "<pause>" // in a script: let the client read what came so far

// play writes a script piece by piece.
func play(script string) handler {
	return func(c net.Conn, _ *received) bool {
		for i, piece := range strings.Split(script, pauseMark) {
			if i > 0 && !taken(c) {
				return false
			}
			write(c, piece)
		}
		return false
	}
}

// chunks sends each argument as one HTTP chunk of an event stream, with a pause after each.
func chunks(parts ...string) string {
	s := chunkedSSE
	for _, p := range parts {
		s += httpChunk(p) + pauseMark
	}
	return s + lastChunk
}

func TestChatReplies(t *testing.T) {
	usage := func(n string) string { return `data: {"choices":[],"usage":{"completion_tokens":` + n + `}}` + "\n\n" }
	withUsage := func(s, n string) string {
		return `data: {"choices":[{"delta":{"content":"` + s + `"}}],"usage":{"completion_tokens":` + n + `}}` + "\n\n"
	}
	reasoning := `data: {"choices":[{"delta":{"reasoning":"hm"}}]}` + "\n\n"
	engineErr := `data: {"error":{"message":"step failed","type":"server_error","code":500}}` + "\n\n"
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	split := strings.Index(content("a中b"), "中") + 1

	for _, tc := range []struct {
		name, script  string
		state, errHas string
		kinds         string
		tokens        int64 // 0: none
		noFirst       bool
	}{
		{name: "content then usage-only chunk", script: chunks(content("a"), content("b"), content("c"), finishChunk, usage("3"), doneChunk),
			state: run.StateSuccess, kinds: "content content content finish usage done", tokens: 3},
		{name: "usage inside content chunks", script: chunks(withUsage("abcd", "4"), withUsage("efgh", "8"), withUsage("i", "9"), doneChunk),
			state: run.StateSuccess, kinds: "content content content done", tokens: 9},
		{name: "reasoning before content", script: chunks(reasoning, reasoning, content("a"), finishChunk, doneChunk),
			state: run.StateSuccess, kinds: "reasoning reasoning content finish done"},
		{name: "usage in a chunk with empty text", script: chunks(content("a"), `data: {"choices":[{"delta":{"content":""},"finish_reason":"length"}],"usage":{"completion_tokens":37}}`+"\n\n", doneChunk),
			state: run.StateSuccess, kinds: "content finish done", tokens: 37},
		{name: "only DONE", script: chunks(doneChunk),
			state: run.StateInvalidOutput, errHas: "no content", kinds: "done", noFirst: true},
		{name: "role only", script: chunks(roleChunk, finishChunk, doneChunk),
			state: run.StateInvalidOutput, errHas: "no content", kinds: "role finish done", noFirst: true},
		{name: "error after two tokens", script: chunks(content("a"), content("b"), engineErr, doneChunk),
			state: run.StateInvalidOutput, errHas: "step failed", kinds: "content content error done"},
		{name: "error first", script: chunks(engineErr, doneChunk),
			state: run.StateInvalidOutput, errHas: "step failed", kinds: "error done", noFirst: true},
		{name: "error by event name", script: chunks(content("a"), "event: error\ndata: {\"message\":\"gone\"}\n\n"),
			state: run.StateInvalidOutput, errHas: "gone", kinds: "content error"},
		{name: "error object with status 200", script: jsonReply(200, `{"object":"error","message":"no such model","code":404}`),
			state: run.StateInvalidOutput, errHas: "no such model", kinds: "error", noFirst: true},
		{name: "stream refused inside 200", script: chunks(`data: {"error":{"message":"queue is full","code":503}}`+"\n\n", doneChunk),
			state: run.StateRejected, errHas: "queue is full", kinds: "error done", noFirst: true},
		{name: "out of memory said mid-stream", script: chunks(content("a"), `data: {"error":{"message":"CUDA out of memory. Tried"}}`+"\n\n"),
			state: run.StateOOM, errHas: "out of memory", kinds: "content error"},
		{name: "lost worker said mid-stream", script: chunks(content("a"), `data: {"error":"stage worker 3 died unexpectedly"}`+"\n\n"),
			state: run.StateWorkerLost, errHas: "worker 3 died", kinds: "content error"},
		{name: "truncated with clean framing", script: chunks(content("a"), content("b")),
			state: run.StateInvalidOutput, errHas: "truncated", kinds: "content content"},
		{name: "truncated by clean EOF", script: eofSSE + content("a") + pauseMark + content("b"),
			state: run.StateInvalidOutput, errHas: "truncated", kinds: "content content"},
		{name: "EOF inside chunked framing", script: chunkedSSE + httpChunk(content("a")) + pauseMark + "40\r\ndata: {",
			state: run.StateTransportError, errHas: "inside the reply", kinds: "content"},
		{name: "finish without DONE", script: chunks(content("a"), finishChunk),
			state: run.StateSuccess, kinds: "content finish"},
		{name: "DONE then EOF without last chunk", script: chunkedSSE + httpChunk(content("a")) + pauseMark + httpChunk(doneChunk),
			state: run.StateSuccess, kinds: "content done"},
		{name: "last blank line left out", script: eofSSE + content("a") + pauseMark + "data: [DONE]",
			state: run.StateSuccess, kinds: "content done"},
		{name: "comments during prefill", script: chunks(":\n\n", ": keep-alive\n\n", content("a"), doneChunk),
			state: run.StateSuccess, kinds: "comment comment content done"},
		{name: "CRLF separators", script: chunks(crlf(content("a")), crlf(content("b")), crlf(doneChunk)),
			state: run.StateSuccess, kinds: "content content done"},
		{name: "CRLF cut across reads", script: eofSSE + strings.TrimSuffix(crlf(content("a")), "\n") + pauseMark + "\n" + crlf(content("b")) + pauseMark + crlf(doneChunk),
			state: run.StateSuccess, kinds: "content content done"},
		{name: "two events in one read", script: chunks(content("a")+content("b"), doneChunk),
			state: run.StateSuccess, kinds: "content content+ done"},
		{name: "multi-byte character cut", script: eofSSE + content("a中b")[:split] + pauseMark + content("a中b")[split:] + pauseMark + doneChunk,
			state: run.StateSuccess, kinds: "content done"},
		{name: "ten events in one segment", script: eofSSE + pauseMark + strings.Repeat(content("a"), 10) + pauseMark + doneChunk,
			state: run.StateSuccess, kinds: "content" + strings.Repeat(" content+", 9) + " done"},
		{name: "audio in a delta", script: chunks(content("a"), `data: {"choices":[{"delta":{"audio":{"data":"AAAA"}}}]}`+"\n\n", doneChunk),
			state: run.StateSuccess, kinds: "content audio done"},
		{name: "malformed event", script: chunks(content("a"), "data: {\"choices\":\n\n", doneChunk),
			state: run.StateInvalidOutput, errHas: "event 2", kinds: "content other done"},
		{name: "engine aborted", script: chunks(content("a"), `data: {"choices":[{"delta":{},"finish_reason":"abort"}]}`+"\n\n", doneChunk),
			state: run.StateInvalidOutput, errHas: "abort", kinds: "content finish done"},
		{name: "stream asked, JSON given", script: jsonReply(200, `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}`),
			state: run.StateInvalidOutput, errHas: "stream was asked", kinds: "", noFirst: true},
		{name: "interim reply first", script: "HTTP/1.1 100 Continue\r\n\r\n" + chunks(content("a"), doneChunk),
			state: run.StateSuccess, kinds: "content done"},
		{name: "429", script: jsonReply(429, `{"error":{"message":"slow down"}}`), state: run.StateRejected, errHas: "slow down", noFirst: true},
		{name: "503 without body", script: "HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n", state: run.StateRejected, errHas: "HTTP 503", noFirst: true},
		{name: "500", script: jsonReply(500, `{"detail":"boom"}`), state: run.StateInvalidOutput, errHas: "HTTP 500: boom", noFirst: true},
		{name: "500 for want of memory", script: jsonReply(500, `{"error":{"message":"torch.OutOfMemoryError: out of memory"}}`), state: run.StateOOM, noFirst: true},
		{name: "refused request", script: jsonReply(422, `{"detail":[{"type":"missing","msg":"Field required"}]}`), state: run.StateHarnessError, errHas: "missing", noFirst: true},
		{name: "compressed though not asked", script: "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", state: run.StateInvalidOutput, errHas: "gzip", noFirst: true},
		{name: "no HTTP", script: "hello\r\n\r\n", state: run.StateInvalidOutput, errHas: "status line", noFirst: true},
		{name: "closed before the reply", script: "", state: run.StateTransportError, errHas: "before the reply", noFirst: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := one(t, play(tc.script), nil)
			if r.State != tc.state || !strings.Contains(r.Error, tc.errHas) || tc.errHas == "" && tc.state == run.StateSuccess && r.Error != "" {
				t.Errorf("state %q error %q, want %q with %q", r.State, r.Error, tc.state, tc.errHas)
			}
			if k := kinds(r); k != tc.kinds {
				t.Errorf("events %q, want %q", k, tc.kinds)
			}
			if (r.FirstNS == nil) != tc.noFirst || (r.LastNS == nil) != tc.noFirst {
				t.Errorf("first content %v, last %v; want none: %v", r.FirstNS, r.LastNS, tc.noFirst)
			}
			if got := deref(r.Tokens); got != tc.tokens {
				t.Errorf("tokens %d, want %d", got, tc.tokens)
			}
			if r.EndNS == nil || r.SentNS == nil || r.WrittenNS == nil || *r.WrittenNS < *r.SentNS || *r.EndNS < *r.SentNS { // a reply may be here before the write has returned
				t.Errorf("sent %v written %v end %v", r.SentNS, r.WrittenNS, r.EndNS)
			}
		})
	}
}

func deref(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}

func TestCutCharacterStaysWhole(t *testing.T) {
	whole := content("中")
	i := strings.Index(whole, "中") + 1
	r := one(t, play(eofSSE+whole[:i]+pauseMark+whole[i:]+doneChunk), nil)
	if len(r.Events) != 2 || r.Events[0].Bytes != len("中") {
		t.Fatalf("events %+v, want one content event of %d bytes", r.Events, len("中"))
	}
}

// A reply whose events leave the server at known times: stamps lie between the moment an event was
// written and the moment the next one was.
func TestEventTimes(t *testing.T) {
	stamps := make(chan int64, 6)
	steps := []struct {
		afterMS int
		text    string
	}{{10, roleChunk}, {35, content("H")}, {20, content("i")}, {25, finishChunk}, {10, doneChunk}}
	r := one(t, func(c net.Conn, _ *received) bool {
		write(c, chunkedSSE)
		for _, s := range steps {
			<-time.After(time.Duration(s.afterMS) * time.Millisecond)
			stamps <- run.Mono()
			write(c, httpChunk(s.text))
		}
		<-time.After(10 * time.Millisecond)
		stamps <- run.Mono()
		write(c, lastChunk)
		return true
	}, nil)
	if r.State != run.StateSuccess || kinds(r) != "role content content finish done" {
		t.Fatalf("state %q (%s), events %q", r.State, r.Error, kinds(r))
	}
	var at []int64
	for range cap(stamps) {
		at = append(at, <-stamps)
	}
	for i := range r.Events {
		if got := r.Events[i].MonoNS; got < at[i] || got >= at[i+1] {
			t.Errorf("event %d stamped %d, written at %d, next at %d", i, got, at[i], at[i+1])
		}
	}
	if *r.FirstNS != r.Events[1].MonoNS || *r.LastNS != r.Events[2].MonoNS {
		t.Errorf("first %d last %d, want the two content events", *r.FirstNS, *r.LastNS)
	}
	if *r.EndNS < at[5] {
		t.Errorf("end %d before the end of the framing %d", *r.EndNS, at[5])
	}
	if r.ReplyID != "chatcmpl-x1" || r.Finish != "stop" {
		t.Errorf("reply id %q, finish %q", r.ReplyID, r.Finish)
	}
}

func TestJSONReplies(t *testing.T) {
	for _, tc := range []struct{ name, body, state, kinds string }{
		{"text", `{"id":"c1","choices":[{"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}`, run.StateSuccess, "content"},
		{"empty text", `{"id":"c1","choices":[{"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}`, run.StateInvalidOutput, "finish"},
		{"error", `{"error":{"message":"no"}}`, run.StateInvalidOutput, "error"},
		{"not JSON", `<html>`, run.StateInvalidOutput, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := one(t, play(jsonReply(200, tc.body)), func(c *Config) { c.Stream = false })
			if r.State != tc.state || kinds(r) != tc.kinds {
				t.Errorf("state %q (%s), events %q; want %q, %q", r.State, r.Error, kinds(r), tc.state, tc.kinds)
			}
		})
	}
}

// wav returns a RIFF stream with a LIST chunk of odd size before its data.
func wavStream(dataSize uint32, samples int) string {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("RIFF"), 0xFFFFFFFF)
	b = le.AppendUint32(append(b, "WAVEfmt "...), 16)
	b = append(b, make([]byte, 16)...)
	b = le.AppendUint32(append(b, "LIST"...), 5)
	b = append(b, "data:\x00"...)
	b = le.AppendUint32(append(b, "data"...), dataSize)
	return string(append(b, make([]byte, samples)...))
}

func TestSpeechReplies(t *testing.T) {
	const wavHead = "HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nConnection: close\r\n\r\n"
	const pcmHead = "HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nConnection: close\r\n\r\n"
	streamed := wavStream(0xFFFFFFFF, 100)
	for _, tc := range []struct {
		name, script, state string
		bytes, events       int
	}{
		{"wav of unknown size", wavHead + streamed[:20] + pauseMark + streamed[20:50] + pauseMark + streamed[50:], run.StateSuccess, 100, 1},
		{"wav with trailer", wavHead + wavStream(60, 60) + "LIST\x04\x00\x00\x00abcd", run.StateSuccess, 60, 1},
		{"header only", wavHead + wavStream(0, 0), run.StateInvalidOutput, 0, 0},
		{"wav that is none", wavHead + strings.Repeat("x", 40), run.StateInvalidOutput, 0, 0},
		{"pcm in two reads", pcmHead + "aaaa" + pauseMark + "bb", run.StateSuccess, 6, 2},
		{"no bytes", pcmHead, run.StateInvalidOutput, 0, 0},
		{"JSON instead of audio", jsonReply(200, `{"error":"no voice"}`), run.StateInvalidOutput, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := one(t, play(tc.script), func(c *Config) { c.URL += "/v1/audio/speech" })
			n := 0
			for _, e := range r.Events {
				if e.Kind != "audio" {
					t.Errorf("event kind %q", e.Kind)
				}
				n += e.Bytes
			}
			if r.State != tc.state || n != tc.bytes || len(r.Events) != tc.events {
				t.Errorf("state %q (%s), %d bytes in %d events; want %q, %d in %d", r.State, r.Error, n, len(r.Events), tc.state, tc.bytes, tc.events)
			}
		})
	}
}

// The end of a stream that never closes its framing is its [DONE].
func TestFramingLeftOpenAfterDone(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	r := one(t, func(c net.Conn, _ *received) bool {
		write(c, chunkedSSE+httpChunk(content("a")+doneChunk))
		<-release
		return false
	}, nil)
	if r.State != run.StateSuccess || *r.EndNS != r.Events[1].MonoNS {
		t.Errorf("state %q (%s), end %d, events %+v", r.State, r.Error, *r.EndNS, r.Events)
	}
}

func TestErrorTextDoesNotQuoteThePrompt(t *testing.T) {
	const canary = "the secret canary sentence 4711"
	for _, echo := range []string{"bad input: " + canary, "bad input"} {
		r := one(t, play(jsonReply(500, `{"error":{"message":"`+echo+`"}}`)), func(c *Config) { c.Prompts = []string{canary} })
		if strings.Contains(r.Error, "canary") || strings.Contains(echo, "canary") != strings.Contains(r.Error, "withheld") {
			t.Errorf("server said %q, recorded %q", echo, r.Error)
		}
	}
}

func TestErrorTextDoesNotQuoteHeaders(t *testing.T) {
	for _, c := range []struct {
		echo     string
		withheld bool
	}{
		{"bad key Bearer sk-4711-canary", true},
		{"key sk-4711-canary is not valid", true},
		{"tenant blue7 is unknown", true},
		{"the key is not valid", false},
	} {
		r := one(t, play(jsonReply(401, `{"error":{"message":"`+c.echo+`"}}`)), func(c *Config) {
			c.Header = []string{"Authorization: Bearer sk-4711-canary", "X-Tenant: blue7"}
		})
		if strings.Contains(r.Error, "withheld") != c.withheld || strings.Contains(r.Error, "4711") || strings.Contains(r.Error, "blue7") {
			t.Errorf("server said %q, recorded %q", c.echo, r.Error)
		}
	}
}
