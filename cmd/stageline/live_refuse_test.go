package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user without any privilege.
const nobody = 65534

// startSleeper starts a process that waits for the end of the test.
func startSleeper(t *testing.T, uid uint32) int {
	t.Helper()
	cmd := exec.Command("/bin/cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return cmd.Process.Pid
}

// freePID is one that named a process and does not any more.
func freePID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestLiveRecordRefuses(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	full := filepath.Join(dir, "full")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, "notes.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(full, "notes.txt")
	alive, gone := fmt.Sprint(startSleeper(t, 0)), fmt.Sprint(freePID(t))
	for _, c := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"no process", []string{"-p", gone, "-o", filepath.Join(dir, "a")}, exitError, []string{"no process has PID " + gone}},
		{"one of two", []string{"-p", alive, "-p", gone, "-o", filepath.Join(dir, "b")}, exitError, []string{"no process has PID " + gone}},
		{"no number", []string{"-p", "engine", "-o", filepath.Join(dir, "c")}, exitUsage, []string{`"engine" is not a PID`}},
		{"zero", []string{"-p", "0", "-o", filepath.Join(dir, "d")}, exitUsage, []string{`"0" is not a PID`}},
		{"nothing named", []string{"-o", filepath.Join(dir, "e")}, exitUsage, []string{"name the processes with -p"}},
		{"unknown engine", []string{"--match", "nothing", "-o", filepath.Join(dir, "h")}, exitUsage, []string{"no such engine", "ollama"}},
		{"PID and engine", []string{"--match", "ollama", "-p", alive, "-o", filepath.Join(dir, "i")}, exitUsage, []string{"not both"}},
		{"no output", []string{"-p", alive}, exitUsage, []string{"-o"}},
		{"directory not empty", []string{"-p", alive, "-o", full}, exitError, []string{full + " is not empty", "choose another directory"}},
		{"output is a file", []string{"-p", alive, "-o", file}, exitError, []string{file}},
		{"ring of a strange size", []string{"-p", alive, "--ring-bytes", "5000", "-o", filepath.Join(dir, "f")}, exitUsage, []string{"5000", "power of two"}},
		{"no such command", []string{"-o", filepath.Join(dir, "g"), "--", "/no/such/command"}, exitError, []string{"/no/such/command"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := stageline(t, append([]string{"record"}, c.args...)...)
			o.want(t, c.code, c.says...)
			if o.stdout != "" {
				t.Errorf("stdout %q, want nothing", o.stdout)
			}
		})
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("refused recordings left %v, %v; want nothing beside what was there", left, err)
	}
	if b, err := os.ReadFile(file); string(b) != "mine" {
		t.Errorf("what was there is now %q, %v", b, err)
	}
}

// Without root: one line that says what to do, and exit code 3.
func TestLiveRecordWithoutRoot(t *testing.T) {
	needLive(t)
	// Outside of directories that only root may enter.
	dir := workDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "stageline")
	copyFile(t, built(t, "stageline"), program)
	for _, owner := range []uint32{0, nobody} {
		for _, command := range []string{"record", "profile"} {
			args := []string{command, "-p", fmt.Sprint(startSleeper(t, owner)), "-o", filepath.Join(dir, "run")}
			if command == "profile" {
				args = append(args, "-u", "http://127.0.0.1:1", "-n", "1", "-c", "1")
			}
			finish(t, asNobody(program, args...)).want(t, exitMissing, "no permission to load eBPF programs", "run with sudo")
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "run")); !os.IsNotExist(err) {
		t.Errorf("a run was left: %v", err)
	}
	o := finish(t, asNobody(program, "doctor"))
	if o.code != exitMissing || !strings.Contains(o.stdout, "MISSING") || !strings.Contains(o.stdout, "sudo") {
		t.Errorf("doctor exits with %d and says %s", o.code, o.stdout)
	}
}

func asNobody(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = "/"
	return cmd
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A second recorder on one process is turned away and does not disturb the first.
func TestLiveSecondRecorder(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	const n = 16
	e := startEngine(t, dir, nil, "--seed", "4")
	first := filepath.Join(dir, "run")
	r := startRecord(t, "-p", e.pids(), "-o", first)
	l := &chatLoad{url: e.URL, n: n, id: func(i int) string { return fmt.Sprintf("two-%06d", i) }}
	l.start(t.Context(), 4)
	l.await(t, 2)
	holder := fmt.Sprintf("PID %d", r.cmd.Process.Pid)
	stageline(t, "record", "-p", fmt.Sprint(e.PIDs[2]), "-o", filepath.Join(dir, "second")).
		want(t, exitError, fmt.Sprintf("process %d is already being recorded", e.PIDs[2]), holder)
	stageline(t, "record", "-p", fmt.Sprint(startSleeper(t, 0)), "-o", first).want(t, exitError, "recorder is still writing it")
	stageline(t, "seal", first).want(t, exitError, "stop that recorder first")
	// One of another process may run beside it.
	other := startRecord(t, "-p", fmt.Sprint(startSleeper(t, 0)), "-o", filepath.Join(dir, "other"))
	other.interrupt(t).want(t, exitOK)
	l.finish(t)
	r.interrupt(t).want(t, exitOK)
	e.stop(t)
	if _, err := os.Stat(filepath.Join(dir, "second")); !os.IsNotExist(err) {
		t.Errorf("the refused recorder left a run: %v", err)
	}
	tr := loadTruth(t, e.truth)
	a, _ := compareSome(loadDocument(t, first), tr, allOf(tr))
	wantAllRight(t, a, n)
}

// record -- COMMAND sees the command from its first instruction on, and ends with it.
func TestLiveRecordCommand(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	cmd := exec.Command(built(t, "stageline"), "record", "-o", dir, "--", "/bin/sh", "-c", "/bin/echo one | /bin/cat; exit 7")
	o := finish(t, cmd)
	o.want(t, exitOK, "all recorded processes have exited")
	if line, _ := bufio.NewReader(strings.NewReader(o.stdout)).ReadString('\n'); line != "one\n" {
		t.Errorf("the command's output is %q", line)
	}
	execs := 0
	for _, p := range recordsOf(t, dir).procs {
		if strings.HasPrefix(filepath.Base(p.Exe), "echo") || p.Comm == "echo" || p.Comm == "cat" {
			execs++
		}
	}
	if execs < 2 {
		t.Errorf("%d records of echo and cat, want at least one of each", execs)
	}
}
