package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/run"
)

// The least that recording needs: CAP_BPF and CAP_PERFMON; CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH
// for what /proc tells of other users' processes.
func TestLiveLeastPrivilege(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "stageline")
	copyFile(t, built(t, "stageline"), program)
	p := startPuppet(t, nil)
	p.do(t, `segment "stageline-test-%d"`, p.pid)
	defer os.Remove(fmt.Sprintf("/dev/shm/stageline-test-%d", p.pid))
	for i, c := range []struct {
		caps  []uintptr
		code  int
		says  string
		whole bool
	}{
		{nil, exitMissing, "CAP_BPF and CAP_PERFMON missing", false},
		{[]uintptr{unix.CAP_BPF}, exitMissing, "CAP_PERFMON missing", false},
		{[]uintptr{unix.CAP_PERFMON}, exitMissing, "CAP_BPF missing", false},
		{[]uintptr{unix.CAP_BPF, unix.CAP_PERFMON}, exitOK, "may not be read", false},
		{[]uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE}, exitOK, "may not be read", false},
		{[]uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH}, exitOK, "", true},
	} {
		out := filepath.Join(dir, fmt.Sprint("run", i))
		cmd := asNobody(program, "record", "-p", fmt.Sprint(p.pid), "-d", "1ms", "-o", out)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: c.caps}
		o := finish(t, cmd)
		o.want(t, c.code, c.says)
		if c.code != exitOK {
			continue
		}
		rec := recordsOf(t, out)
		if rec.noted("details-unreadable") == c.whole {
			t.Errorf("with %v: notes %+v", c.caps, rec.notes)
		}
		seen := false
		for _, s := range rec.shm {
			seen = seen || s.Op == run.ShmSeen
		}
		if c.whole && !seen {
			t.Errorf("with %v the mapped segment is not in the run", c.caps)
		}
	}
}

// Names that a hostile process gives itself and its segments reach no terminal as they are, lead to
// no path, and secrets among its arguments reach no disk.
func TestLiveHostileNames(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	out := filepath.Join(dir, "run")
	const secret = "hf_Rk3v9QmZtY7LwXbNcD2s"
	p := startPuppet(t, nil, "--api-key", secret, "--url=http://user:"+secret+"@host/", "\x1b[31m\u202ered\n../../etc")
	p.do(t, "name \x1b[2J\a")
	segment := fmt.Sprintf("stageline-%d\x1b[31m\n..\\u202e", p.pid)
	p.do(t, "segment %q", segment)
	defer os.Remove("/dev/shm/" + segment)
	r := startRecord(t, "-p", fmt.Sprint(p.pid), "-o", out)
	p.do(t, "talk 3")
	syscall.Kill(p.pid, syscall.SIGKILL)
	shown := r.wait(t)
	shown.want(t, exitOK, "was killed by signal 9")
	text := shown.stdout + shown.stderr
	live := startPuppet(t, nil, "--token", secret, "\x1b[31mred")
	live.do(t, "name \x1b[2J")
	for _, args := range [][]string{{"report", "--detail", "--accept-inconclusive", out}, {"ps", fmt.Sprint(live.pid)}, {"ps", "--json", fmt.Sprint(live.pid)}, {"dump", out}, {"report", "--json", "--accept-inconclusive", out}} {
		o := stageline(t, args...)
		o.want(t, exitOK)
		text += o.stdout + o.stderr
	}
	for _, bad := range []string{"\x1b", "\a", secret} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is shown to the terminal", bad)
		}
	}
	filepath.WalkDir(out, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(b), secret) {
			t.Errorf("%s: %v; or it holds the secret", path, err)
		}
		return nil
	})
}

func init() { liveRoles["forbidden"] = beForbidden }

// beForbidden runs a command as a container may: with every capability, and a filter that refuses the
// call that loads programs.
func beForbidden() {
	runtime.LockOSThread()
	call := uint32(unix.SYS_BPF)
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	}
	if err == nil {
		err = syscall.Exec(os.Args[1], os.Args[1:], nil)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(exitError)
}

// Root of a container that may not load programs is told why, and what to do.
func TestLiveContainerWithoutRights(t *testing.T) {
	needLive(t)
	forbidden := func(args ...string) outcome {
		cmd := exec.Command(os.Args[0], append([]string{built(t, "stageline")}, args...)...)
		cmd.Env = append(os.Environ(), liveRole+"=forbidden")
		return finish(t, cmd)
	}
	out := filepath.Join(workDir(t), "run")
	forbidden("record", "-p", fmt.Sprint(startSleeper(t, 0)), "-o", out).want(t, exitMissing, "no permission to load eBPF programs although the capabilities are there", "--privileged --pid=host")
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("a run was left: %v", err)
	}
	o := forbidden("doctor")
	o.want(t, exitMissing)
	if !strings.Contains(o.stdout, "MISSING  permission") || !strings.Contains(o.stdout, "--privileged") {
		t.Errorf("doctor says %s", o.stdout)
	}
}
