package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/loadgen"
)

// chatServer answers with two tokens, and with 503 to ids that end in 3.
func chatServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.Header.Get("X-Request-Id"), "3") {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, s := range []string{"a", "b"} {
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", s)
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestLoadWritesRequests(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	prompts := filepath.Join(t.TempDir(), "prompts")
	if err := os.WriteFile(prompts, []byte("canary-prompt-text\n\nsecond\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, notes bytes.Buffer
	args := []string{"-u", chatServer(t), "--rate", "500", "-n", "10", "--warmup", "2", "--id-prefix", "t", "--prompts", prompts, "-o", dir, "--json", "--max-lag", "0"}
	if err := runLoad(t.Context(), args, &out, &notes); err != nil {
		t.Fatal(err)
	}
	var sum loadgen.Summary
	if err := json.Unmarshal(out.Bytes(), &sum); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if sum.Planned != 10 || sum.Success != 9 || notes.Len() != 0 {
		t.Errorf("summary %s, notes %q", out.String(), notes.String())
	}
	for _, name := range []string{"requests.jsonl", "metadata.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || bytes.Contains(b, []byte("canary")) {
			t.Errorf("%s: error %v, or it holds a prompt", name, err)
		}
	}
	r, err := run.Open(dir, run.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Meta.Sealed == nil || r.Meta.Options["load_schedule_sha256"] != sum.ScheduleHash {
		t.Errorf("metadata %+v", r.Meta)
	}
	ids := map[string]string{}
	err = r.Requests(func(q *run.Request) error {
		ids[q.ID] = q.State
		if q.RunID != r.Meta.RunID {
			t.Errorf("%s is of run %q, not %q", q.ID, q.RunID, r.Meta.RunID)
		}
		return nil
	})
	if err != nil || len(ids) != 12 || ids["t-000003"] != run.StateRejected || ids["t-000012"] != run.StateSuccess {
		t.Errorf("states by id %v", ids)
	}
	err = runLoad(t.Context(), args, &out, &notes)
	if err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second load into the same directory: %v", err)
	}
}

func TestLoadText(t *testing.T) {
	var out bytes.Buffer
	err := runLoad(t.Context(), []string{"-u", chatServer(t), "-c", "2", "-n", "3", "--id-prefix", "t", "--max-lag", "0"}, &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"planned 3, sent 3, success 2", "admission-rejected  1", "HTTP 503: busy", "TTFT from send"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, tc := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{[]string{"-n", "1"}, "no URL", true},
		{[]string{"-u", "http://127.0.0.1:1"}, "number of requests or a duration", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "x"}, "invalid argument", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "1", "extra"}, "1 arguments given", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "1", "--prompts", "/nonexistent"}, "read prompts", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2"}, "none of 2 requests", false},
		{[]string{"-u", "http://u:secret@127.0.0.1:1", "-n", "2"}, "give a header", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--json", "--csv"}, "not both", true},
		{[]string{"-u", "http://127.0.0.1:1", "--certify"}, "leave out --url", true},
		{[]string{"--certify", "--plan-only"}, "leave out --plan-only", true},
		{[]string{"--certify", "--certify-tokens", "0"}, "at least one token", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--certify-ttft", "1ms"}, "goes with --certify", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--plan-only", "--json"}, "sends nothing", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--repeat", "--rate", "5"}, "nothing to repeat", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--arrival", "gamma"}, "give a rate", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--turn-gap", "1s"}, "give a number of turns", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--turns", "0"}, "want at least 1", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--replay-speed", "2"}, "give the trace", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--replay-speed", "0"}, "above 0", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--playable-samples", "0"}, "at least 1", true},
		{[]string{"-u", "http://127.0.0.1:1", "-n", "2", "--playable-samples", "-1"}, "at least 1", true},
		{[]string{"--certify", "-c", "1", "-n", "10000000"}, "kept in memory", true},
	} {
		err := runLoad(t.Context(), tc.args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) || (exitCode(err) == exitUsage) != tc.usage {
			t.Errorf("%v: error %v", tc.args, err)
		}
	}
}
