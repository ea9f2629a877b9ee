package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/loadgen"
	"golang.org/x/sys/unix"
)

var threeArms = []arm{{name: armBare}, {name: armAgain}, {name: armRecorder, records: true, observe: unobserved}}

func unobserved(context.Context, string) (*observer, error) {
	return nil, errors.New("not to be started")
}

func TestOrderOfBlocks(t *testing.T) {
	names := func(seed uint64) (out []string) {
		rng := rand.New(rand.NewPCG(seed, 4))
		for range 60 {
			for _, a := range order(rng, threeArms) {
				out = append(out, a.name)
			}
		}
		return out
	}
	all := names(3)
	if !slices.Equal(all, names(3)) || slices.Equal(all, names(4)) {
		t.Error("the order is to follow from the seed")
	}
	at := map[string]int{}
	for i, name := range all {
		at[fmt.Sprint(name, i%3)]++
	}
	for _, a := range threeArms {
		n := 0
		for place := range 3 {
			k := at[fmt.Sprint(a.name, place)]
			n += k
			if k < 10 || k > 30 {
				t.Errorf("%q stands %d times in place %d of 60 blocks, want about 20", a.name, k, place+1)
			}
		}
		if n != 60 {
			t.Errorf("%q stands %d times in 60 blocks", a.name, n)
		}
	}
}

// aLoad has a throughput, and six requests that take so long in ms.
func aLoad(name string, throughput float64, ms ...float64) *armLoad {
	l := &armLoad{Arm: name, Throughput: &throughput, All: 10, TargetMS: 100, HostMS: 1000, times: map[string]float64{}}
	for i, v := range ms {
		l.times[fmt.Sprint(i)] = v
	}
	return l
}

// blocksOf makes blocks of which each has these throughputs: recorded, bare, bare again.
func blocksOf(throughputs ...[3]float64) (out []block) {
	for _, v := range throughputs {
		out = append(out, block{aLoad(armRecorder, v[0]), aLoad(armBare, v[1]), aLoad(armAgain, v[2])})
	}
	return out
}

func TestRatiosOfABlock(t *testing.T) {
	recorded, bare, again := aLoad(armRecorder, 90, 11, 22, 33, 44, 55), aLoad(armBare, 100, 10, 20, 30, 40, 50), aLoad(armAgain, 81, 10, 20, 30, 40, 50)
	again.TargetMS, recorded.TargetMS = 144, 132
	ms := func(v float64) *float64 { return &v }
	recorded.ToolMS, recorded.KernelMS, recorded.BesideMS = ms(20), ms(13), ms(7)
	tooFew := blocksOf([3]float64{1, 1, 1})
	tooFew[0] = tooFew[0][1:] // the recorder failed
	c := newComparison("load", append(tooFew, block{again, recorded, bare}), threeArms, nil, 0.05)
	for _, w := range []struct {
		what string
		got  Figure
		want float64
		n    int
	}{
		{"throughput, recorded", c.Arms[1].Ratios[0], 1, 1}, // 90 ÷ √(100 · 81)
		{"JCT of the same request, recorded", c.Arms[1].Ratios[2], 1.1, 1},
		{"CPU, recorded", c.Arms[1].Ratios[4], 1.1, 1},
		{"process per request", c.Arms[1].Costs[0], 2, 1},
		{"programs per request", c.Arms[1].Costs[1], 1.3, 1},
		{"both, of the processes", c.Arms[1].Costs[2], 25, 1},
		{"both, of the host", c.Arms[1].Costs[3], 3.3, 1},
		{"attaching", c.Arms[1].Costs[4], 7, 1},
		{"throughput, again", c.Arms[0].Ratios[0], 0.905, 2},          // of 1 and 81 ÷ 100
		{"JCT of the same request, again", c.Arms[0].Ratios[2], 1, 1}, // the other block has too few requests
		{"CPU of the processes, bare", c.Bare[2], 10, 4},              // of 10, 10, 10 and 14.4
	} {
		if w.got.N != w.n || math.Abs(float64(w.got.At)-w.want) > 1e-9 {
			t.Errorf("%s: %v of n = %d, want %v of %d", w.what, w.got.At, w.got.N, w.want, w.n)
		}
	}
	if c.Arms[1].Ratios[1].At.Known() || c.Arms[0].Costs != nil {
		t.Error("a JCT that no load has is given, or a cost of nothing")
	}
}

