package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
)

// kill -9 of the recorder at any moment, while it attaches, records or has hardly begun: its
// programs go with it, the process it watched goes on, and what it left is a run or says that it is
// none.
func TestLiveKilledAnyTime(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	p := startPuppet(t, nil)
	const seed = 20
	rnd := rand.New(rand.NewPCG(seed, seed))
	runs := 0
	for i := range 6 {
		out := filepath.Join(dir, fmt.Sprint("run", i))
		r := launchRecord(t, "-p", fmt.Sprint(p.pid), "-o", out)
		for i%2 == 1 && !slices.Contains(attach.Others(), fmt.Sprint(p.pid)) {
			p.do(t, "talk 1") // every other one is to die when it has at least begun to attach
		}
		kill := time.After(time.Duration(rnd.IntN(600)) * time.Millisecond)
		for done := false; !done; {
			select {
			case <-kill:
				done = true
			default:
				p.do(t, "talk 10")
			}
		}
		sendSignal(t, r.Process.Pid, syscall.SIGSTOP) // so that it loads no more while they are listed
		ids := heldPrograms(t, r.Process.Pid)
		r.Process.Kill()
		r.Wait()
		goneFromKernel(t, ids)
		p.do(t, "talk 10")
		o := stageline(t, "seal", out)
		switch {
		case o.code == exitOK:
			runs++
			if sent, received := recordsOf(t, out).words(p.pid); received > sent+1 { // the first may have been sent before the attach
				t.Errorf("kill %d: %d words received, %d sent", i, received, sent)
			}
		case strings.Contains(o.stderr, "no such file") || strings.Contains(o.stderr, "is not a recorded run"):
		default:
			t.Errorf("kill %d: seal exits with %d and says %s", i, o.code, o.stderr)
		}
	}
	// The next recorder is not in the way of any of them.
	out := filepath.Join(dir, "last")
	r := startRecord(t, "-p", fmt.Sprint(p.pid), "-o", out)
	p.do(t, "talk 7")
	r.interrupt(t).want(t, exitOK)
	if sent, received := recordsOf(t, out).words(p.pid); sent != 7 || received != 7 {
		t.Errorf("after all kills %d words sent and %d received, want 7", sent, received)
	}
	t.Logf("seed %d: %d of 6 kills left a run", seed, runs)
}

// A recorder that does not get to run while its ring is small loses records, and says exactly how
// many.
func TestLiveStarvedRecorder(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	p := startPuppet(t, nil)
	r := startRecord(t, "-p", fmt.Sprint(p.pid), "--ring-bytes", "65536", "-o", dir)
	sendSignal(t, r.cmd.Process.Pid, syscall.SIGSTOP)
	p.do(t, "talk 3001")
	sendSignal(t, r.cmd.Process.Pid, syscall.SIGCONT)
	r.interrupt(t).want(t, exitOK)
	rec := recordsOf(t, dir)
	var lost uint64
	for _, l := range rec.loss {
		if l.Reason == "ring-full" {
			lost += l.N
		}
	}
	var meta run.Metadata
	readJSON(t, filepath.Join(dir, "metadata.json"), &meta)
	sent, received := meta.Options["records_sent"], meta.Options["records_received"]
	if lost == 0 || fmt.Sprint(uint64(atoi(t, sent))) != fmt.Sprint(uint64(atoi(t, received))+lost) {
		t.Errorf("%s records sent, %s received, %d lost: want sent = received + lost, and some lost", sent, received, lost)
	}
	o := stageline(t, "report", dir, "--accept-inconclusive")
	if o.code != exitLost || !strings.Contains(o.stdout, "ring-full") {
		t.Errorf("report exits with %d, want %d and the loss in its ledger: %s", o.code, exitLost, firstLines(o.stdout, 12))
	}
}

// A process of 10 000 descriptors and 500 threads is attached to in moments, and seen whole.
func TestLiveLargeProcess(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	p := startPuppet(t, nil)
	p.do(t, "files 10000")
	p.do(t, "threads 500")
	begin := time.Now()
	r := startRecord(t, "-p", fmt.Sprint(p.pid), "-o", dir)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("attaching took %v", took)
	}
	p.do(t, "talk 101")
	r.interrupt(t).want(t, exitOK)
	rec := recordsOf(t, dir)
	if sent, received := rec.words(p.pid); sent != 101 || received != 101 || len(rec.loss) > 0 {
		t.Errorf("%d words sent, %d received, losses %v; want 101 and none", sent, received, rec.loss)
	}
}

// Children that are born and die faster than anybody can look at them are all in the run.
func TestLiveForkStorm(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	p := startPuppet(t, nil)
	p.do(t, "fork 1") // the Go runtime forks once more at the first
	r := startRecord(t, "-p", fmt.Sprint(p.pid), "-o", dir)
	const n = 211
	p.do(t, "fork %d", n)
	p.do(t, "talk 3")
	r.interrupt(t).want(t, exitOK)
	rec := recordsOf(t, dir)
	count := map[run.ProcEvent]int{}
	for _, x := range rec.procs {
		if x.TGID != uint32(p.pid) {
			count[x.Event]++
		}
	}
	if count[run.ProcFork] != n || count[run.ProcExec] != n || count[run.ProcExit] != n || len(rec.loss) > 0 {
		t.Errorf("fork %d, exec %d, exit %d, losses %v; want %d of each and none", count[run.ProcFork], count[run.ProcExec], count[run.ProcExit], rec.loss, n)
	}
}

