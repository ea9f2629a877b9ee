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
	}
	if err := json.NewDecoder(r).Decode(&a); err != nil {
		cancel()
		log, _ := os.ReadFile(filepath.Join(dir, "stages.log"))
		t.Fatalf("pipeline did not come up: %v, %v\n%s", err, <-done, log)
	}
	top, err := Draw(o.seed, o.topology)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, url: a.URL, pids: a.PIDs, top: top}
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

// checkComplete asserts what truth promises of a run without faults.
func checkComplete(t *testing.T, s *session, f *truthFile, audio map[string]int) {
	t.Helper()
	if f.meta.Unpaired != 0 || f.meta.Dropped != 0 {
		t.Errorf("unpaired messages %d, dropped records %d; want none", f.meta.Unpaired, f.meta.Dropped)
	}
	visits := map[string]map[string]int{}
	for _, v := range f.visits {
		checkVisit(t, s, v)
		if visits[v.Request] == nil {
			visits[v.Request] = map[string]int{}
		}
		visits[v.Request][v.Stage]++
	}
	for _, h := range f.hops {
		if h.Send == 0 || h.Recv < h.Send || h.Bytes == 0 || h.FromPID == 0 || h.ToPID == 0 {
			t.Errorf("hop with a missing or reversed stamp: %+v", h)
		}
	}
	for id, r := range f.requests {
		if r.State != "success" || r.Recv == 0 || r.First < r.Recv || r.Last < r.First {
			t.Errorf("request line: %+v", r)
		}
		for _, st := range s.top.Stages[1:] {
			want := 1
			switch {
			case st.Role == RoleVocode:
				want = audio[id]
			case st.Role == RoleTalk && audio[id] == 0:
				want = 0
			}
			if got := visits[id][st.Name]; got != want {
				t.Errorf("request %s has %d visits at %s, want %d", id, got, st.Name, want)
			}
		}
	}
}

func checkVisit(t *testing.T, s *session, v truthVisit) {
	t.Helper()
	st, err := s.top.StageByName(v.Stage)
	must(t, err)
	inputs := 0
	for _, e := range s.top.Edges {
		if e.To == st.Index {
			inputs++
		}
	}
	if len(v.Arrivals) != inputs {
		t.Errorf("%s of %s has %d arrivals, want %d", v.Stage, v.Request, len(v.Arrivals), inputs)
	}
	for _, a := range v.Arrivals {
		if a.NS == 0 || a.NS > v.Ready {
			t.Errorf("%s of %s: arrival %d after ready %d", v.Stage, v.Request, a.NS, v.Ready)
		}
	}
	if v.Ready == 0 || v.Start < v.Ready || v.Finish <= v.Start || v.Departure < v.Finish {
		t.Errorf("visit with a missing or reversed stamp: %+v", v)
	}
	if (v.Chunk != nil) != (st.Role == RoleVocode) {
		t.Errorf("visit at %s has chunk %v", v.Stage, v.Chunk)
	}
}

func implArgs(t *testing.T, impl string) []string {
	t.Helper()
	if impl == "python" {
		if _, err := pythonInterpreter(); err != nil {
			t.Skip(err)
		}
	}
	return []string{"--impl", impl}
}

func TestTruthIsComplete(t *testing.T) {
	for _, c := range []struct{ impl, topology, seed string }{
		{"c", "full", "1"}, {"c", "full", "4"}, {"c", "merged", "2"}, {"c", "merged", "9"}, {"c", "small", "3"},
		{"python", "full", "1"}, {"python", "merged", "2"}, {"python", "small", "3"},
	} {
		t.Run(c.impl+"-"+c.topology+"-"+c.seed, func(t *testing.T) {
			s := begin(t, append(implArgs(t, c.impl), "--topology", c.topology, "--seed", c.seed)...)
			audio := map[string]int{}
			for i := range 5 {
				id := fmt.Sprintf("req-%d", i)
				extra := map[string]any{}
				if i == 1 {
					extra["padding"] = strings.Repeat("x", 300<<10)
				}
				if i == 2 {
					extra["modalities"] = []string{"text"}
				}
				r := s.chat(id, extra)
				audio[id] = r.chunks
				if r.status != 200 || !r.done || r.failure != "" || r.id != "chatcmpl-"+id {
					t.Fatalf("reply %d: %+v", i, r)
				}
				if n := len(strings.Fields(r.text)); n != r.tokens || n < s.top.MinTokens {
					t.Errorf("reply %d has %d words, usage says %d", i, n, r.tokens)
				}
				if wantAudio := c.topology != "small" && i != 2; wantAudio != (r.chunks > 0) {
					t.Errorf("reply %d has %d audio chunks", i, r.chunks)
				}
			}
			f := s.stop()
			if len(f.requests) != 5 {
				t.Errorf("truth has %d requests, want 5", len(f.requests))
			}
			checkComplete(t, s, f, audio)
			leftover(t, s)
		})
	}
}