func TestComparisonJudges(t *testing.T) {
	pad := func(on, again [5]float64) []block {
		var v [][3]float64
		for i := range on {
			v = append(v, [3]float64{on[i] * math.Sqrt(again[i]/100), 100, again[i]})
		}
		return blocksOf(v...)
	}
	still := [5]float64{101, 100, 100, 99, 100.5}
	for _, c := range []struct {
		name       string
		blocks     []block
		conclusive bool
		says       string
	}{
		{"no effect", pad([5]float64{99, 101, 100, 99, 101}, still), true, "a loss of more than 1.0 % can be excluded"},
		{"slower", pad([5]float64{90, 91, 89, 90, 92}, still), true, "-10.0 %"},
		{"too noisy", pad([5]float64{80, 120, 85, 115, 100}, still), false, "hides"},
		{"drifts", pad([5]float64{100, 100, 100, 100, 100}, [5]float64{90, 91, 92, 90, 90}), false, "drifts"},
		{"drifts by less than matters", pad([5]float64{100, 100, 100, 100, 100}, [5]float64{99, 99, 99.2, 99, 98.8}), true, "a loss of more than 1."},
		{"an effect no larger than the drift", pad([5]float64{99.2, 99.2, 99.2, 99.2, 99.2}, [5]float64{98, 98, 98, 98, 98}), true, "no effect stands out"},
		{"too few", blocksOf([3]float64{100, 100, 100}), false, "fewer than 5"},
	} {
		got := newComparison("load", c.blocks, threeArms, nil, 0.05)
		if got.Conclusive != c.conclusive || !strings.Contains(got.Sentence, c.says) {
			t.Errorf("%s: conclusive %v: %s", c.name, got.Conclusive, got.Sentence)
		}
	}
	gone := blocksOf([3]float64{1, 1, 1})
	gone[0] = gone[0][1:]
	if got := newComparison("load", gone, threeArms, map[string]string{armRecorder: "no room"}, 0.05); got.Conclusive || !strings.Contains(got.Sentence, "no room") || got.Arms[1].Failed != "no room" {
		t.Errorf("a recorder that failed: %+v", got)
	}
}

