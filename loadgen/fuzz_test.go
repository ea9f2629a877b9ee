package loadgen

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Bytes cut anywhere mean the same as the whole, and no bytes make a parser panic or grow.

func parseLines(pieces ...string) []string {
	out := []string{}
	p := lineParser{emit: func(l []byte) { out = append(out, string(l)) }}
	for _, s := range pieces {
		if err := p.feed([]byte(s)); err != nil {
			return append(out, err.Error())
		}
	}
	p.end()
	return out
}

func FuzzNDJSONCuts(f *testing.F) {
	f.Add("{\"a\":1}\n{\"b\":2}\r\n", 4, 9)
	f.Add("\n\n{\"response\":\"中\"}\n{\"done\":true}", 15, 16)
	f.Fuzz(func(t *testing.T, s string, i, j int) {
		if i < 0 || j < i || j > len(s) {
			t.Skip()
		}
		if whole, cut := fmt.Sprint(parseLines(s)), fmt.Sprint(parseLines(s[:i], s[i:j], s[j:])); whole != cut {
			t.Errorf("whole %q, cut %q", whole, cut)
		}
	})
}

func parseWAV(pieces ...[]byte) string {
	var formats []pcmFormat
	n, sum := 0, 0
	w := wavParser{format: func(f pcmFormat) { formats = append(formats, f) }}
	w.data = func(b []byte) {
		for _, x := range b {
			n++
			sum = sum*31 + int(x)
		}
	}
	for _, p := range pieces {
		w.feed(p)
	}
	return fmt.Sprint(formats, n, sum, w.declared, w.invalid, w.surplus)
}

func FuzzWAVCuts(f *testing.F) {
	f.Add([]byte(wavFile(24000, 0xFFFFFFFF, sound(8, 1))), 3, 40)
	f.Add([]byte(wavFile(8000, 8, sound(4, 1))+wavFile(16000, 0, sound(4, 2))), 60, 70)
	f.Add([]byte(wavFile(8000, 7, sound(4, 1))+"LIST\x02\x00\x00\x00ab"), 12, 61)
	f.Fuzz(func(t *testing.T, b []byte, i, j int) {
		if i < 0 || j < i || j > len(b) {
			t.Skip()
		}
		if whole, cut := parseWAV(b), parseWAV(b[:i], b[i:j], b[j:]); whole != cut {
			t.Errorf("whole %s, cut %s", whole, cut)
		}
	})
}

func parseH2(pieces ...[]byte) string {
	var sent bytes.Buffer
	c, err := newH2Conn(&sent, "http", 0)
	if err != nil {
		return err.Error()
	}
	var out string
	s := c.open(func(h *responseHead) { out += fmt.Sprint("head ", *h, " ") }, func(b []byte) { out += string(b) })
	for _, p := range pieces {
		if err := c.feed(p); err != nil {
			return out + " error " + err.Error()
		}
	}
	return fmt.Sprint(out, s.done(), s.reusable(), c.gone, sent.Len())
}

// h2Reply is a server's side of one stream.
func h2Reply(body string) []byte {
	var b, block bytes.Buffer
	f := http2.NewFramer(&b, nil)
	e := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "text/event-stream"}} {
		_ = e.WriteField(field) // to a buffer
	}
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	_ = f.WritePing(false, [8]byte{1})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes()[:1]})
	_ = f.WriteContinuation(1, true, block.Bytes()[1:])
	_ = f.WriteWindowUpdate(0, 100)
	_ = f.WriteData(1, false, []byte(body))
	_ = f.WriteData(1, true, nil)
	return b.Bytes()
}

func TestHTTP2CutAnywhere(t *testing.T) {
	b := h2Reply("data: a\n\n")
	want := parseH2(b)
	if want[:9] != "head {200" || !bytes.Contains([]byte(want), []byte("data: a\n\ntrue")) {
		t.Fatalf("whole: %s", want)
	}
	for i := range b {
		if got := parseH2(b[:i], b[i:]); got != want {
			t.Fatalf("cut at %d: %s, want %s", i, got, want)
		}
	}
}

func FuzzHTTP2Cuts(f *testing.F) {
	f.Add(h2Reply("x"), 30, 60)
	f.Fuzz(func(t *testing.T, b []byte, i, j int) {
		if i < 0 || j < i || j > len(b) {
			t.Skip()
		}
		if whole, cut := parseH2(b), parseH2(b[:i], b[i:j], b[j:]); whole != cut {
			t.Errorf("whole %q, cut %q", whole, cut)
		}
	})
}

// FuzzReply gives any event to every way of reading a reply: none panics, none invents content.
func FuzzReply(f *testing.F) {
	for _, s := range []string{`{"choices":[{"delta":{"content":"a"}}]}`, `{"response":"a","done":true,"eval_count":1}`, `{"type":"speech.audio.delta","audio":"AAAA"}`, `{"a":[{"b":"c"}],"n":2}`, `[DONE]`, `{"error":{"message":"x"}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, mode := range replies {
			cfg := &Config{Reply: mode, Stream: true}
			cfg.Client.Rule = Rule{Content: "a.0.b", End: "done", Tokens: "n", Error: "error", Audio: "audio"}
			req := &run.Request{Status: 200}
			r := newReply(cfg, req)
			r.nowNS = 1
			r.line(data)
			r.shape = shapeLines
			r.end()
			r.closeAudio()
			if r.fail == nil && (r.contents == 0 || req.FirstNS == nil) {
				t.Errorf("%s: success without content: %+v", mode, req)
			}
			if n := len(req.Events); n == 0 {
				t.Errorf("%s: an event left no trace", mode)
			}
		}
	})
}
