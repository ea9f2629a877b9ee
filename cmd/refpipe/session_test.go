package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(withStage(m)) }

// withStage builds the C stage once for all tests.
func withStage(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rp")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "refpipe-stage")
	sources, _ := filepath.Glob("stage/*.c")
	args := append([]string{"-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", bin}, sources...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build stage: %v\n%s", err, out)
		return 1
	}
	os.Setenv("REFPIPE_STAGE", bin)
	return m.Run()
}

// session is a running pipeline in this process.
type session struct {
	t    *testing.T
	url  string
	pids []int
	tag  string
	top  *Topology
	stop func() *truthFile
}

type truthFile struct {
	meta     truthMeta
	visits   []truthVisit
	hops     []truthHop
	requests map[string]truthRequest
}

// begin starts a pipeline with the given flags; stop ends it and reads its truth.
func begin(t *testing.T, args ...string) *session {
	t.Helper()
	dir, err := os.MkdirTemp("", "rp") // t.TempDir's names are too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "truth.jsonl")
	o, err := parseOptions(append([]string{"--dir", dir, "--truth", file, "--truth-records", "8192"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := serve(ctx, o, w)
		w.CloseWithError(io.EOF)
		done <- err
	}()
	var a struct { // what others rely on in the line
		URL    string `json:"url"`
		PIDs   []int  `json:"pids"`
		Stages []struct {
			Name string `json:"name"`
			PIDs []int  `json:"pids"`
		} `json:"stages"`
		Tag string `json:"segment_tag"`
	}
	if err := json.NewDecoder(r).Decode(&a); err != nil {
		cancel()
		log, _ := os.ReadFile(filepath.Join(dir, "stages.log"))
		t.Fatalf("pipeline did not come up: %v, %v\n%s", err, <-done, log)
	}
	go io.Copy(io.Discard, r) // the line's end, which the decoder leaves where the line fills its buffer
	top, err := Draw(o.seed, o.topology)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, url: a.URL, pids: a.PIDs, tag: a.Tag, top: top}
	var stopped *truthFile
	s.stop = func() *truthFile {
		if stopped == nil {
			cancel()
			if err := <-done; err != nil {
				t.Fatalf("stop pipeline: %v", err)
			}
			stopped = readTruth(t, file)
		}
		return stopped
	}
	t.Cleanup(func() { s.stop() })
	return s
}

func readTruth(t *testing.T, path string) *truthFile {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &truthFile{requests: map[string]truthRequest{}}
	for line := range bytes.Lines(b) {
		var kind struct{ T string }
		must(t, json.Unmarshal(line, &kind))
		switch kind.T {
		case "visit":
			var v truthVisit
			must(t, json.Unmarshal(line, &v))
			f.visits = append(f.visits, v)
		case "hop":
			var h truthHop
			must(t, json.Unmarshal(line, &h))
			f.hops = append(f.hops, h)
		case "request":
			var r truthRequest
			must(t, json.Unmarshal(line, &r))
			f.requests[r.Request] = r
		case "meta":
			var head struct {
				Dropped  uint64 `json:"truth_dropped"`
				Unpaired int    `json:"messages_unpaired"`
			}
			must(t, json.Unmarshal(line, &head))
			f.meta.Dropped, f.meta.Unpaired = head.Dropped, head.Unpaired
		default:
			t.Fatalf("truth line of type %q", kind.T)
		}
	}
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reply is what a client sees of a streamed chat completion.
type reply struct {
	status  int
	id      string
	text    string
	chunks  int // of audio
	samples int
	tokens  int
	done    bool
	failure string
}

type sseEvent struct {
	ID      string `json:"id"`
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
			Audio   struct {
				Data string `json:"data"`
			} `json:"audio"`
		} `json:"delta"`
	} `json:"choices"`
	Usage struct {
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (s *session) post(ctx context.Context, path, id string, body any) (*http.Response, error) {
	b, err := json.Marshal(body)
	must(s.t, err)
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+path, bytes.NewReader(b))
	must(s.t, err)
	if id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	return http.DefaultClient.Do(req)
}

// chat sends one streamed chat completion and reads it to the end.
func (s *session) chat(id string, extra map[string]any) reply {
	s.t.Helper()
	body := map[string]any{"model": "omni", "stream": true, "messages": []any{map[string]string{"role": "user", "content": "hello"}}}
	for k, v := range extra {
		body[k] = v
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	resp, err := s.post(ctx, "/v1/chat/completions", id, body)
	must(s.t, err)
	defer resp.Body.Close()
	r := reply{status: resp.StatusCode}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			r.done = true
			continue
		}
		r.take(s.t, data)
	}
	must(s.t, lines.Err())
	return r
}

func (r *reply) take(t *testing.T, data string) {
	var e sseEvent
	must(t, json.Unmarshal([]byte(data), &e))
	r.failure += e.Error.Message
	if e.ID != "" {
		r.id = e.ID
	}
	r.tokens += e.Usage.Completion
	for _, c := range e.Choices {
		r.text += c.Delta.Content
		if c.Delta.Audio.Data != "" {
			pcm, err := base64.StdEncoding.DecodeString(c.Delta.Audio.Data)
			must(t, err)
			r.chunks++
			r.samples += len(pcm) / 2
		}
	}
}
