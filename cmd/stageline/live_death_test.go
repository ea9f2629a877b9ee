package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	kernel "github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/run"
)

// All stage processes die while recording goes on: the run is complete, and says so.
func TestLiveEngineDies(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	e := startEngine(t, dir, nil, "--seed", "5")
	r := startRecord(t, "-p", e.pids(), "-o", filepath.Join(dir, "run"))
	l := &chatLoad{url: e.URL, n: 40, id: func(i int) string { return fmt.Sprintf("die-%06d", i) }}
	l.start(t.Context(), 4)
	l.await(t, 6)
	for _, pid := range e.PIDs[1:] {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	before := run.Mono()
	l.await(t, -1) // the rest fails
	if len(l.failed) == 0 {
		t.Fatal("no request failed although the stages died")
	}
	e.stop(t)
	r.wait(t).want(t, exitOK, "all recorded processes have exited", "the run is complete up to there")
	doc, tr := loadDocument(t, filepath.Join(dir, "run")), loadTruth(t, e.truth)
	if doc.Meta.Sealed == nil || !doc.Meta.Closed {
		t.Errorf("sealed %v, closed %v", doc.Meta.Sealed, doc.Meta.Closed)
	}
	whole := l.ids(func(_, end int64) bool { return end != 0 && end < before })
	a, _ := compareSome(doc, tr, whole)
	wantAllRight(t, a, len(whole))
	_, m := compareSome(doc, tr, allOf(tr))
	if len(m.hopsInvented) > 0 {
		t.Errorf("%d hops invented for requests that failed", len(m.hopsInvented))
	}
	noted := false
	for _, n := range doc.Notes {
		noted = noted || n.Code == "targets-gone"
	}
	if !noted {
		t.Errorf("notes %+v do not say that the processes are gone", doc.Notes)
	}
}

// A worker dies and its engine starts another one: that one is followed.
func TestLiveWorkerRestarts(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	url, keeper, lines := startRole(t, "keeper")
	first := atoi(t, lines.next(t))
	r := startRecord(t, "-p", fmt.Sprint(keeper), "-o", filepath.Join(dir, "run"))
	const n = 11
	l := &chatLoad{url: url, n: n, plain: true, id: func(i int) string { return fmt.Sprintf("one-%06d", i) }}
	l.start(t.Context(), 1)
	l.finish(t)
	syscall.Kill(first, syscall.SIGKILL)
	second := atoi(t, lines.next(t))
	l = &chatLoad{url: url, n: n, plain: true, id: func(i int) string { return fmt.Sprintf("two-%06d", i) }}
	l.start(t.Context(), 1)
	l.finish(t)
	r.interrupt(t).want(t, exitOK)
	events := map[uint32]map[run.ProcEvent]bool{uint32(first): {}, uint32(second): {}}
	for _, p := range recordsOf(t, filepath.Join(dir, "run")).procs {
		if m := events[p.TGID]; m != nil && (p.Event != run.ProcExit || p.TID == p.TGID) {
			m[p.Event] = true
		}
	}
	if !events[uint32(first)][run.ProcExit] || !events[uint32(second)][run.ProcFork] || !events[uint32(second)][run.ProcExec] {
		t.Errorf("events %v: want the exit of %d, the fork and exec of %d", events, first, second)
	}
	toWorker := map[string]uint32{}
	doc := loadDocument(t, filepath.Join(dir, "run"))
	for i := range doc.Requests {
		for _, h := range doc.Requests[i].Hops {
			if h.ToTGID != uint32(keeper) && h.ToTGID != 0 {
				toWorker[doc.Requests[i].ID] = h.ToTGID
			}
		}
	}
	for i := range n {
		for id, want := range map[string]int{fmt.Sprintf("one-%06d", i): first, fmt.Sprintf("two-%06d", i): second} {
			if toWorker[id] != uint32(want) {
				t.Errorf("%s went to process %d, want %d", id, toWorker[id], want)
			}
		}
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// heldPrograms lists the kernel programs that a process holds.
func heldPrograms(t *testing.T, pid int) []kernel.ProgramID {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fdinfo", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []kernel.ProgramID
	for _, fd := range fds {
		b, err := os.ReadFile(filepath.Join(dir, fd.Name()))
		if err != nil {
			continue // closed since
		}
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "prog_id:"); ok {
				out = append(out, kernel.ProgramID(atoi(t, strings.TrimSpace(v))))
			}
		}
	}
	return out
}

// goneFromKernel waits until the programs are freed: the kernel does so after a grace period.
func goneFromKernel(t *testing.T, ids []kernel.ProgramID) {
	t.Helper()
	for end := time.Now().Add(liveLimit / 4); ; time.Sleep(10 * time.Millisecond) {
		left := 0
		for _, id := range ids {
			if p, err := kernel.NewProgramFromID(id); err == nil {
				left++
				p.Close()
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d programs outlive the killed recorder", left, len(ids))
		}
	}
}

// lostTail is how much before a kill may be missing: what was not yet handed to the file.
const lostTail = int64(time.Second)

// kill -9 under load: seal makes a complete run up to the kill, and nothing stays in the kernel.
func TestLiveKilledRecorder(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	runDir := filepath.Join(dir, "run")
	e := startEngine(t, dir, nil, "--seed", "1")
	r := startRecord(t, "-p", e.pids(), "-o", runDir)
	ids := heldPrograms(t, r.cmd.Process.Pid)
	if len(ids) < 9 {
		t.Fatalf("the recorder holds %d programs, want 9 or more: the test does not see them", len(ids))
	}
	l := &chatLoad{url: e.URL, n: 80, id: func(i int) string { return fmt.Sprintf("kill-%06d", i) }}
	l.start(t.Context(), 8)
	l.await(t, 40)
	killed := run.Mono()
	r.cmd.Process.Kill()
	r.wait(t)
	goneFromKernel(t, ids)
	l.finish(t)
	e.stop(t)

	unsealed := stageline(t, "report", runDir, "--accept-inconclusive")
	unsealed.want(t, exitOK)
	o := stageline(t, "seal", runDir)
	o.want(t, exitOK)
	if !strings.Contains(o.stdout, "the recorder was killed") {
		t.Errorf("seal says %q", o.stdout)
	}
	stageline(t, "report", runDir, "--accept-inconclusive").want(t, exitOK)
	doc, tr := loadDocument(t, runDir), loadTruth(t, e.truth)
	before := killed - lostTail
	tr.keepBefore(before)
	_, m := compareSome(doc, tr, allOf(tr))
	hops := 0
	for _, list := range tr.hops {
		for _, h := range list {
			if hops++; m.hops[h] == nil && !h.memory() {
				t.Errorf("hop %s %s → %s %s was received %d ms before the kill and is missing", h.Request, h.From, h.To, h.Type, (killed-*h.Recv)/1e6)
			}
		}
	}
	if hops < 300 {
		t.Errorf("%d hops were over before the kill: the test does not test", hops)
	}
	whole := l.ids(func(_, end int64) bool { return end != 0 && end < before })
	a, _ := compareSome(doc, loadTruth(t, e.truth), whole)
	wantAllRight(t, a, len(whole))
	_, m = compareSome(doc, loadTruth(t, e.truth), l.ids(func(_, _ int64) bool { return true }))
	if len(m.hopsInvented) > 0 {
		t.Errorf("%d hops invented", len(m.hopsInvented))
	}
	stageline(t, "seal", runDir).want(t, exitError, "already sealed")
}

// keepBefore leaves the hops that were received before a moment.
func (t *truth) keepBefore(ns int64) {
	for id, list := range t.hops {
		var kept []*truthHop
		for _, h := range list {
			if h.Recv != nil && *h.Recv < ns {
				kept = append(kept, h)
			}
		}
		t.hops[id] = kept
	}
}

// The disk fills up: the recorder says so, and what came before is a run.
func TestLiveDiskFull(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=768k"); err != nil {
		t.Skipf("mount of a small tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", disk, err)
		}
	})
	runDir := filepath.Join(disk, "run")
	e := startEngine(t, dir, nil, "--seed", "1")
	r := startRecord(t, "-p", e.pids(), "-o", runDir)
	l := &chatLoad{url: e.URL, n: 80, id: func(i int) string { return fmt.Sprintf("full-%06d", i) }}
	l.start(t.Context(), 8)
	o := r.wait(t) // it ends by itself: nothing more can be kept
	o.want(t, exitError, "no space left", "stageline seal "+runDir)
	l.finish(t)
	e.stop(t)
	var st unix.Statfs_t
	if err := unix.Statfs(disk, &st); err != nil || st.Bavail > 32 {
		t.Errorf("%d blocks of the disk are free, %v: the test does not test", st.Bavail, err)
	}
	sealed := stageline(t, "seal", runDir)
	if sealed.code != exitOK && !strings.Contains(sealed.stderr, "no space left") {
		t.Errorf("seal on the full disk: exit %d, %s", sealed.code, sealed.stderr)
	}
	// With room again everything works.
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT, "size=32m"); err != nil {
		t.Fatal(err)
	}
	stageline(t, "seal", runDir).want(t, exitOK)
	rep := stageline(t, "report", runDir, "--accept-inconclusive")
	if rep.code != exitLost || !strings.Contains(rep.stdout, "spool") {
		t.Errorf("report: exit %d, want %d and the loss in the ledger; %s", rep.code, exitLost, firstLines(rep.stdout, 12))
	}
	doc, tr := loadDocument(t, runDir), loadTruth(t, e.truth)
	_, m := compareSome(doc, tr, allOf(tr))
	if len(m.hopsInvented) > 0 || len(m.hops) < 20 {
		t.Errorf("%d hops invented, %d found; want none and some", len(m.hopsInvented), len(m.hops))
	}
}

func firstLines(s string, n int) string {
	lines := bytes.SplitAfterN([]byte(s), []byte("\n"), n+1)
	return string(bytes.Join(lines[:min(n, len(lines))], nil))
}
