package loadgen

import (
	"fmt"
	"strings"
	"testing"
)

// parseSSE returns the events of a stream that arrives in the given pieces.
func parseSSE(pieces ...string) []string {
	var out []string
	s := sseParser{
		emit:    func(name string, data []byte) { out = append(out, name+"|"+string(data)) },
		comment: func(n int) { out = append(out, fmt.Sprintf("#%d", n)) },
	}
	for _, p := range pieces {
		if err := s.feed([]byte(p)); err != nil {
			return append(out, err.Error())
		}
	}
	s.end()
	return out
}

func TestSSECutAnywhere(t *testing.T) {
	stream := "\xef\xbb\xbfdata: 中\r\n\r\n: note\rdata:a\rdata: b\r\revent: error\ndata: x\n\nid: 7\n\ndata\n\ndata: [DONE]"
	want := "[|中 #5 |a\nb error|x | |[DONE]]"
	for i := range len(stream) {
		if got := fmt.Sprint(parseSSE(stream[:i], stream[i:])); got != want {
			t.Fatalf("cut at %d: %q, want %q", i, got, want)
		}
	}
}

// An event whose blank line ends in CR is complete there, not at the LF of the next read.
func TestSSEEventIsCompleteAtCR(t *testing.T) {
	n := 0
	s := sseParser{emit: func(string, []byte) { n++ }, comment: func(int) {}}
	_ = s.feed([]byte("data: a\r\n\r"))
	if n != 1 {
		t.Fatalf("%d events after CR, want 1", n)
	}
	_ = s.feed([]byte("\n"))
	if n != 1 {
		t.Fatalf("%d events after CRLF, want 1", n)
	}
}

func FuzzSSECuts(f *testing.F) {
	f.Add("data: a\n\ndata: b\r\n\r\n", 3, 9)
	f.Add(": x\n\nevent: e\ndata: 1\ndata: 2\n\n", 0, 5)
	f.Fuzz(func(t *testing.T, s string, i, j int) {
		if i < 0 || j < i || j > len(s) {
			t.Skip()
		}
		whole, cut := fmt.Sprint(parseSSE(s)), fmt.Sprint(parseSSE(s[:i], s[i:j], s[j:]))
		if whole != cut {
			t.Errorf("whole %q, cut %q", whole, cut)
		}
	})
}

type parsed struct {
	body   string
	status int
	done   bool
	close  bool
	err    string
}

func parseHTTP(pieces ...string) parsed {
	var out parsed
	p := httpParser{
		begin: func(h *responseHead) { out.status = h.status },
		data:  func(b []byte) { out.body += string(b) },
	}
	for _, s := range pieces {
		if err := p.feed([]byte(s)); err != nil {
			out.err = err.Error()
			return out
		}
	}
	out.done, out.close = p.done(), p.head.close
	return out
}

func TestHTTPCutAnywhere(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want parsed
	}{
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n0A\r\n0123456789\r\n0\r\nX: y\r\n\r\n", parsed{"abc0123456789", 200, true, false, ""}},
		{"HTTP/1.1 200\r\nContent-Length: 4\r\n\r\nabcd", parsed{"abcd", 200, true, false, ""}},
		{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Too\r\ncontent-length: 0\r\nConnection: close\r\n\r\n", parsed{"", 429, true, true, ""}},
		{"HTTP/1.0 200 OK\n\nrest", parsed{"rest", 200, false, true, ""}},
		{"HTTP/1.1 204 None\r\n\r\n", parsed{"", 204, true, false, ""}},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", parsed{status: 200, err: "chunk size of the reply is no hexadecimal number"}},
	} {
		for i := range len(tc.in) {
			if got := parseHTTP(tc.in[:i], tc.in[i:]); got != tc.want {
				t.Fatalf("%q cut at %d: %+v, want %+v", tc.in, i, got, tc.want)
			}
		}
	}
}

func FuzzHTTPCuts(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 20)
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabX", 5)
	f.Fuzz(func(t *testing.T, s string, i int) {
		if i < 0 || i > len(s) {
			t.Skip()
		}
		if a, b := parseHTTP(s), parseHTTP(s[:i], s[i:]); a != b {
			t.Errorf("whole %+v, cut %+v", a, b)
		}
	})
}

func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		body, text string
		code       int
	}{
		{`{"error":{"message":"a\nb","code":429}}`, "a b", 429},
		{`{"error":"plain"}`, "plain", 0},
		{`{"object":"error","message":"flat","code":400}`, "flat", 400},
		{`{"error":{"message":"word code","code":"invalid"}}`, "word code", 0},
		{`{"detail":"Not Found"}`, "Not Found", 0},
		{`{"detail":[{"type":"missing","input":"private"}]}`, "request refused: missing", 0},
		{`{"x":1}`, "no message in the error", 0},
		{"Internal\r\nServer Error", "Internal Server Error", 0},
		{"", "no message", 0},
		{strings.Repeat("x", 300), strings.Repeat("x", 256) + "…", 0},
	} {
		if text, code := errorText([]byte(tc.body)); text != tc.text || code != tc.code {
			t.Errorf("%s: %q %d, want %q %d", tc.body, text, code, tc.text, tc.code)
		}
	}
}