// answering is a server that answers chat completions, until it is told not to.
func answering(t *testing.T) (o *overheadOptions, broken *atomic.Bool) {
	t.Helper()
	broken = &atomic.Bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}`)
	}))
	t.Cleanup(s.Close)
	return &overheadOptions{pids: []uint32{uint32(os.Getpid())}, blocks: 2, warmup: 1, seed: 1, settle: 20 * time.Millisecond,
		load: loadgen.Config{URL: s.URL, Concurrency: 1, N: 200, Warmup: 2, Seed: 1}}, broken
}

// A tool that cannot attach, or ends too soon, is left out with its own words; the others go on.
func TestToolsThatFail(t *testing.T) {
	o, _ := answering(t)
	early := filepath.Join(t.TempDir(), "pid")
	var err error
	o.tools, err = parseTools([]string{"early=sleep 60 >/dev/null 2>&1 & echo $! >" + early + "; exit 3",
		"silent=exec sleep 60", "busy=echo on; while :; do :; done", "lost=echo no such process {{pids}} >&2; exit 3", "short=echo on; echo gone >&2; exit 4",
		"behind=sleep 60 >/dev/null 2>&1 & echo on; exit 0"})
	if err != nil {
		t.Fatal(err)
	}
	arms := append([]arm{{name: armBare}, {name: armAgain}}, o.toolArms()...)
	blocks, failed, err := o.run(t.Context(), arms, io.Discard)
	if err != nil || len(blocks) != 2 {
		t.Fatalf("%d blocks: %v", len(blocks), err)
	}
	if pid, err := os.ReadFile(early); err != nil || !hasEnded(strings.TrimSpace(string(pid))) {
		t.Errorf("what a tool left behind that never attached goes on: %s, %v", pid, err)
	}
	if len(failed) != 4 || !strings.Contains(failed["early"], "left processes behind") || !strings.Contains(failed["behind"], "left processes behind") || !strings.Contains(failed["lost"], fmt.Sprint("no such process ", os.Getpid())) || !strings.Contains(failed["short"], "exit status 4: gone") {
		t.Errorf("what failed, and why: %v", failed)
	}
	for _, b := range blocks {
		if len(b) != 4 || b.of("lost") != nil || b.of("short") != nil || b.of("early") != nil || b.of("behind") != nil {
			t.Fatalf("block of %d loads, want those of nothing, nothing again, silent and busy", len(b))
		}
		silent, busy := b.of("silent"), b.of("busy")
		if *silent.Said || !*busy.Said || *busy.ToolMS <= 0 || *silent.ToolMS > *busy.ToolMS || len(busy.times) != 200 || busy.All != 202 {
			t.Errorf("silent: said %v, %g ms; busy: said %v, %g ms, %d and %d requests", *silent.Said, *silent.ToolMS, *busy.Said, *busy.ToolMS, len(busy.times), busy.All)
		}
		if b.of(armBare).ToolMS != nil || b.of(armBare).TargetMS <= 0 {
			t.Errorf("bare %+v", b.of(armBare))
		}
	}
	c := newComparison("load", blocks, arms, failed, 0.05)
	for _, a := range c.Arms {
		if known := a.Ratios[0].At.Known(); known == (a.Failed != "") {
			t.Errorf("%s: ratio %v, failed %q", a.Name, a.Ratios[0].At, a.Failed)
		}
	}
}

// hasEnded: the process runs no more, even if nobody has asked how it ended.
func hasEnded(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return errors.Is(err, os.ErrNotExist) || err == nil && strings.Contains(string(b), ") Z ")
}

func init() { liveRoles["observing"] = beObserving }

// beObserving starts a tool as a load's observer, prints the tool's PID and goes on.
func beObserving() {
	o, err := startTool(context.Background(), tool{"idle", "echo on; exec sleep 60"}, nil, time.Minute)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(o.cmd.Process.Pid)
	endWithInput()
}

// Killed, the comparison takes with it what observes the engine; it goes on as long as the comparison.
func TestKilledOverheadLeavesNoObserver(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), liveRole+"=observing")
	_, out := startPiped(t, cmd)
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(ended, 50); n != 0 || err != nil {
		t.Fatalf("the tool has ended by itself: %d, %v", n, err)
	}
	cmd.Process.Kill()
	_ = cmd.Wait()
	if n, err := unix.Poll(ended, int(liveLimit.Milliseconds()/4)); n != 1 || err != nil {
		t.Errorf("process %d outlives it by %v", pid, liveLimit/4)
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// What a tool takes is not known once its first process has gone: others may go on.
func TestToolWhoseFirstProcessHasGone(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	o, _ := answering(t)
	plan, err := loadgen.NewPlan(o.load)
	if err != nil {
		t.Fatal(err)
	}
	var l armLoad
	w := &observer{cmd: cmd}
	if err := l.measure(t.Context(), plan, o.pids, w); err != nil {
		t.Fatal(err)
	}
	if l.take(w); l.ToolMS != nil || l.BesideMS != nil || l.OthersMS != nil || l.TargetMS <= 0 {
		t.Errorf("%+v", l)
	}
}

// Where a tool has harmed the engine for good, what was complete before is kept, and the tool is named.
func TestToolThatHarms(t *testing.T) {
	o, broken := answering(t)
	o.blocks = 3
	starts := 0
	harms := arm{name: "harmful", observe: func(ctx context.Context, _ string) (*observer, error) {
		if starts++; starts == 2 {
			broken.Store(true)
		}
		return startTool(ctx, tool{"harmful", "exec sleep 60"}, o.pids, time.Millisecond)
	}}
	blocks, failed, err := o.run(t.Context(), []arm{{name: armBare}, {name: armAgain}, harms}, io.Discard)
	if len(blocks) != 1 || err == nil || !strings.Contains(err.Error(), "harmful harmed the engine") || failed["harmful"] == "" {
		t.Errorf("%d blocks, failed %v: %v", len(blocks), failed, err)
	}
}

func TestParseTools(t *testing.T) {
	got, err := parseTools([]string{"a b=exec x --y=z"})
	if err != nil || len(got) != 1 || got[0] != (tool{"a b", "exec x --y=z"}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][]string{{"x"}, {"=x"}, {"x= "}, {"nothing=x"}, {"stageline=x"}, {"a=x", "a=y"}} {
		if _, err := parseTools(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// The whole command on the live kernel: the recorder, a tool and one that fails, in one block. A load is
// longer than the recorder may go without looking at its ring.
func TestOverheadLive(t *testing.T) {
	needLive(t)
	e := startEngine(t, workDir(t), nil, "--cpu-bound", "--topology", "small")
	got := stageline(t, "overhead", "-u", e.URL, "-p", e.pids(), "-c", "2", "-n", "20", "--warmup", "2", "--blocks", "1", "--json",
		"--with", "idle=echo on; exec sleep 60", "--with", "lost=exit 3")
	got.want(t, exitInconclusive, "lost is left out", "fewer than 5 blocks")
	var c Comparison
	if err := json.Unmarshal([]byte(got.stdout), &c); err != nil {
		t.Fatalf("%v: %s", err, got.stdout)
	}
	if len(c.Arms) != 4 || len(c.Blocks) != 1 || len(c.Blocks[0]) != 4 {
		t.Fatalf("%d arms, blocks %v", len(c.Arms), c.Blocks)
	}
	rec := c.Blocks[0].of(armRecorder)
	if o := rec.Overhead; o == nil || o.Targets < len(e.PIDs) || *rec.ToolMS <= 0 || *rec.BesideMS <= 0 || rec.TargetMS <= 0 {
		t.Errorf("recorded load: %+v", rec)
	} else if all := *o.AttachCPUNS + *o.RecordingCPUNS + *o.EndCPUNS; all != o.ProcessCPUNS || *o.AttachCPUNS <= 0 || *o.EndCPUNS <= 0 ||
		*rec.ToolMS*1e6 > float64(*o.RecordingCPUNS) || o.DrainCPUNS <= 0 || o.DrainCPUNS > *o.RecordingCPUNS {
		t.Errorf("the recorder took %d + %d (%d of it the drain) + %d = %d ns by its own account, and %.0f ns during the load within the second",
			*o.AttachCPUNS, *o.RecordingCPUNS, o.DrainCPUNS, *o.EndCPUNS, o.ProcessCPUNS, *rec.ToolMS*1e6)
	}
	if lost := c.Arms[3]; lost.Failed == "" || lost.Ratios[0].At.Known() {
		t.Errorf("a tool that failed: %+v", lost)
	}
}

// A recorder that shares its process with the load is bounded by it; the programs' time is scaled
// and freed of what keeping it takes.
func TestOverheadFigures(t *testing.T) {
	o := &run.Overhead{FromNS: 0, ToNS: 1e9, CountedNS: 1e8, KeepingNS: 40, DrainCPUNS: 5, ProcessCPUNS: 9, SharesProcess: true,
		Programs: []run.ProgramCost{{Name: "a", Runs: 1000, RunNS: 100_000}, {Name: "b", Runs: 100, RunNS: 3000}}}
	if ns, ok := o.KernelNS(); !ok || ns != 600_000 {
		t.Errorf("programs %d ns, %v: want 10 × (100000 − 40000 + 0)", ns, ok)
	}
	if lo, hi := o.RecorderNS(); lo != 5 || hi != 9 {
		t.Errorf("recorder %d to %d", lo, hi)
	}
	recording := int64(7)
	o.RecordingCPUNS = &recording
	if lo, hi := o.RecorderNS(); lo != 5 || hi != 7 {
		t.Errorf("recorder without attaching and ending %d to %d", lo, hi)
	}
	o.SharesProcess, o.Programs, o.RecordingCPUNS = false, nil, nil
	if lo, hi := o.RecorderNS(); lo != 9 || hi != 9 {
		t.Errorf("recorder alone %d to %d", lo, hi)
	}
	if _, ok := o.KernelNS(); ok {
		t.Error("no program was counted, and its time is known")
	}
}
