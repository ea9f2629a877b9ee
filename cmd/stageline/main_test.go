package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/diagnose"
	"github.com/stageline/stageline/export"
)

func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, notes bytes.Buffer
	code = dispatch(context.Background(), args, &out, &notes)
	return code, out.String(), notes.String()
}

// emptyRun is a closed, unsealed run without a record.
func emptyRun(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w, err := run.Create(dir, run.Metadata{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	notARun := filepath.Join(dir, "file.json")
	if err := os.WriteFile(notARun, []byte(`{"schema":"other/9"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		code   int
		stdout string // must be part of it; "" means that stdout is empty
		stderr string
	}{
		{nil, 2, "", "usage: stageline COMMAND"},
		{[]string{"frobnicate"}, 2, "", `no subcommand "frobnicate"`},
		{[]string{"help"}, 0, "exit codes: 0 done", ""},
		{[]string{"--help"}, 0, "accuracy  compare", ""},
		{[]string{"--version"}, 0, "run schema " + run.SchemaVersion, ""},
		{[]string{"-v"}, 0, "run schema", ""},
		{[]string{"help", "report"}, 0, "--max-loss", ""},
		{[]string{"report", "--help"}, 0, "usage: stageline report RUN", ""},
		{[]string{"report"}, 2, "", "0 arguments given, wanted RUN"},
		{[]string{"report", "--frob", "x"}, 2, "", "unknown flag: --frob"},
		{[]string{"report", filepath.Join(dir, "absent")}, 1, "", "no such file or directory"},
		{[]string{"record", "-p", "1", "-o", dir, "--ring-bytes", "5000"}, 2, "", "want a power of two"},
		{[]string{"record", "-p", "1", "-o", dir, "-d", "-5s"}, 2, "", "--duration -5s: want more than 0"},
		{[]string{"profile", "-p", "1", "-o", dir, "-u", "http://127.0.0.1:1", "--stage", "nonsense"}, 2, "", "want NAME=PATTERN"},
		{[]string{"demo", "-o", dir, "--stage", "nonsense"}, 2, "", "want NAME=PATTERN"},
		{[]string{"seal", dir}, 1, "", "not a recorded run"},
		{[]string{"accuracy", notARun}, 2, "", "use --truth FILE"},
		{[]string{"accuracy", notARun, "--truth", notARun}, 1, "", `schema "other/9"`},
		{[]string{"demo"}, 2, "", "use -o DIR"},
		{[]string{"demo", "-o", dir, "--engine-impl", "rust"}, 2, "", "want c or python"},
		{[]string{"demo", "-o", dir, "-n", "0"}, 2, "", "want at least 1"},
		{[]string{"demo", "-o", filepath.Join(dir, "d"), "--refpipe", filepath.Join(dir, "absent")}, 1, "", "start the reference pipeline"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			code, out, notes := call(t, c.args...)
			if code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			if c.stdout == "" && out != "" || !strings.Contains(strings.ToLower(out), strings.ToLower(c.stdout)) {
				t.Errorf("stdout %q, want %q", out, c.stdout)
			}
			if c.stderr == "" && notes != "" || !strings.Contains(notes, c.stderr) {
				t.Errorf("stderr %q, want %q", notes, c.stderr)
			}
		})
	}
}

func TestExitCodeOfErrors(t *testing.T) {
	plain := errors.New("x")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {plain, 1}, {usagef("x"), 2},
		{fmt.Errorf("outer: %w", withExit(exitMissing, plain)), 3},
		{errors.Join(plain, withExit(exitLost, plain)), 4},
		{withExit(exitInconclusive, nil), 0},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit %d, want %d", c.err, got, c.want)
		}
	}
}

func TestReportJudge(t *testing.T) {
	report := func(lost uint64, severity, kind string) *export.Report {
		return &export.Report{
			Result:  &correlate.Result{Counts: correlate.Counts{Records: 10_000 - lost}, Loss: []correlate.LossEntry{{N: lost, Severity: severity}}},
			Verdict: diagnose.Verdict{Kind: kind},
		}
	}
	gap := report(500, "data-loss", diagnose.KindStage)
	gap.Result.Loss[0].What = "stream"
	for _, c := range []struct {
		name     string
		r        *export.Report
		accepted bool
		want     int
	}{
		{"fine", report(0, "data-loss", diagnose.KindStage), false, 0},
		{"just allowed", report(10, "data-loss", diagnose.KindStage), false, 0},
		{"lost", report(11, "data-loss", diagnose.KindStage), false, 4},
		{"lost and inconclusive", report(11, "data-loss", diagnose.KindInconclusive), false, 4},
		{"nothing lost, only noted", report(5000, "info", diagnose.KindStage), false, 0},
		{"inconclusive", report(0, "data-loss", diagnose.KindInconclusive), false, 5},
		{"inconclusive accepted", report(0, "data-loss", diagnose.KindInconclusive), true, 0},
		{"lost, inconclusive accepted", report(11, "data-loss", diagnose.KindInconclusive), true, 4},
		{"a gap in a stream is no record", gap, false, 0},
	} {
		f := reportFlags{maxLoss: 0.001, inconclusive: c.accepted}
		if got := exitCode(f.judge(c.r)); got != c.want {
			t.Errorf("%s: exit %d, want %d", c.name, got, c.want)
		}
	}
}

func TestReportOfEmptyRunIsInconclusive(t *testing.T) {
	dir := emptyRun(t)
	code, out, notes := call(t, "report", dir, "--json")
	if code != exitInconclusive || !strings.HasPrefix(out, "{\n\"schema\": \""+export.JSONSchema) || !strings.Contains(notes, "inconclusive") {
		t.Fatalf("exit %d\n%s\n%s", code, out, notes)
	}
	file := filepath.Join(t.TempDir(), "report.txt")
	code, out, _ = call(t, "report", dir, "--accept-inconclusive", "-o", file)
	b, err := os.ReadFile(file)
	if code != 0 || out != "" || err != nil || !bytes.Contains(b, []byte("VERDICT  inconclusive")) {
		t.Fatalf("exit %d, stdout %q, file %q, %v", code, out, b, err)
	}
	if all, err := os.ReadDir(filepath.Dir(file)); err != nil || len(all) != 1 {
		t.Fatalf("left behind beside the result: %v, %v", all, err)
	}
}

func TestSealTwice(t *testing.T) {
	dir := emptyRun(t)
	code, out, notes := call(t, "seal", dir)
	if code != 0 || !strings.Contains(out, "ended by itself") {
		t.Fatalf("exit %d: %s%s", code, out, notes)
	}
	if code, _, notes = call(t, "seal", dir); code != 1 || !strings.Contains(notes, "cannot be changed") {
		t.Fatalf("second seal: exit %d: %s", code, notes)
	}
	if code, out, notes = call(t, "report", dir, "--accept-inconclusive"); code != 0 || strings.Contains(out, "unsealed") {
		t.Fatalf("report of a sealed run: exit %d: %s%s", code, out, notes)
	}
}

// A result never takes the place of something that is no file, and leaves nothing behind when it
// cannot take its own.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	put := func(w io.Writer) error {
		_, err := io.WriteString(w, "result")
		return err
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := writeFile(fifo, nil, put); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if n, err := r.Read(b); err != nil || string(b[:n]) != "result" {
		t.Errorf("the pipe got %q, %v", b[:n], err)
	}
	if st, err := os.Lstat(fifo); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe was replaced: %v, %v", st, err)
	}
	if err := writeFile(dir, nil, put); err == nil {
		t.Error("a result was written over a directory")
	}
	if left, _ := filepath.Glob(dir + "*.partial"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Where others may write, links that they put at the names of a result lead nowhere: the result takes
// the place of the link.
func TestWriteFileFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	other, result := filepath.Join(dir, "other"), filepath.Join(dir, "report.json")
	if err := os.WriteFile(other, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{result, result + ".partial"} {
		if err := os.Symlink(other, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeFile(result, nil, func(w io.Writer) error {
		_, err := io.WriteString(w, "result")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	kept, _ := os.ReadFile(other)
	got, _ := os.ReadFile(result)
	st, err := os.Lstat(result)
	if string(kept) != "kept" || string(got) != "result" || err != nil || st.Mode() != 0o600 {
		t.Errorf("behind the links %q, the result %q of mode %v: %v", kept, got, st.Mode(), err)
	}
}
