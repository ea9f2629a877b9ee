package loadgen

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
)

// webServer serves h over HTTP/1.1 or HTTP/2, with TLS or without.
func webServer(t *testing.T, h2, secure bool, h http.HandlerFunc) (*httptest.Server, *Client) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = h2
	k := &Client{}
	if h2 {
		k.HTTP = "2"
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP2(secure)
		s.Config.Protocols.SetUnencryptedHTTP2(!secure)
	}
	if secure {
		s.StartTLS()
		k.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, k
}

// chatOver answers with two tokens and echoes nothing. It notes the protocol it was spoken to in.
func chatOver(proto *atomic.Value) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		proto.Store(fmt.Sprintf("%s %s %d", r.Proto, r.Header.Get("X-Request-Id"), len(b)))
		w.Header().Set("Content-Type", "text/event-stream")
		for _, s := range []string{content("a"), content("b"), finishChunk + doneChunk} {
			_, _ = io.WriteString(w, s)
			w.(http.Flusher).Flush()
		}
	}
}

func TestProtocols(t *testing.T) {
	for _, tc := range []struct {
		name       string
		h2, secure bool
		proto      string
	}{
		{"HTTP/1.1 over TLS", false, true, "HTTP/1.1"},
		{"HTTP/2 over TLS", true, true, "HTTP/2.0"},
		{"HTTP/2 by prior knowledge", true, false, "HTTP/2.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var proto atomic.Value
			s, k := webServer(t, tc.h2, tc.secure, chatOver(&proto))
			c := Config{URL: s.URL, N: 6, Stream: true, Concurrency: 2, Deadline: 20 * time.Second, Client: *k, PromptChars: 200_000, IDField: "request_id"}
			p := mustPlan(t, c)
			rs, sum, err := runAll(t, t.Context(), p)
			if err != nil || sum.Success != 6 {
				t.Fatalf("error %v, summary %+v", err, sum)
			}
			if got := proto.Load().(string); !strings.HasPrefix(got, tc.proto+" "+p.cfg.IDPrefix) {
				t.Errorf("server was spoken to as %q, want %q and the id", got, tc.proto)
			}
			if sum.NewConns > 2 {
				t.Errorf("%d connections for 2 workers", sum.NewConns)
			}
			for _, r := range rs {
				if r.BytesOut < 200_000 || r.WrittenNS == nil || r.Status != 200 || strings.Count(kinds(r), "content") != 2 {
					t.Fatalf("request %+v, events %q", r, kinds(r))
				}
			}
		})
	}
}

func TestHTTP2Faults(t *testing.T) {
	for _, tc := range []struct {
		name, state string
		h           http.HandlerFunc
	}{
		{"refused by status", run.StateRejected, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusTooManyRequests) }},
		{"reset inside the reply", run.StateTransportError, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, content("a"))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}},
		{"clean end without an end mark", run.StateInvalidOutput, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, content("a"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, k := webServer(t, true, false, tc.h)
			rs, _, _ := runAll(t, t.Context(), mustPlan(t, Config{URL: s.URL, N: 1, Stream: true, Deadline: 20 * time.Second, Client: *k}))
			if rs[0].State != tc.state {
				t.Errorf("state %q (%s), want %q", rs[0].State, rs[0].Error, tc.state)
			}
		})
	}
}

// An abandoned stream is reset, so that the server's handler learns of it.
func TestHTTP2Cancel(t *testing.T) {
	gone := make(chan struct{})
	s, k := webServer(t, true, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, content("a"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})
	k.Cancel = Cancel{Stage: CancelEvents, Events: 1}
	rs, _, _ := runAll(t, t.Context(), mustPlan(t, Config{URL: s.URL, N: 1, Stream: true, Deadline: 20 * time.Second, Client: *k}))
	<-gone
	if rs[0].State != run.StateClientCancelled || rs[0].FirstNS == nil {
		t.Errorf("state %q (%s)", rs[0].State, rs[0].Error)
	}
}

