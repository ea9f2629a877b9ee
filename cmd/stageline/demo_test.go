package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script writes an executable that stands in for the reference pipeline.
func script(t *testing.T, body string) *demoOptions {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "pipe")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return &demoOptions{dir: dir, refpipe: path, impl: "c", seed: 7, slow: []string{"stage=x"}}
}

func TestPipelineWritesTruthWhenStopped(t *testing.T) {
	o := script(t, `
while [ $# -gt 0 ]; do [ "$1" = -truth ] && truth=$2; all="$all $1"; shift; done
trap 'echo "$all" > "$truth"; exit 0' TERM
echo '{"url":"http://127.0.0.1:1","pids":[11,12],"stages":{"ignored":[1]}}'
while :; do read -r x || sleep 0.01; done </dev/null
`)
	truthPath := filepath.Join(o.dir, "truth")
	p, err := startPipeline(context.Background(), o, truthPath)
	if err != nil {
		t.Fatal(err)
	}
	if p.ready.URL != "http://127.0.0.1:1" || len(p.ready.PIDs) != 2 {
		t.Errorf("ready %+v", p.ready)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(truthPath)
	if err != nil || !strings.Contains(string(b), "-seed 7 -impl c -dir "+p.work+" -truth "+truthPath+" -exit-on-eof -slow stage=x:5") {
		t.Fatalf("truth %q, %v", b, err)
	}
	if _, err := os.Stat(p.work); !os.IsNotExist(err) {
		t.Fatalf("working directory left behind: %v", err)
	}
}

func TestPipelineThatFailsIsReported(t *testing.T) {
	for _, c := range []struct{ name, body, says string }{
		{"ends early", "echo first >&2; echo no memory >&2; exit 3\n", "before it was ready: no memory"},
		{"ends early and silent", "exit 3\n", "refpipe.log"},
		{"refuses", "echo no stage x >&2; exit 2\n", "refused: no stage x"},
		{"bad line", "echo '{\"pids\":[]}'; exec sleep 60\n", "lacks url or pids"},
		{"bad end", "trap 'exit 9' TERM; echo '{\"url\":\"u\",\"pids\":[1]}'\nwhile :; do read -r x || sleep 0.01; done </dev/null\n", "exit status 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := script(t, c.body)
			p, err := startPipeline(context.Background(), o, filepath.Join(o.dir, "truth"))
			if err == nil {
				err = p.stop()
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") && c.name != "bad line" {
				t.Fatalf("got %v, want %q", err, c.says)
			}
			if code := exitCode(err); (code == exitUsage) != (c.name == "refuses") {
				t.Fatalf("exit %d of %v", code, err)
			}
		})
	}
}

func TestDemoRefusesToOverwrite(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, _, notes := call(t, "demo", "-o", dir); code != exitUsage || !strings.Contains(notes, "already holds run") {
		t.Fatalf("exit %d: %s", code, notes)
	}
}

func TestDemoFlags(t *testing.T) {
	o, err := demoFlags([]string{"-o", "d", "-n", "7", "--concurrency", "3", "--seed", "5", "--debug-drop", "10", "--refpipe", "p"}, nil)
	if err != nil || o.load.N != 7 || o.load.Concurrency != 3 || o.load.Seed != 5 || o.maxLoss != 0.021 || !o.inconclusive {
		t.Fatalf("%+v, %v", o, err)
	}
	o, err = demoFlags([]string{"-o", "d", "--rate", "20", "--fail-inconclusive", "--max-loss", "0.5", "--debug-drop", "10", "--refpipe", "p"}, nil)
	if err != nil || o.load.Rate != 20 || o.load.Concurrency != 0 || o.maxLoss != 0.5 || o.inconclusive {
		t.Fatalf("%+v, %v", o, err)
	}
}