// leftover asserts that no segment of the run stays.
func leftover(t *testing.T, s *session) {
	t.Helper()
	for _, pattern := range []string{"psm_" + s.top.Prefix + "????", "*req-*"} {
		if left, _ := filepath.Glob("/dev/shm/" + pattern); len(left) > 0 {
			t.Errorf("segments left: %v", left)
		}
	}
}

// Chunks that the vocoder finds in /dev/shm are hops of their own kind.
func TestPolledChunks(t *testing.T) {
	for _, impl := range []string{"c", "python"} {
		t.Run(impl, func(t *testing.T) {
			s := begin(t, append(implArgs(t, impl), "--seed", "4", "--polled-edge")...)
			audio := map[string]int{}
			for i := range 3 {
				id := fmt.Sprintf("req-%d", i)
				r := s.chat(id, nil)
				if !r.done || r.failure != "" || r.chunks == 0 {
					t.Fatalf("reply: %+v", r)
				}
				audio[id] = r.chunks
			}
			f := s.stop()
			checkComplete(t, s, f, audio)
			found, want := map[string]int{}, audio
			for _, h := range f.hops {
				if h.Transport == "shm" {
					found[h.Request]++
				}
			}
			for id := range want {
				if found[id] != want[id] {
					t.Errorf("%s: %d chunks went through shared memory, want %d", id, found[id], want[id])
				}
			}
			leftover(t, s)
		})
	}
}

func TestSpeechMintsItsOwnID(t *testing.T) {
	s := begin(t, "--seed", "7")
	resp, err := s.post(t.Context(), "/v1/audio/speech", "mine", map[string]string{"input": "hello"})
	must(t, err)
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	resp.Body.Close()
	if !bytes.HasPrefix(b, []byte("RIFF")) || len(b) <= 44 {
		t.Fatalf("speech reply of %d bytes is no wave", len(b))
	}
	f := s.stop()
	for id, r := range f.requests {
		if !strings.HasPrefix(id, "speech-") || r.HeaderID != "mine" || r.State != "success" {
			t.Errorf("speech request: %+v", r)
		}
	}
	for _, h := range f.hops {
		if !strings.HasPrefix(h.Request, "speech-") {
			t.Errorf("hop under id %s", h.Request)
		}
	}
	samples := 0
	for _, v := range f.visits {
		if v.Chunk != nil {
			samples += s.top.Stages[7].Service.Filler / 2
		}
	}
	if got := (len(b) - 44) / 2; got != samples {
		t.Errorf("wave has %d samples, the vocoder made %d", got, samples)
	}
}

func TestRequestIDFromBodyGoesFirst(t *testing.T) {
	s := begin(t, "--topology", "small", "--seed", "3")
	if r := s.chat("header", map[string]any{"request_id": "body"}); r.id != "chatcmpl-body" {
		t.Errorf("reply id %q, want chatcmpl-body", r.id)
	}
	if r := s.chat("", nil); len(r.id) != len("chatcmpl-")+36 {
		t.Errorf("reply id %q, want a minted uuid", r.id)
	}
	if r := s.chat("../x", nil); r.status != http.StatusBadRequest {
		t.Errorf("an id that is no file name got status %d", r.status)
	}
}
