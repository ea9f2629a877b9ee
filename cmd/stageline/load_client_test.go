package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/loadgen"
)

// A server whose streamed speech lacks three samples that its complete output has.
func TestLoadVerifiesAudio(t *testing.T) {
	var pcm []byte
	for i := range uint16(1000) {
		pcm = binary.LittleEndian.AppendUint16(pcm, i*7919)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "audio/pcm")
		if !bytes.Contains(b, []byte(`"stream":true`)) {
			_, _ = w.Write(pcm)
			return
		}
		_, _ = w.Write(pcm[:1000])
		w.(http.Flusher).Flush()
		_, _ = w.Write(pcm[1006:])
	}))
	t.Cleanup(s.Close)
	dir := filepath.Join(t.TempDir(), "run")
	var out bytes.Buffer
	args := []string{"-u", s.URL + "/v1/audio/speech", "--response-format", "pcm", "--pcm", "24000", "-n", "3", "--verify-audio", "2", "--max-lag", "0",
		"--slo", "rtf=1000,ttfa=1m", "--id-prefix", "t", "-o", dir}
	if err := runLoad(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"audio against the complete output", "3 samples lost", "TTFA from send", "goodput (rtf=1000,ttfa=1m0s, from send)  met 3, missed 0", "WORDS"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	r, err := run.Open(dir, run.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	checks := map[string]int{}
	err = r.Qualities(func(q *run.Quality) error {
		checks[q.Check+" "+q.Status]++
		if q.Check == "audio-complete" && *q.Lost != 3 {
			t.Errorf("%s: %d lost, want 3", q.RequestID, *q.Lost)
		}
		return nil
	})
	if err != nil || checks["audio-stream ok"] != 3 || checks["audio-complete failed"] != 2 || len(checks) != 2 {
		t.Errorf("error %v, checks %v", err, checks)
	}
}

func TestLoadNotApplicable(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"The model does not support Speech API"}}`)
	}))
	t.Cleanup(s.Close)
	var out bytes.Buffer
	if err := runLoad(t.Context(), []string{"-u", s.URL + "/v1/audio/speech", "-n", "2", "--json", "--max-lag", "0"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var sum loadgen.Summary
	if err := json.Unmarshal(out.Bytes(), &sum); err != nil || sum.NotApplicable != 2 || sum.FirstError != "" || sum.JCTFromSend != nil {
		t.Errorf("error %v, summary %s", err, out.String())
	}
}

// A load whose replies are all given up as planned did what it was asked for.
func TestLoadThatGivesUpAsPlanned(t *testing.T) {
	var out bytes.Buffer
	if err := runLoad(t.Context(), []string{"-u", chatServer(t), "-n", "2", "--cancel", "sent", "--max-lag", "0"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "client-cancelled  2") {
		t.Errorf("summary\n%s", out.String())
	}
}

func TestClientFlagsRefuse(t *testing.T) {
	for _, tc := range []struct{ flag, value, want string }{
		{"--pause", "events=3", "for=DURATION"},
		{"--cancel", "later", "want sent"},
		{"--cancel", "share=0.5", "no stage"},
		{"--slo", "ttft", "invalid duration"},
		{"--slo", "speed=1s", "want ttft"},
		{"--slo", "ttft=-5ms", "above 0"},
		{"--slo", "rtf=NaN", "from 0"},
		{"--slo-from", "moon", "want plan or send"},
		{"--pcm", "24k", "whole numbers"},
		{"--http", "3", "want 1.1 or 2"},
		{"--method", "HEAD", "no reply to measure"},
		{"--lacks", "smell", "modality"},
		{"--image", "/nonexistent", "read media"},
		{"--reply", "x", "want one of"},
		{"--reply-framing", "x", "want sse"},
	} {
		err := runLoad(t.Context(), []string{"-u", "http://127.0.0.1:1", "-n", "1", tc.flag, tc.value}, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) || exitCode(err) != exitUsage {
			t.Errorf("%s %s: %v", tc.flag, tc.value, err)
		}
	}
}

func TestProgressLine(t *testing.T) {
	var p progress
	for _, state := range []string{run.StateSuccess, run.StateSuccess, run.StateRejected, run.StateClientCancelled} {
		p.add(&run.Request{State: state})
	}
	p.add(&run.Request{State: run.StateRejected, Retried: true})
	if got, want := p.line(8, 2*time.Second), "2 s: 4 of 8 (50 %) done, 2 succeeded, 1 failed, 2.0/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
