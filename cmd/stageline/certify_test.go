package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/loadgen"
	"github.com/stageline/stageline/loadgen/mock"
)

// testServer is the mock server as a process of this test program.
func testServer(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), liveRole+"=mock")
	return cmd
}

func beMock() { beCommand(runMock) }

func beLoad() { beCommand(runLoad) }

func beCommand(f func(context.Context, []string, io.Writer, io.Writer) error) {
	err := f(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
	}
	os.Exit(exitCode(err))
}

// startMock returns the URL of a mock server that ends with the test.
func startMock(t *testing.T, args ...string) string {
	t.Helper()
	cmd := testServer(t.Context(), append([]string{"--until-eof"}, args...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // its context may have ended it before
	})
	b := make([]byte, 100)
	n, err := r.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b[:n]))
}

func TestCertify(t *testing.T) {
	for name, change := range map[string]func(*loadgen.Config){
		"closed loop": func(c *loadgen.Config) { c.Concurrency, c.N = 8, 24 },
		"open loop":   func(c *loadgen.Config) { c.Rate, c.N = 100, 40 },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "certificate.json")
			o := &loadOptions{output: file, asJSON: true, truth: &mock.Config{TTFT: 20 * time.Millisecond, ITL: 2 * time.Millisecond, Tokens: 7}}
			cfg := loadgen.Config{URL: "http://127.0.0.1:1", Stream: true, IDField: "request_id", Deadline: 20 * time.Second}
			change(&cfg)
			if err := o.runCertify(t.Context(), cfg, testServer, io.Discard); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c loadgen.Certificate
			if err := json.Unmarshal(b, &c); err != nil {
				t.Fatal(err)
			}
			if !c.Valid || c.Requests != cfg.N || c.Events != 7*cfg.N || c.TTFTError.N != cfg.N || c.EventGapError.N != 6*cfg.N || c.SendLag.N != cfg.N {
				t.Fatalf("certificate %s", b)
			}
			// A stamp cannot be from before the write. That it is close is the kernel's doing, however busy
			// this host is, as long as the server is not interrupted between its stamp and its write.
			if m := c.TTFTError; *m.Mean < 0 || *m.Mean > 5 {
				t.Errorf("stamp of the first token is wrong by %v ms", *m.Mean)
			}
			if c.KernelStamped == 0 {
				t.Error("no event was stamped by the kernel")
			}
			for _, key := range []string{`"streams"`, `"ttft_error_ms"`, `"itl_error_ms"`, `"send_lag_us"`, `"rate"`, `"valid"`, `"mean"`, `"p50"`, `"max"`, `"asked"`, `"achieved"`, `"sigma"`, `"p99"`} {
				if !bytes.Contains(b, []byte(key)) {
					t.Errorf("no %s in %s", key, b)
				}
			}
			certificateIsKept(t, file)
		})
	}
}

// certificateIsKept runs a load and looks for the certificate in its run.
func certificateIsKept(t *testing.T, file string) {
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"-u", chatServer(t), "-c", "1", "-n", "2", "--max-lag", "0", "-o", dir, "--certificate", file}
	if err := runLoad(t.Context(), args, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	r, err := run.Open(dir, run.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var c loadgen.Certificate
	if err := json.Unmarshal([]byte(r.Meta.Options["load_certificate"]), &c); err != nil || c.Version == "" || !c.SameHost() {
		t.Errorf("certificate %q in the run, %v", r.Meta.Options["load_certificate"], err)
	}
}

func TestCertificateRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c")
	for text, want := range map[string]string{
		"nonsense":                               "make one with",
		"{}":                                     "make one with",
		`{"certificate":"1","host":"elsewhere"}`: "of host elsewhere",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readCertificate(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

// The same list at the same times for two systems, through the command line.
func TestPlanOnlyAndReplay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.jsonl")
	args := []string{"-u", "http://127.0.0.1:1", "--rates", "100..900x100ms", "--class", "a=1,tenant=x", "--class", "b=2",
		"--turns", "1..3", "--turn-gap", "1ms..3ms", "--seed", "4", "--plan-only", "-o", file}
	if err := runLoad(t.Context(), args, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	hashes := map[string]bool{}
	for _, c := range []string{"1", "3"} {
		var out bytes.Buffer
		err := runLoad(t.Context(), []string{"-u", startMock(t, "--tokens", "2", "--ttft", "1ms", "--itl", "0"), "--replay", file, "-c", c, "--max-lag", "0", "--json"}, &out, io.Discard)
		var sum loadgen.Summary
		if errJSON := json.Unmarshal(out.Bytes(), &sum); err != nil || errJSON != nil || sum.Success != sum.Planned || sum.Planned < 20 {
			t.Fatalf("error %v, %v: %s", err, errJSON, out.String())
		}
		hashes[sum.ScheduleHash] = true
	}
	b, err := os.ReadFile(file)
	if err != nil || len(hashes) != 1 {
		t.Fatalf("hashes %v, %v", hashes, err)
	}
	for h := range hashes {
		if !bytes.Contains(b, []byte(h)) {
			t.Errorf("the plan was sent as %s, its first line is %.200s", h, b)
		}
	}
}

// A generator that is stopped for a while has lost its processor as it would to a busy host: the run
// ends as invalid, with the lag in its summary. The server stops it, so that it is stopped in the
// midst of its sending however slow this host is.
func TestStoppedGeneratorIsInvalid(t *testing.T) {
	var n atomic.Int64
	pid := make(chan int, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n.Add(1) == 20 {
			p := <-pid
			_ = syscall.Kill(p, syscall.SIGSTOP)
			<-time.After(250 * time.Millisecond) // of the experiment: the load takes a second
			_ = syscall.Kill(p, syscall.SIGCONT)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}`)
	}))
	defer s.Close()
	cmd := testServer(t.Context(), "-u", s.URL, "--stream=false", "--rate", "200", "--arrival", "constant", "-n", "200", "--max-lag", "20ms", "--json")
	cmd.Env[len(cmd.Env)-1] = liveRole + "=load"
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid <- cmd.Process.Pid
	_ = cmd.Wait() // its exit code is looked at
	var sum loadgen.Summary
	if err := json.Unmarshal(out.Bytes(), &sum); err != nil {
		t.Fatalf("%v: %s%s", err, out.String(), notes.String())
	}
	g := sum.Generator
	if cmd.ProcessState.ExitCode() != exitInconclusive || g.Valid || g.Lag.Max == nil || *g.Lag.Max < 20 || !strings.Contains(notes.String(), "the load is invalid") {
		t.Errorf("exit %d, generator %+v, notes %s", cmd.ProcessState.ExitCode(), g, notes.String())
	}
}
