package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// canaryWord is looked for whole and in pieces of canaryPiece bytes. It has the shape of an id, so
// that only where it stands can tell that it is none.
const (
	canaryWord  = "Zq7-kestrel-41f9c0d2-8be6-4a17-9c35-d06e52b7fa18"
	canaryPiece = 10
)

// canaryBody holds the canary everywhere but in the id: before it, beside it and after it, as text
// among other text and alone, under keys that are often ids elsewhere.
func canaryBody(padding int) string {
	return fmt.Sprintf(`{"user":%[1]q,"request_id":"{{id}}","model":"m","stream":true,"max_tokens":9,"prompt_cache_key":%[1]q,`+
		`"metadata":{"trace":%[1]q,"note":"of %[1]s too"},"safety_identifier":%[1]q,`+
		`"messages":[{"role":"system","name":%[1]q,"content":"You are %[1]s."},{"role":"user","content":"%[2]s say %[1]s twice: %[1]s"}],`+
		`"stop":[%[1]q],"extra":%[1]q}`, canaryWord, strings.Repeat("word "+canaryWord+" ", padding/(len(canaryWord)+6)))
}

// canaryLoad profiles one load whose every private place holds the canary, and looks for it. Without
// a body only headers and the URL's query hold it. No success at all is wanted of an engine that
// refuses everything.
func canaryLoad(t *testing.T, dir, url, pids, body string, n, success int) {
	t.Helper()
	runDir, report := filepath.Join(dir, "run"), filepath.Join(dir, "report.json")
	args := []string{"profile", "-u", url + "?key=" + canaryWord, "-p", pids, "-c", "4", "-n", fmt.Sprint(n),
		"-H", "Authorization: Bearer " + canaryWord, "-H", "Cookie: session=" + canaryWord, "-H", "X-Tenant: " + canaryWord, "-o", runDir}
	if body != "" {
		template := filepath.Join(dir, "body.json")
		if err := os.WriteFile(template, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--body-template", template)
	}
	code := exitOK
	if success == 0 {
		code = exitError
	}
	o := stageline(t, args...)
	o.want(t, code, fmt.Sprintf("%d of %d requests succeeded", success, n))
	noCanary(t, "output of profile", []byte(o.stdout+o.stderr))
	stageline(t, "report", runDir, "--json", "--accept-inconclusive", "-o", report).want(t, exitOK)
	text := stageline(t, "report", runDir, "--accept-inconclusive")
	text.want(t, exitOK)
	noCanary(t, "report", []byte(text.stdout))
	noCanary(t, "dump", []byte(stageline(t, "dump", runDir).stdout))
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	noCanary(t, "report.json", b)
	files := 0
	err = filepath.WalkDir(runDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		noCanary(t, path, b)
		return err
	})
	if err != nil || files < 4 {
		t.Fatalf("%d files looked at, %v", files, err)
	}
	// The tables of the run are compressed: their text is looked at as it is read.
	noCanary(t, "the records", []byte(stageline(t, "dump", runDir).stdout))
	d := recordsOf(t, runDir)
	if len(d.messages) < n {
		t.Fatalf("the run has %d messages for %d requests: the test does not test", len(d.messages), n)
	}
}

// noCanary fails when any piece of the canary is in b.
func noCanary(t *testing.T, where string, b []byte) {
	t.Helper()
	for i := 0; i+canaryPiece <= len(canaryWord); i++ {
		if at := bytes.Index(b, []byte(canaryWord[i:i+canaryPiece])); at >= 0 {
			t.Errorf("%s holds part of the prompt: …%q…", where, b[max(0, at-80):min(len(b), at+40)])
			return
		}
	}
}

func TestLiveCanary(t *testing.T) {
	needLive(t)
	for _, c := range []struct {
		name    string
		padding int
		args    []string
		python  bool
	}{
		{"short", 0, []string{"--seed", "1"}, false},
		{"300-kB", 300 << 10, []string{"--seed", "4"}, false}, // msgpack arrays, segments named in frames
		{"wrapped-ids", 3000, []string{"--seed", "3"}, false},
		{"python", 3000, []string{"--seed", "1", "--impl", "python"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var env []string
			if c.python {
				_, env = venvPython(t)
			}
			dir := workDir(t)
			e := startEngine(t, dir, env, c.args...)
			canaryLoad(t, dir, e.URL+"/v1/chat/completions", e.pids(), canaryBody(c.padding), 8, 8)
		})
	}
}

// The engine quotes the request in its errors: what it said is not kept either.
func TestLiveCanaryInErrors(t *testing.T) {
	needLive(t)
	for _, kind := range []string{"openai", "detail", "plain", "chat/completions", "stream"} {
		t.Run(kind, func(t *testing.T) {
			dir := workDir(t)
			url, pid, _ := startRole(t, "quoting")
			body := canaryBody(100)
			if kind == "chat/completions" {
				body = ""
			}
			canaryLoad(t, dir, url+"/v1/"+kind, fmt.Sprint(pid), body, 5, 0)
		})
	}
}

// startRole starts a copy of this program in a role of its own and returns the first line it prints
// and what reads the others. It ends with the test.
func startRole(t *testing.T, role string) (line string, pid int, more *lineReader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), liveRole+"="+role)
	cmd.Stderr = os.Stderr
	in, out := startPiped(t, cmd)
	more = followLines(out)
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return more.next(t), cmd.Process.Pid, more
}
