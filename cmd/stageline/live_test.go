package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests in live_*_test.go run the built programs as root on the running kernel: the product
// against the reference pipeline, real libzmq, and small engines of their own.

// liveLimit is how long any one command of these tests may take.
const liveLimit = time.Minute

func TestMain(m *testing.M) {
	if role := os.Getenv(liveRole); role != "" {
		liveRoles[role]()
		return
	}
	// Under nohup, or in the background of a script, these are ignored, and children would inherit that:
	// what they do on them is tested.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}

// startPiped starts a command of which the test holds both ends.
func startPiped(t *testing.T, cmd *exec.Cmd) (in io.WriteCloser, out io.ReadCloser) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, out
}

// needLive skips without root, and fails when the programs are not built.
func needLive(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("loads a pipeline for seconds; left out of -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: records processes on the running kernel")
	}
	for _, name := range []string{"stageline", "refpipe", "refpipe-stage"} {
		if _, err := os.Stat(built(t, name)); err != nil {
			t.Fatalf("%v: run make build first", err)
		}
	}
}

// built is the path of a program that make build leaves.
func built(t *testing.T, name string) string {
	t.Helper()
	p, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// venvPython is the interpreter with pyzmq, and the environment that points refpipe to it.
func venvPython(t *testing.T) (python string, env []string) {
	t.Helper()
	python = os.Getenv("REFPIPE_PYTHON")
	if python == "" {
		var err error
		if python, err = filepath.Abs(filepath.Join("..", "..", ".tools", "venv", "bin", "python")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("%v: run make venv first", err)
	}
	return python, append(os.Environ(), "REFPIPE_PYTHON="+python)
}

// workDir is a directory that stays for inspection when the test fails.
func workDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "stageline-live-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was recorded is kept in %s", dir)
			return
		}
		os.RemoveAll(dir)
	})
	return dir
}

// outcome of one command.
type outcome struct {
	code           int
	stdout, stderr string
}

// want fails the test unless the command ended with code and said all of the texts on stderr.
func (o outcome) want(t *testing.T, code int, says ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("exit %d, want %d; stderr: %s", o.code, code, o.stderr)
	}
	for _, s := range says {
		if !strings.Contains(o.stderr, s) {
			t.Errorf("stderr %q does not say %q", o.stderr, s)
		}
	}
	if code != exitOK && strings.Count(strings.TrimSpace(o.stderr), "\n") > 3 {
		t.Errorf("stderr is no clear line: %s", o.stderr)
	}
}

// stageline runs the built program to its end.
func stageline(t *testing.T, args ...string) outcome {
	t.Helper()
	return finish(t, exec.Command(built(t, "stageline"), args...))
}

// finish runs a command to its end, or kills it at liveLimit and fails.
func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(liveLimit, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !timer.Stop() {
		t.Fatalf("%v did not end within %v; stderr: %s", cmd.Args, liveLimit, notes.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), notes.String()}
}

// liveEngine is a reference pipeline started by the test.
type liveEngine struct {
	URL    string       `json:"url"`
	PIDs   []int        `json:"pids"`
	Stages []truthStage `json:"stages"`
	truth  string
	cmd    *exec.Cmd
	ended  bool
}

// startEngine starts refpipe. It ends with the test, or when this process does.
func startEngine(t *testing.T, dir string, env []string, args ...string) *liveEngine {
	t.Helper()
	e := &liveEngine{truth: filepath.Join(dir, "truth.jsonl")}
	e.cmd = exec.Command(built(t, "refpipe"), append([]string{"--exit-on-eof", "--truth", e.truth}, args...)...)
	e.cmd.Env = env
	log, err := os.Create(filepath.Join(dir, "refpipe.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.cmd.Stderr = log
	if _, err := e.cmd.StdinPipe(); err != nil { // held open; its end is the engine's
		t.Fatal(err)
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.stop(t) })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, e)
	}
	if err != nil {
		t.Fatalf("the reference pipeline did not come up: %v", err)
	}
	return e
}

// stop ends the engine in order; its truth is then written.
func (e *liveEngine) stop(t *testing.T) {
	t.Helper()
	if e.ended {
		return
	}
	e.ended = true
	e.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(liveLimit, func() { e.cmd.Process.Kill() })
	defer timer.Stop()
	if err := e.cmd.Wait(); err != nil {
		t.Errorf("the reference pipeline ended with %v", err)
	}
}

func (e *liveEngine) pids() string { return pidList(e.PIDs...) }

// stage is one of the engine's, by name.
func (e *liveEngine) stage(t *testing.T, name string) truthStage {
	t.Helper()
	for _, s := range e.Stages {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("the pipeline has no stage %s: %v", name, e.Stages)
	return truthStage{}
}

// pidList writes PIDs as -p takes them.
func pidList(pids ...int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(pids), " ", ","), "[]")
}

// liveRecorder is a `stageline record` in progress.
type liveRecorder struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	notes  bytes.Buffer // complete once done
	done   chan error
}

// startRecord returns once the probes are on.
func startRecord(t *testing.T, args ...string) *liveRecorder {
	t.Helper()
	r := &liveRecorder{cmd: exec.Command(built(t, "stageline"), append([]string{"record"}, args...)...), done: make(chan error, 1)}
	r.cmd.Stdout = &r.stdout
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.cmd.Process.Kill() })
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		r.notes.WriteString(line)
		if err != nil {
			r.cmd.Wait()
			t.Fatalf("the recorder ended before it was attached: %s", r.notes.String())
		}
		if strings.Contains(line, "stageline: recording ") {
			break
		}
	}
	go func() {
		_, err := io.Copy(&r.notes, lines)
		r.done <- errors.Join(err, r.cmd.Wait())
	}()
	return r
}

// interrupt ends the recording as Ctrl-C does.
func (r *liveRecorder) interrupt(t *testing.T) outcome {
	t.Helper()
	r.cmd.Process.Signal(os.Interrupt)
	return r.wait(t)
}

// wait returns once the recorder has ended, by itself or by a signal.
func (r *liveRecorder) wait(t *testing.T) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), liveLimit)
	defer cancel()
	select {
	case <-r.done:
	case <-ctx.Done():
		r.cmd.Process.Kill()
		<-r.done
		t.Fatalf("the recorder did not end within %v", liveLimit)
	}
	return outcome{r.cmd.ProcessState.ExitCode(), r.stdout.String(), r.notes.String()}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lineReader waits for lines of a process.
type lineReader struct{ lines chan string }

func followLines(r io.Reader) *lineReader {
	l := &lineReader{make(chan string, 64)}
	go func() {
		for sc := bufio.NewScanner(r); sc.Scan(); {
			l.lines <- sc.Text()
		}
		close(l.lines)
	}()
	return l
}

func (l *lineReader) next(t *testing.T) string {
	t.Helper()
	select {
	case s, ok := <-l.lines:
		if !ok {
			t.Fatal("the process ended without the line that was waited for")
		}
		return s
	case <-time.After(liveLimit):
		t.Fatalf("no line within %v", liveLimit)
	}
	return ""
}
