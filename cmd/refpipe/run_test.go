package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

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
	if left, _ := filepath.Glob("/dev/shm/*" + s.tag + "*"); s.tag == "" || len(left) > 0 {
		t.Errorf("tag %q: segments left: %v", s.tag, left)
	}
}

// Two runs of one seed, with the same ids at the same time: their segments are not the same, and the
// end of one leaves those of the other.
func TestTwoOfOneSeed(t *testing.T) {
	args := []string{"--seed", "4", "--polled-edge"}
	both := []*session{begin(t, args...), begin(t, args...)}
	const n = 3
	var audio [2]map[string]int
	var group sync.WaitGroup
	for k, s := range both {
		audio[k] = map[string]int{}
		group.Go(func() {
			for i := range n * (1 + k) {
				id := fmt.Sprintf("req-%d", i)
				r := s.chat(id, nil)
				if !r.done || r.failure != "" || r.chunks == 0 {
					t.Errorf("reply of pipeline %d: %+v", k, r)
				}
				audio[k][id] = r.chunks
			}
			if k == 0 {
				s.stop() // sweeps, while the other is at work
			}
		})
	}
	group.Wait()
	for k, s := range both {
		checkComplete(t, s, s.stop(), audio[k])
		leftover(t, s)
	}
}

// Stages in Python give their segments the names that those in C would.
func TestPythonNamesSegmentsByRun(t *testing.T) {
	implArgs(t, "python")
	python, err := pythonInterpreter()
	must(t, err)
	top, err := Draw(4, "full")
	must(t, err)
	lay := &layout{top: top, faults: &Faults{}, tag: "0a1b2c", dir: t.TempDir()}
	conf := filepath.Join(lay.dir, "conf")
	must(t, lay.writeConf(top.Procs[1], conf))
	const script = `import sys, types; sys.path.insert(0, "stagepy"); sys.dont_write_bytecode = True
import conf, segments
print(segments.name_of(conf.read(sys.argv[1]), types.SimpleNamespace(id="req-1", src=1), 7))`
	out, err := exec.Command(python, "-c", script, conf).CombinedOutput()
	must(t, err)
	if got, want := strings.TrimSpace(string(out)), "req-1_"+top.Stages[1].Name+"_0a1b2c_7"; got != want {
		t.Errorf("segment %q, want %q", got, want)
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