func TestCancelStages(t *testing.T) {
	for _, tc := range []struct {
		spec   string
		events int
	}{{"sent", 0}, {"events=2", 2}, {"after=30ms", 1}} {
		t.Run(tc.spec, func(t *testing.T) {
			k, err := ParseCancel(tc.spec)
			if err != nil {
				t.Fatal(err)
			}
			gone := make(chan bool, 1)
			r := one(t, func(c net.Conn, _ *received) bool {
				for i := 0; i < max(tc.events, 1); i++ {
					if i == 0 {
						write(c, chunkedSSE)
					}
					write(c, httpChunk(content("a")))
				}
				_, err := c.Read(make([]byte, 1))
				gone <- err != nil
				return false
			}, func(c *Config) { c.Client.Cancel = k })
			if r.State != run.StateClientCancelled || len(r.Events) < tc.events || tc.events == 0 && r.FirstByteNS != nil {
				t.Errorf("state %q (%s), %d events", r.State, r.Error, len(r.Events))
			}
			if d := *r.EndNS - *r.SentNS; tc.spec == "after=30ms" && (d < 30e6 || d > 5e9) {
				t.Errorf("abandoned %d ns after the send, want 30 ms", d)
			}
			if !<-gone {
				t.Error("the connection was not closed")
			}
		})
	}
}

// The share of cancelled requests is chosen by the seed, not by chance.
func TestCancelShare(t *testing.T) {
	c := chatConfig(newServer(t, okHandler), 1000)
	c.Client.Cancel = Cancel{Stage: CancelSent, Share: 0.2}
	p, q := mustPlan(t, c), mustPlan(t, c)
	n := 0
	for i := 1; i <= 1000; i++ {
		n += count(p.cancels(i))
		if p.cancels(i) != q.cancels(i) {
			t.Fatalf("request %d: two plans of one seed differ", i)
		}
	}
	if n < 160 || n > 240 {
		t.Errorf("%d of 1000 requests are cancelled, want about 200", n)
	}
}

func TestSlowConsumer(t *testing.T) {
	body := strings.Repeat("x", 20_000)
	r, _, sum := load(t, play("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 20000\r\n\r\n"+body), func(c *Config) {
		c.URL += "/plain"
		c.Template, c.Client.ReadRate = "{}", 200_000
	})
	// 20 kB at 200 kB/s; the last read is not held back. What was read in pieces of one segment has one
	// time, and none is before the one before it.
	if *r.EndNS < *r.FirstByteNS {
		t.Errorf("%d events from %d to %d", len(r.Events), *r.FirstByteNS, *r.EndNS)
	}
	if d := sum.EndNS - sum.StartNS; r.State != run.StateSuccess || d < 80e6 || r.BytesIn < 20_000 {
		t.Errorf("state %q (%s): %d bytes in %d ns", r.State, r.Error, r.BytesIn, d)
	}
}

