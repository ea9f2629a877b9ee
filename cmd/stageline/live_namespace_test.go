package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// boxed starts a puppet in namespaces of its own, with its own /proc and /dev/shm; with a root, in
// that directory.
func boxed(t *testing.T, root string) *puppet {
	t.Helper()
	script := `mount -t tmpfs none /dev/shm && mount -t proc none /proc && ip link set lo up && exec "$0"`
	args := []string{"-c", script, os.Args[0]}
	if root != "" {
		script = `mount --rbind / "$1" && mount -t tmpfs none "$1/dev/shm" && mount -t proc none "$1/proc" && ip link set lo up && exec chroot "$1" "$0"`
		args = []string{"-c", script, os.Args[0], root}
	}
	return startPuppetBy(t, exec.Command("/bin/sh", args...), &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS})
}

// Two containers with the same PIDs inside, the same names of segments and the same addresses and
// ports are told apart, by the PIDs that the host sees.
func TestLiveContainers(t *testing.T) {
	needLive(t)
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip, to bring up the loopback device of a network namespace")
	}
	dir := workDir(t)
	out, root := filepath.Join(dir, "run"), filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	boxes := []*puppet{boxed(t, ""), boxed(t, root)}
	for _, p := range boxes {
		p.do(t, `segment "before"`)
	}
	r := startRecord(t, "-p", pidList(boxes[0].pid, boxes[1].pid), "-o", out)
	for i, p := range boxes {
		p.do(t, "tcp 127.0.0.1 7001 7002 %d", 11+2*i)
		p.do(t, `segment "same-name"`)
	}
	r.interrupt(t).want(t, exitOK)
	rec := recordsOf(t, out)
	nets, segments, mapped := map[uint32]int{}, map[string]bool{}, map[uint32]bool{}
	for _, x := range rec.io {
		if x.Ret == wordLen && x.Dir == run.Send {
			nets[rec.eps[x.EP].NetNS]++
		}
	}
	for _, s := range rec.shm {
		if s.Name == "same-name" && s.Inode != 0 && (s.Op == run.ShmMap || s.Op == run.ShmOpen) {
			segments[fmt.Sprint(s.Dev, s.Inode)] = true
		}
		mapped[s.TGID] = mapped[s.TGID] || s.Op == run.ShmSeen && s.Name == "before"
	}
	if len(nets) != 2 || len(segments) != 2 {
		t.Errorf("words by network namespace %v, segments %v: want two of each", nets, segments)
	}
	for i, p := range boxes {
		if sent, received := rec.words(p.pid); sent != 11+2*i || received != 11+2*i {
			t.Errorf("container %d: %d words sent, %d received, want %d", i, sent, received, 11+2*i)
		}
		if !mapped[uint32(p.pid)] {
			t.Errorf("container %d: the segment it had mapped before is not in the run", i)
		}
	}
	for _, x := range rec.procs {
		if x.Target && x.NSPID != 1 {
			t.Errorf("process %d is %d inside, want 1", x.TGID, x.NSPID)
		}
	}
}

// In a PID namespace of its own the recorder would watch other processes than the user means.
func TestLiveInsideContainer(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	for _, args := range [][]string{{"record", "-p", "2", "-o", filepath.Join(dir, "run")}, {"doctor"}} {
		cmd := exec.Command(built(t, "stageline"), args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
		o := finish(t, cmd)
		if o.code != exitMissing || !strings.Contains(o.stdout+o.stderr, "--pid=host") {
			t.Errorf("%s exits with %d and says %s", args[0], o.code, o.stdout+o.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "run")); !os.IsNotExist(err) {
		t.Errorf("a run was left: %v", err)
	}
}
