package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// What users write must not get into records, whatever the protocol and whatever its shape: one
// word, words, something that looks like an id.
func TestNoPayloadInRecords(t *testing.T) {
	for _, canary := range []string{"CANARY7f3a", "CANARY7f3a with more words", "CANARY-7f3a-0011-2233"} {
		text := strings.Repeat("x ", 20) + canary
		chat := `{"model":"m","request_id":"r-123456","messages":[{"role":"user","content":"` + canary + `"},{"role":"user","name":"` + canary +
			`","content":[{"type":"text","text":"` + text + `","id":"` + canary + `"}]}],"metadata":{"a":{"id":"` + canary + `"}},"user":"` + canary + `"}`
		msg := kv{"type", "submit", "request_id", "r-123456", "prompt", canary, "other", []any{canary, text}, "text", text, canary, canary}
		calls := map[string][]string{
			"http": {httpReq("POST /v1/chat/completions?prompt="+strings.ReplaceAll(canary, " ", "+"),
				"X-Request-Id: r-123456\r\nAuthorization: Bearer "+canary+"\r\nCookie: a="+canary+"\r\nX-User: "+canary+"\r\n", chat)},
			"http with a body of words": {httpReq("POST /v1/audio", "", canary), "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX: " + canary + "\r\n\r\n" + canary[:10]},
			"sse": {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", chunked(delta("r-1", canary)),
				chunked("event: " + canary + "\ndata: " + canary + "\n\n"), chunked(`data: {"choices":[{"delta":{"content":"` + canary + `","type":"` + canary + `"}}]}` + "\n\n")},
			"ollama": {"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n",
				chunked(`{"model":"` + canary + `","response":"` + canary + `","done":false}` + "\n")},
			"zmtp":   {greeting() + ready(), zframe(0, mp(msg)), zframe(0, canary), zframe(1, canary) + zframe(0, mp([]any{"r-123456", canary}))},
			"pickle": {prefixed(4, pickled("request_id", "r-123456", "prompt", canary, canary))},
			"lines":  {`{"type":"a","prompt":"` + canary + `"}` + "\n", `{"` + canary + `":"` + canary + `"}` + "\n"},
			"opaque": {canary, text, canary + canary},
		}
		for name, bytes := range calls {
			for _, capture := range []int{all, 100} {
				f := newFeeder(t, nil)
				for _, b := range bytes {
					f.call(run.Recv, b, capture)
				}
				f.c.Close(f.now)
				if len(f.out.msgs) == 0 {
					t.Errorf("%s: no messages, so nothing was tested", name)
				}
				for i := range f.out.msgs {
					if s := fmt.Sprintf("%+v", f.out.msgs[i]); strings.Contains(s, "CANARY") {
						t.Errorf("%s, %d bytes captured: %s", name, capture, s)
					}
				}
			}
		}
	}
}

func TestIDShaped(t *testing.T) {
	for s, want := range map[string]bool{
		"": false, "a": true, "chatcmpl-0123__cfg_text": true, "rid:payload:a:b": true, "{a}@b/c": true,
		"two words": false, "tab\t": false, "é": false, "a\"b": false, "a,b": false,
		strings.Repeat("a", 256): true, strings.Repeat("a", 257): false,
	} {
		if got := IDShaped(s); got != want {
			t.Errorf("IDShaped(%.20q) = %v", s, got)
		}
	}
}

func TestIDSet(t *testing.T) {
	s := NewIDSet()
	for _, id := range []string{"r-000017", "0b0e7a54-9c1d-4a53-8d2f-5e0c0a1b2c3d", "assistant", "a1", "has space 1"} {
		s.Learn(id)
	}
	for v, want := range map[string]bool{
		"r-000017": true, "chatcmpl-r-000017": true, "chatcmpl-r-000017-0a1b2c3d": true, "r-000017:payload:a:b": true,
		"r-0000171": false, "xr-000017": false, "r-00001": false,
		"chatcmpl-0b0e7a54-9c1d-4a53-8d2f-5e0c0a1b2c3d-00ff00ff": true, "0b0e7a54-9c1d-4a53-8d2f": false,
		"assistant": false, "assistant-1": false, // no digit: a word
		"a1": false, "x-a1-y": false, // too short
		"has space 1": false,
	} {
		if got := s.within([]byte(v)); got != want {
			t.Errorf("within(%q) = %v, want %v", v, got, want)
		}
	}
	if !s.Has("assistant") || s.Has("has space 1") {
		t.Error("Has: learned words are known, text with white space never is")
	}
	for i := range maxIDs + 100 {
		s.Learn(fmt.Sprintf("id-%08d", i))
	}
	if len(s.known) != maxIDs || len(s.order) != maxIDs || s.Has("r-000017") || !s.Has(fmt.Sprintf("id-%08d", maxIDs+99)) {
		t.Errorf("%d ids held, want the last %d", len(s.known), maxIDs)
	}
}
