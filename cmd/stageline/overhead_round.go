package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/loadgen"
)

// roundPair is two loads, one after the other. An A/A pair has no recorder in either, and the second
// is compared with the first.
type roundPair struct {
	noise bool
	loads [2]roundLoad
}

// roundLoad is what one load showed. Unknown figures are null.
type roundLoad struct {
	Recorded   bool          `json:"recorded"`
	Requests   int           `json:"requests"`
	Throughput *float64      `json:"throughput_per_s"`
	P50MS      *float64      `json:"jct_p50_ms"`
	P99MS      *float64      `json:"jct_p99_ms"`
	TargetMS   *float64      `json:"target_cpu_ms_per_request"`
	Overhead   *run.Overhead `json:"overhead"`
}

// planRounds draws the order: pairs of both kinds mixed, and in each pair with a recorder which load
// has it. Drift of the machine then falls on both sides alike.
func planRounds(pairs, noise int, seed uint64) []roundPair {
	rng := rand.New(rand.NewPCG(seed, 4))
	out := make([]roundPair, pairs+noise)
	for i := range out {
		out[i].noise = i >= pairs
		if !out[i].noise {
			out[i].loads[rng.IntN(2)].Recorded = true
		}
	}
	rng.Shuffle(len(out), func(a, b int) { out[a], out[b] = out[b], out[a] })
	return out
}

// round sends one load.
func (o *overheadOptions) round(ctx context.Context, dir string, record bool) (_ *roundLoad, err error) {
	plan, err := loadgen.NewPlan(o.load)
	if err != nil {
		return nil, err
	}
	got := &roundLoad{}
	if record {
		stop, errStart := o.observe(ctx, filepath.Join(dir, "run"))
		if errStart != nil {
			return nil, errStart
		}
		defer func() { // also when the load fails: no recorder is left behind
			cost, errStop := stop()
			got.Overhead = cost
			err = errors.Join(err, errStop)
		}()
	}
	pids := withChildren(o.pids)
	before := cpuTimes(pids)
	sum, err := loadgen.Run(ctx, plan, func(*run.Request) {})
	if err != nil {
		return nil, err
	}
	after := cpuTimes(pids)
	if sum.Success == 0 || sum.Success < sum.Planned {
		return nil, fmt.Errorf("%d of %d requests to %s succeeded: loads with failures cannot be compared: %s", sum.Success, sum.Planned, plan.Addr(), sum.FirstError)
	}
	got.Requests, got.Throughput = sum.Success, sum.Throughput
	if d := sum.JCTFromSend; d != nil {
		got.P50MS, got.P99MS = d.P50, d.P99
	}
	var cpu int64
	for pid, ns := range after {
		cpu += ns - before[pid]
	}
	ms := float64(cpu) / 1e6 / float64(sum.Success)
	got.TargetMS = &ms
	return got, nil
}

// observe starts the recorder, or what takes its place.
func (o *overheadOptions) observe(ctx context.Context, dir string) (stop func() (*run.Overhead, error), err error) {
	if o.instead != "" {
		return startInstead(ctx, o)
	}
	c, err := startChild(ctx, o.pids, dir)
	if err != nil {
		return nil, err
	}
	return c.stop, nil
}

// startInstead starts the user's command in a process group of its own, which is what is stopped.
func startInstead(ctx context.Context, o *overheadOptions) (stop func() (*run.Overhead, error), err error) {
	var list []string
	for pid := range cpuTimes(withChildren(o.pids)) {
		list = append(list, strconv.FormatUint(uint64(pid), 10))
	}
	cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(o.instead, "{{pids}}", strings.Join(list, ",")))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.instead, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return nil, fmt.Errorf("%s ended before the load: %v", o.instead, err)
	case <-ctx.Done():
	case <-time.After(o.settle):
	}
	return func() (*run.Overhead, error) {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // the group ends in the way it likes
		select {
		case <-ended:
		case <-time.After(stopGrace):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
		return nil, nil
	}, nil
}

func withChildren(pids []uint32) []uint32 {
	out := append([]uint32(nil), pids...)
	for _, p := range pids {
		out = append(out, attach.Children(p)...)
	}
	return out
}

// cpuTimes reads the CPU time of each process once, however often it is named.
func cpuTimes(pids []uint32) map[uint32]int64 {
	out := map[uint32]int64{}
	for _, p := range pids {
		if ns, ok := attach.CPUTime(p); ok {
			out[p] = ns
		}
	}
	return out
}

// childRecorder is `stageline record` in a process of its own.
type childRecorder struct {
	cmd *exec.Cmd
	dir string
	out *strings.Builder // what it said after it was ready; complete once done is closed
	// done is closed when its output has ended.
	done chan struct{}
}

// startChild returns once the probes are on.
func startChild(ctx context.Context, pids []uint32, dir string) (*childRecorder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start a recorder: %w", err)
	}
	names := make([]string, len(pids))
	for i, p := range pids {
		names[i] = strconv.FormatUint(uint64(p), 10)
	}
	c := &childRecorder{dir: dir, out: &strings.Builder{}, done: make(chan struct{})}
	c.cmd = exec.CommandContext(ctx, self, "record", "-p", strings.Join(names, ","), "-o", dir, "--unsealed")
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = stopGrace
	said, err := c.cmd.StderrPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start a recorder: %w", err)
	}
	lines := bufio.NewReader(said)
	first, err := lines.ReadString('\n')
	if err != nil || !strings.Contains(first, "recording") {
		rest, _ := io.ReadAll(lines)
		errWait := c.cmd.Wait()
		return nil, errors.Join(fmt.Errorf("the recorder did not start: %s%s", first, rest), errWait)
	}
	go func() {
		_, _ = io.Copy(c.out, lines) // ends with the process
		close(c.done)
	}()
	return c, nil
}

// stop ends the recording, takes from its run what it took, and removes the run.
func (c *childRecorder) stop() (*run.Overhead, error) {
	defer os.RemoveAll(c.dir)
	_ = c.cmd.Process.Signal(syscall.SIGINT) // one that has ended is reported by Wait
	kill := time.AfterFunc(stopGrace, func() { c.cmd.Process.Kill() })
	<-c.done
	err := c.cmd.Wait()
	kill.Stop()
	if err != nil {
		return nil, fmt.Errorf("the recorder did not end well: %w: %s", err, c.out)
	}
	r, err := run.Open(c.dir, run.OpenOptions{})
	if err != nil {
		return nil, fmt.Errorf("read what the recorder took: %w", err)
	}
	return r.Meta.Overhead, r.Close()
}
