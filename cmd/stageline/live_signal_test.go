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
	"time"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
)

// sealedRun fails unless the directory holds a run that is complete.
func sealedRun(t *testing.T, dir string) run.Metadata {
	t.Helper()
	r, err := run.Open(dir, run.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !r.Sealed || !r.Meta.Closed {
		t.Errorf("%s: sealed %v, ended by itself %v", dir, r.Sealed, r.Meta.Closed)
	}
	return r.Meta
}

// A terminal that is closed ends a recording in order, as Ctrl-C does.
func TestLiveHangup(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	p := startPuppet(t, nil)
	r := startRecord(t, "-p", fmt.Sprint(p.pid), "-o", dir)
	p.do(t, "talk 3")
	sendSignal(t, r.cmd.Process.Pid, syscall.SIGHUP)
	r.wait(t).want(t, exitOK)
	sealedRun(t, dir)
}

// The reader of the notes goes away (2>&1 | head -1): the run is sealed all the same.
func TestLiveNotesUnread(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	p := startPuppet(t, nil)
	cmd := exec.Command(built(t, "stageline"), "record", "-p", fmt.Sprint(p.pid), "-o", dir)
	notes, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if line, err := bufio.NewReader(notes).ReadString('\n'); err != nil || !strings.Contains(line, "recording") {
		t.Fatalf("%q, %v", line, err)
	}
	notes.Close()
	p.end(t) // of which the recorder wants to tell
	if err := cmd.Wait(); err != nil {
		t.Errorf("the recorder ended with %v", err)
	}
	sealedRun(t, dir)
}

// A recorder that was started by a process that it is told to record leaves itself out.
func TestLiveRecorderLeavesItselfOut(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	p := startPuppet(t, nil)
	r := startRecord(t, "-p", fmt.Sprint(os.Getpid()), "-o", dir)
	p.do(t, "talk 3")
	r.interrupt(t).want(t, exitOK)
	followed := false
	for _, x := range sealedRun(t, dir).Targets {
		followed = followed || x.TGID == uint32(p.pid)
		if x.TGID == uint32(r.cmd.Process.Pid) {
			t.Error("the recorder has recorded itself")
		}
	}
	if !followed {
		t.Error("another child of the process is not recorded")
	}
}

// A command that cannot end in order is ended where it is by a signal, and says so. It hangs here for
// want of a reader of its result.
func TestSignalEndsReport(t *testing.T) {
	dir := workDir(t)
	w, err := run.Create(filepath.Join(dir, "run"), run.Metadata{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		cmd := exec.Command(os.Args[0], "report", filepath.Join(dir, "run"), "--accept-inconclusive", "-o", fifo)
		cmd.Env = append(os.Environ(), liveRole+"=command")
		var notes strings.Builder
		cmd.Stderr = &notes
		caught, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(liveLimit/4, func() { cmd.Process.Kill() })
		if _, err := io.ReadFull(caught, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		sendSignal(t, cmd.Process.Pid, sig)
		_ = cmd.Wait()
		kill.Stop()
		if code := cmd.ProcessState.ExitCode(); code != exitError || !strings.Contains(notes.String(), "stageline report: stopped: ") || strings.Count(notes.String(), "\n") != 1 {
			t.Errorf("%v: exit %d: %s", sig, code, notes.String())
		}
	}
}

// Killed, the demo takes its pipeline with it.
func TestLiveKilledDemo(t *testing.T) {
	needLive(t)
	cmd := exec.Command(built(t, "stageline"), "demo", "-o", filepath.Join(workDir(t), "demo"), "-n", "100000", "-c", "2")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	const processes = 9 // of the smallest pipeline, so that it is up
	var pids []uint32
	for end := time.Now().Add(liveLimit); len(pids) < processes; pids = attach.Children(uint32(cmd.Process.Pid)) {
		if time.Now().After(end) {
			t.Fatalf("the demo has %d processes", len(pids))
		}
	}
	var fds []unix.PollFd
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(int(pid), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	cmd.Process.Kill()
	_ = cmd.Wait()
	for i := range fds {
		if n, err := unix.Poll(fds[i:i+1], int(liveLimit.Milliseconds()/4)); n != 1 || err != nil {
			t.Errorf("process %d outlives the demo by %v", pids[i], liveLimit/4)
			unix.PidfdSendSignal(int(fds[i].Fd), unix.SIGKILL, nil, 0)
		}
	}
}