// A client that stops reading stops a server that has more to say than the socket's buffers hold.
func TestPausedClientHoldsTheServerBack(t *testing.T) {
	const size = 16 << 20
	wrote := make(chan int64, 1)
	r, _, _ := load(t, func(c net.Conn, _ *received) bool {
		write(c, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", size))
		write(c, strings.Repeat("x", size))
		wrote <- run.Mono()
		return true
	}, func(c *Config) {
		c.URL += "/plain"
		c.Template, c.Client.Pause = "{}", Pause{Bytes: 1, For: 60 * time.Millisecond}
	})
	var resumed int64
	for _, e := range r.Events {
		if e.Kind == "resumed" {
			resumed = e.MonoNS
		}
	}
	if at := <-wrote; r.State != run.StateSuccess || resumed == 0 || at < resumed {
		t.Errorf("state %q (%s): server done at %d, client resumed at %d", r.State, r.Error, at, resumed)
	}
}

// What piled up during a pause comes in one burst afterwards; the gap is the client's own.
func TestPausedClientRecovers(t *testing.T) {
	pause, err := ParsePause("events=1,for=40ms")
	if err != nil {
		t.Fatal(err)
	}
	s := newScript(content("a"), content("b")+content("c"), finishChunk+doneChunk)
	s.delay = 5 * time.Millisecond
	r, m, sum := load(t, s.serve, func(c *Config) { c.Client.Pause = pause })
	if r.State != run.StateSuccess || !strings.HasPrefix(kinds(r), "content paused resumed content content+") {
		t.Fatalf("state %q (%s), events %q", r.State, r.Error, kinds(r))
	}
	if d := r.Events[2].MonoNS - r.Events[1].MonoNS; d < 40e6 {
		t.Errorf("paused for %d ns", d)
	}
	if len(m.Gaps) != 0 || sum.ChunkGap != nil {
		t.Errorf("gaps %v: the pause counts as the server's", m.Gaps)
	}
}

func TestRetriesAreRecorded(t *testing.T) {
	var n atomic.Int64
	c := chatConfig(newServer(t, func(c net.Conn, _ *received) bool {
		if n.Add(1) <= 2 {
			write(c, jsonReply(503, `{"error":"busy"}`))
			return true
		}
		write(c, okStream())
		return true
	}), 1)
	for retries, want := range map[int]string{0: run.StateRejected, 2: run.StateSuccess} {
		n.Store(0)
		c.Client.Retries = retries
		p := mustPlan(t, c)
		var all []*run.Request
		sum, err := Run(t.Context(), p, func(r *run.Request) { all = append(all, r) })
		if err != nil || len(all) != retries+1 || sum.Planned != 1 || sum.Retries != retries || sum.States[want] != 1 {
			t.Fatalf("%d retries: %d records, error %v, summary %+v", retries, len(all), err, sum)
		}
		for i, r := range all {
			if r.Attempt != i+1 || r.Group != p.ID(1) || r.Retried != (i < retries) {
				t.Errorf("attempt %d: %+v", i+1, r)
			}
		}
		// Waiting for the further attempts is part of the request's time.
		last := all[len(all)-1]
		if want := float64(*last.EndNS-*all[0].SentNS) / 1e6; retries > 0 && *sum.JCTFromSend.P50 != want {
			t.Errorf("JCT %v, want %v", *sum.JCTFromSend.P50, want)
		}
	}
}

func TestModalityNotApplicable(t *testing.T) {
	image := []Media{{Name: "a.png", Data: []byte("PNG")}}
	for _, tc := range []struct {
		name, body, state string
		change            func(*Config)
	}{
		{"said by the server", `{"error":{"message":"This model does not support image input","code":400}}`, run.StateNotApplicable, func(c *Config) { c.Client.Images = image }},
		{"of text", `{"error":{"message":"This model does not support image input","code":400}}`, run.StateHarnessError, nil},
		{"a file format", `{"error":{"message":"unsupported audio format","code":400}}`, run.StateHarnessError, func(c *Config) { c.Client.Audios = []Media{{Name: "a.xyz", Data: []byte("x")}} }},
		{"said by the user", "", run.StateNotApplicable, func(c *Config) { c.Client.Images, c.Client.Lacks = image, []string{ModalityImage} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, m, sum := load(t, play(jsonReply(400, tc.body)), tc.change)
			if sum.States[tc.state] != 1 {
				t.Fatalf("states %v, first error %q", sum.States, sum.FirstError)
			}
			na := tc.state == run.StateNotApplicable
			if na == sum.AllFailed() || na != (m.JCT.Send.Standing == NotApplicable) || na != (sum.JCTFromSend == nil) {
				t.Errorf("JCT %+v, summary %+v", m.JCT, sum.JCTFromSend)
			}
		})
	}
}

func bodyOf(t *testing.T, c Config) (received, *run.Request) {
	t.Helper()
	s := newServer(t, okHandler)
	c.URL = s.url + c.URL
	c.N, c.Deadline, c.IDField = 1, 20*time.Second, "request_id"
	rs, _, _ := runAll(t, t.Context(), mustPlan(t, c))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[0], rs[0]
}

func TestMediaParts(t *testing.T) {
	got, r := bodyOf(t, Config{URL: "", Stream: true, Prompts: []string{`say "hi"`}, Client: Client{
		Images: []Media{{"a.png", []byte("PNG")}}, Audios: []Media{{"b.wav", []byte("RIFF")}}, Videos: []Media{{"c.mp4", []byte("mp4")}},
	}})
	var body struct {
		RequestID string `json:"request_id"`
		Messages  []struct {
			Content []map[string]json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal([]byte(got.body), &body); err != nil || body.RequestID != r.ID || len(body.Messages[0].Content) != 4 {
		t.Fatalf("error %v in %s", err, got.body)
	}
	var flat []string
	for _, part := range body.Messages[0].Content {
		for _, k := range []string{"text", "image_url", "input_audio", "video_url"} {
			if part[k] != nil {
				flat = append(flat, string(part[k]))
			}
		}
	}
	want := `"say \"hi\"" {"url":"data:image/png;base64,UE5H"} {"data":"UklGRg==","format":"wav"} {"url":"data:video/mp4;base64,bXA0"}`
	if s := strings.Join(flat, " "); s != want {
		t.Errorf("parts %s\nwant  %s", s, want)
	}
}

func TestTranscriptionUpload(t *testing.T) {
	forms := make(chan *multipart.Form, 1)
	s, k := webServer(t, false, false, func(w http.ResponseWriter, r *http.Request) {
		_, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		form, _ := multipart.NewReader(r.Body, params["boundary"]).ReadForm(1 << 20)
		forms <- form
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"type\":\"transcript.text.delta\",\"delta\":\"hello\"}\n\ndata: {\"type\":\"transcript.text.done\",\"text\":\"hello\"}\n\n")
	})
	k.Audios = []Media{{"private name.wav", []byte("RIFF\x00\r\n--x")}}
	c := Config{URL: s.URL + "/v1/audio/transcriptions", N: 1, Stream: true, Model: "w", IDField: "request_id", ExtraJSON: `{"language":"de"}`, Client: *k}
	rs, _, err := runAll(t, t.Context(), mustPlan(t, c))
	r := rs[0]
	if err != nil || r.State != run.StateSuccess || r.TextChars != 5 || r.Finish != "done" {
		t.Fatalf("error %v, state %q (%s), %d characters, finish %q", err, r.State, r.Error, r.TextChars, r.Finish)
	}
	form := <-forms
	f, err := form.File["file"][0].Open()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(f)
	if v := form.Value; v["request_id"][0] != r.ID || v["model"][0] != "w" || v["language"][0] != "de" || v["stream"][0] != "true" ||
		!bytes.Equal(b, k.Audios[0].Data) || form.File["file"][0].Filename != "audio.wav" {
		t.Errorf("form %v, file %q named %q", form.Value, b, form.File["file"][0].Filename)
	}
}

func TestRepliesOfOtherKinds(t *testing.T) {
	delta := func(n int) string { return base64.StdEncoding.EncodeToString(sound(n, 5)) }
	sse := func(events ...string) string {
		return chunks(append([]string{}, events...)...)
	}
	lines := "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n"
	for _, tc := range []struct {
		name, script, path string
		change             func(*Config)
		state, kinds       string
		tokens, samples    int64
	}{
		{name: "text completion, streamed", path: "/v1/completions",
			script: sse(`data: {"choices":[{"text":"a"}]}`+"\n\n", `data: {"choices":[{"text":"b","finish_reason":"stop"}],"usage":{"completion_tokens":2}}`+"\n\n", doneChunk),
			state:  run.StateSuccess, kinds: "content content done", tokens: 2},
		{name: "text completion, whole", path: "/v1/completions", change: func(c *Config) { c.Stream = false },
			script: jsonReply(200, `{"choices":[{"text":"ab","finish_reason":"length"}],"usage":{"completion_tokens":7,"prompt_tokens":3}}`),
			state:  run.StateSuccess, kinds: "content", tokens: 7},
		{name: "Ollama chat", path: "/api/chat",
			script: lines + `{"message":{"role":"assistant","thinking":"hm"}}` + "\n" + pauseMark + `{"message":{"content":"a"}}` + "\n" + pauseMark + `{"done":true,"done_reason":"stop","eval_count":9}`,
			state:  run.StateSuccess, kinds: "reasoning content done", tokens: 9},
		{name: "Ollama, cut off", path: "/api/chat", script: lines + `{"message":{"content":"a"}}` + "\n", state: run.StateInvalidOutput, kinds: "content"},
		{name: "Ollama, error in the stream", path: "/api/generate", script: lines + `{"response":"a"}` + "\n" + pauseMark + `{"error":"llama runner process has terminated"}` + "\n",
			state: run.StateWorkerLost, kinds: "content error"},
		{name: "transcription, whole", path: "/v1/audio/transcriptions", change: func(c *Config) { c.Stream, c.Client.Audios = false, []Media{{"a.wav", []byte("x")}} },
			script: jsonReply(200, `{"text":"hello"}`), state: run.StateSuccess, kinds: "content"},
		{name: "audio deltas in chat", change: func(c *Config) { c.Client.PCM = PCM{24000, 1, 16} },
			script: sse(content("a"), `data: {"choices":[{"delta":{"audio":{"data":"`+delta(100)+`","transcript":"b"}}}]}`+"\n\n", `data: {"choices":[{"delta":{"audio":{"data":""}}}]}`+"\n\n", finishChunk, doneChunk),
			state:  run.StateSuccess, kinds: "content content audio+ other finish done", samples: 100},
		{name: "audio in a modality of chat", change: func(c *Config) { c.Client.PCM = PCM{24000, 1, 16} },
			script: sse(`data: {"modality":"audio","choices":[{"delta":{"content":"`+delta(50)+`"}}]}`+"\n\n", doneChunk),
			state:  run.StateSuccess, kinds: "audio done", samples: 50},
		{name: "speech as events", path: "/v1/audio/speech",
			script: sse(`data: {"type":"speech.audio.delta","audio":{"data":"`+delta(30)+`","sample_rate":24000}}`+"\n\n", `data: {"type":"speech.audio.delta","audio":{"data":"`+delta(20)+`","sample_rate":24000}}`+"\n\n", `data: {"type":"speech.audio.done"}`+"\n\n"),
			state:  run.StateSuccess, kinds: "audio audio finish", samples: 50},
		{name: "audio that is no base64", script: sse(`data: {"choices":[{"delta":{"audio":{"data":"%%%"}}}]}`+"\n\n", doneChunk), state: run.StateInvalidOutput, kinds: "other done"},
		{name: "by rule", path: "/gen", change: func(c *Config) {
			c.Template = "{}"
			c.Client.Rule = Rule{Framing: "ndjson", Content: "out.0.t", End: "state=end", Tokens: "n", Error: "fault"}
		}, script: lines + `{"out":[{"t":"a"}],"n":1}` + "\n" + pauseMark + `{"out":[{"t":"b"}],"n":3}` + "\n" + pauseMark + `{"state":"end"}` + "\n",
			state: run.StateSuccess, kinds: "content content done", tokens: 3},
		{name: "by rule, cut off", path: "/gen", change: func(c *Config) {
			c.Template = "{}"
			c.Client.Rule = Rule{Content: "t", End: "end"}
		}, script: lines + `{"t":"a"}` + "\n", state: run.StateInvalidOutput, kinds: "content"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := one(t, play(tc.script), func(c *Config) {
				c.URL += tc.path
				if tc.change != nil {
					tc.change(c)
				}
			})
			if r.State != tc.state || kinds(r) != tc.kinds || deref(r.Tokens) != tc.tokens {
				t.Errorf("state %q (%s), events %q, tokens %d; want %q, %q, %d", r.State, r.Error, kinds(r), deref(r.Tokens), tc.state, tc.kinds, tc.tokens)
			}
			if tc.samples > 0 && (r.Audio == nil || deref(r.Audio.Samples) != tc.samples) {
				t.Errorf("audio %+v, want %d samples", r.Audio, tc.samples)
			}
		})
	}
}

func TestTemplateOfAnyRequest(t *testing.T) {
	got, r := bodyOf(t, Config{URL: "/jobs/{{id}}?n={{n}}", Template: `{"p":"{{prompt}}","s":{{seed}}}`, Prompts: []string{"a\nb"}, Header: []string{"X-Job: {{id}}"}, Client: Client{Method: "PUT"}})
	if !strings.HasPrefix(got.head, "PUT /jobs/"+r.ID+"?n=1 HTTP/1.1\r\n") || got.header("x-job") != r.ID || r.Path != "/jobs/"+r.ID || r.Method != "PUT" {
		t.Errorf("head %q, recorded %s %s", got.head, r.Method, r.Path)
	}
	if !strings.HasPrefix(got.body, `{"p":"a\nb","s":`) {
		t.Errorf("body %q", got.body)
	}
}

// The M view against figures worked out by hand.
func TestCompatibilityView(t *testing.T) {
	c := chatConfig(&server{url: "http://127.0.0.1:1"}, 4)
	c.Prompts = []string{"a", "b"}
	tl := newTally(mustPlan(t, c), 0)
	add := func(prompt int, tokens int64, totalMS int64) {
		tl.add(&run.Request{
			State: run.StateSuccess, SentNS: at(1e6), EndNS: at((1 + totalMS) * 1e6), FirstNS: at(101e6), LastNS: at(totalMS * 1e6),
			Tokens: &tokens, TokensFrom: "usage", TextChars: 9, Prompt: prompt,
			Events: []run.ReplyEvent{{MonoNS: 101e6, Kind: "content"}},
		})
	}
	// Generations of 1 s: 10 and 14, 20 and 20 tokens/s; and one too short for a rate.
	add(1, 10, 1100)
	add(1, 14, 1100)
	add(2, 20, 1100)
	add(2, 20, 1100)
	add(0, 3, 105)
	m := tl.summary(0).Compat
	if m.N != 5 || m.Below != 1 || m.TokPerSec.Median != 14 || math.Abs(m.TokPerSec.Mean-12.8) > 1e-9 || m.TTFT.Median != 100 || m.Generation.Median != 1000 {
		t.Errorf("view %+v, M1 %+v, M2 %+v, M5 %+v", m, m.TokPerSec, m.TTFT, m.Generation)
	}
	// Population variances 4 and 0 pooled: the root of 2; 11 % of 12.8.
	if m.Prompts != 2 || math.Abs(*m.StdDev-math.Sqrt2) > 1e-9 || m.Stability != "unstable" || m.PowerW != nil {
		t.Errorf("M8 %v, CV %v, %q", *m.StdDev, *m.CVPercent, m.Stability)
	}
}

func TestLayersAndCSV(t *testing.T) {
	slo, _ := ParseSLO("jct=50ms")
	c := chatConfig(&server{url: "http://127.0.0.1:1"}, 4)
	c.Client.SLO = slo
	tl := newTally(mustPlan(t, c), 0)
	for i, tenant := range []string{"red", "red", "blue"} {
		tl.add(&run.Request{State: run.StateSuccess, Tenant: tenant, SentNS: at(1), EndNS: at(int64(i+1) * 20e6), BytesOut: 100})
	}
	s := tl.summary(0)
	if len(s.Layers) != 2 || s.Layers[0].Value != "blue" || s.Layers[1].JCT.N != 2 || s.Layers[1].Goodput.Met != 2 || s.Layers[0].Goodput.Missed != 1 {
		t.Errorf("layers %+v", s.Layers)
	}
	var b strings.Builder
	if err := s.CSV(&b); err != nil || !strings.Contains(b.String(), "tenant,red,JCT from send,ms,2,0,0,0,") {
		t.Errorf("error %v, CSV\n%s", err, b.String())
	}
}
