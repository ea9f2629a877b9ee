package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
)

// What the recorder and the kernel's tables keep of processes does not grow with those that were born,
// what is said of the ended stays true, and a process born after them is recorded.
func TestLiveManyProcesses(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	p, other := startPuppet(t, nil), startPuppet(t, nil)
	r, err := startRecorder(recordOptions{PIDs: []uint32{uint32(p.pid), uint32(other.pid)}, OutDir: dir, SharesProcess: true}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	const n = 311
	p.do(t, "spawn %d", n)
	last := atoi(t, p.do(t, "child"))
	syscall.Kill(other.pid, syscall.SIGKILL)
	other.cmd.Wait()
	for end := time.Now().Add(liveLimit / 2); ; time.Sleep(10 * time.Millisecond) {
		var flags uint32
		if r.progs.Objs.SlTargets.Lookup(uint32(other.pid), &flags) != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the kernel keeps a target that ended")
		}
	}
	inKernel := 0
	var pid, flags uint32
	for it := r.progs.Objs.SlTargets.Iterate(); it.Next(&pid, &flags); {
		inKernel++
	}
	if _, err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if inKernel != 1 || len(r.procs) != 1 || len(r.cost.last) > 1 || len(r.fresh)+len(r.said)+len(r.mapped) > 1 || len(r.ended.listed) > maxEnded {
		t.Errorf("kept of processes: in the kernel %d, described %d, costs of %d, %d to describe, notes of %d, mappings of %d, ended %d", inKernel, len(r.procs), len(r.cost.last), len(r.fresh), len(r.said), len(r.mapped), len(r.ended.listed))
	}
	var said strings.Builder
	r.sayEnded(&said)
	if want := fmt.Sprintf("process %d (%s) was killed by signal 9", other.pid, procName(t, p.pid)); !strings.Contains(said.String(), want) || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("it says %q, want %q and nothing else", said.String(), want)
	}
	m, err := run.Open(dir, run.OpenOptions{Decoders: decoders()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o, described := m.Meta.Overhead, len(m.Meta.Targets)+m.Meta.TargetsUnlisted
	// Some may end before they can be described.
	if described < n/4 || described > n+10 || o.Targets < n/4 || o.TargetsEnded != o.Targets-1 || o.TargetCPUNS <= 0 {
		t.Errorf("%d targets described; cost of %d, %d of them ended, %d ns; want up to %d", described, o.Targets, o.TargetsEnded, o.TargetCPUNS, n+10)
	}
	rec := recordsOf(t, dir)
	forks, exits, born := 0, 0, map[uint32]bool{uint32(last): true}
	for _, x := range rec.procs {
		if x.PPID == uint32(p.pid) && x.Event == run.ProcFork {
			forks++
		}
		if x.Event == run.ProcFork && x.PPID == uint32(last) {
			born[x.TGID] = true
		}
		if x.TGID != uint32(p.pid) && x.TGID == x.TID && x.Event == run.ProcExit {
			exits++
		}
	}
	if forks < n+1 || exits < n+2 || len(rec.loss) > 0 {
		t.Errorf("%d forks and %d exits recorded, losses %v; want %d and %d at least, and none", forks, exits, rec.loss, n+1, n+2)
	}
	talked := false
	for _, x := range rec.io {
		talked = talked || born[x.TGID] && x.Ret == int64(len("word\n"))
	}
	if !talked {
		t.Errorf("what process %d, born after all these, did is not recorded", last)
	}
}

func procName(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