// A PID that was a target's and is given to an unrelated process: that one is not recorded.
func TestLivePIDReuse(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	p, other := startPuppet(t, nil), startPuppet(t, nil)
	r := startRecord(t, "-p", fmt.Sprint(p.pid), "-o", dir)
	first := atoi(t, p.do(t, "child"))
	again := 0
	for try := 0; again != first; try++ {
		if try == 50 {
			t.Skipf("PID %d was not given again in 50 tries: other processes are started here", first)
		}
		again = atoi(t, other.do(t, "child %d", first))
	}
	r.interrupt(t).want(t, exitOK)
	exits := 0
	for _, x := range recordsOf(t, dir).procs {
		if x.TGID == uint32(first) && x.Event == run.ProcExit {
			exits++
		}
	}
	if exits != 1 {
		t.Errorf("process %d exits %d times in the run, want once: its PID was another's after that", first, exits)
	}
}

// A stopped process can be attached to, and is recorded from where it goes on.
func TestLiveStoppedTarget(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	p := startPuppet(t, nil)
	sendSignal(t, p.pid, syscall.SIGSTOP)
	r := startRecord(t, "-p", fmt.Sprint(p.pid), "-o", dir)
	sendSignal(t, p.pid, syscall.SIGCONT)
	p.do(t, "talk 13")
	sendSignal(t, p.pid, syscall.SIGSTOP)
	r.interrupt(t).want(t, exitOK)
	sendSignal(t, p.pid, syscall.SIGCONT)
	if sent, received := recordsOf(t, dir).words(p.pid); sent != 13 || received != 13 {
		t.Errorf("%d words sent, %d received, want 13", sent, received)
	}
}

// Its program file was replaced while it ran.
func TestLiveReplacedProgram(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	program := filepath.Join(dir, "engine")
	copyFile(t, os.Args[0], program)
	p := startPuppetOf(t, program)
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "/bin/true", program)
	out := filepath.Join(dir, "run")
	r := startRecord(t, "-p", fmt.Sprint(p.pid), "-o", out)
	p.do(t, "talk 5")
	r.interrupt(t).want(t, exitOK)
	rec := recordsOf(t, out)
	if sent, _ := rec.words(p.pid); sent != 5 || !rec.noted("program-replaced") {
		t.Errorf("%d words sent, want 5; notes %+v, want one of program-replaced", sent, rec.notes)
	}
	for _, x := range rec.procs {
		if x.Event == run.ProcSeen && x.Exe != program {
			t.Errorf("its program is %q, want %q", x.Exe, program)
		}
	}
}

// An engine that is restarted has new PIDs: by name it is recorded on, by PID the recording ends and
// says why.
func TestLiveEngineRestarts(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	program := filepath.Join(dir, "ollama") // what its profile goes by
	copyFile(t, os.Args[0], program)
	first := startPuppetOf(t, program)
	byName, byPID := filepath.Join(dir, "name"), filepath.Join(dir, "pid")
	r := startRecord(t, "--match", "ollama", "-o", byName)
	first.do(t, "talk 3")
	first.end(t)
	second := startPuppetOf(t, program)
	for end := time.Now().Add(liveLimit / 2); !recordsOf(t, byName).noted("target-added"); {
		if time.Now().After(end) {
			t.Fatal("the restarted engine is not noticed")
		}
	}
	second.do(t, "talk 5")
	r.interrupt(t).want(t, exitOK)
	rec := recordsOf(t, byName)
	before, _ := rec.words(first.pid)
	after, _ := rec.words(second.pid)
	if before != 3 || after != 5 || !rec.noted("target-added") {
		t.Errorf("%d words of the first and %d of the second, want 3 and 5; notes %+v", before, after, rec.notes)
	}
	r = startRecord(t, "-p", fmt.Sprint(second.pid), "-o", byPID)
	second.end(t)
	r.wait(t).want(t, exitOK, "all recorded processes have exited", "new PIDs")
}

// What a process does through an io_uring is not seen: the user is told, whenever the ring came.
func TestLiveIOUring(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	for _, before := range []bool{true, false} {
		p := startPuppet(t, nil)
		out := filepath.Join(dir, fmt.Sprint("run-", before))
		if before {
			needRing(t, p)
		}
		r := startRecord(t, "-p", fmt.Sprint(p.pid), "-o", out)
		if !before {
			needRing(t, p)
		}
		r.interrupt(t).want(t, exitOK, "warning: process "+fmt.Sprint(p.pid), "io_uring")
		if !recordsOf(t, out).noted("io-uring") {
			t.Errorf("ring before the attach %v: the run does not note it", before)
		}
		if o := stageline(t, "report", out, "--accept-inconclusive"); !strings.Contains(o.stdout, "io_uring") {
			t.Errorf("the report does not speak of it: %s", o.stdout)
		}
		if o := stageline(t, "ps", fmt.Sprint(p.pid)); !strings.Contains(o.stdout, "io_uring") {
			t.Errorf("ps does not speak of it: %s", o.stdout)
		}
	}
}

func needRing(t *testing.T, p *puppet) {
	t.Helper()
	fmt.Fprintln(p.in, "uring")
	if s := p.lines.next(t); s != "ring" {
		t.Skipf("io_uring_setup: %s", s)
	}
}
