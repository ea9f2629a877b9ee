package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/loadgen"
)

// armLoad is what one load showed. Unknown figures are null. CPU times are those between the start
// and the end of the load, its warm-up requests included in both time and number of requests.
type armLoad struct {
	Arm        string   `json:"arm"`
	Requests   int      `json:"requests"` // measured ones, all successful
	All        int      `json:"requests_with_warmup"`
	WallS      float64  `json:"wall_s"` // warm-up too
	Throughput *float64 `json:"throughput_per_s"`
	P50MS      *float64 `json:"jct_p50_ms"`
	P99MS      *float64 `json:"jct_p99_ms"`
	TargetMS   float64  `json:"target_cpu_ms"`
	HostMS     float64  `json:"host_cpu_time_ms"` // cores × wall
	// OthersMS is what neither the targets, this process, nor the observer used, and what the
	// hypervisor took. From /proc/stat, in steps of 10 ms a core.
	OthersMS *float64 `json:"others_cpu_ms"`
	// ToolMS is the observer's CPU time during the load, of its whole process tree; BesideMS all the
	// rest of it: attaching, detaching, writing up. KernelMS is that of the kernel programs, in
	// whichever process they ran; it is part of that process's time.
	ToolMS   *float64 `json:"tool_cpu_ms"`
	BesideMS *float64 `json:"tool_attach_and_end_cpu_ms"`
	KernelMS *float64 `json:"kernel_programs_ms"`
	Said     *bool    `json:"tool_said_it_was_ready"`

	Overhead *run.Overhead `json:"overhead,omitempty"` // the recorder's own account

	times map[string]float64 // JCT in ms by request id
}

// measure sends the load; w is nil when nothing observes it.
func (l *armLoad) measure(ctx context.Context, plan *loadgen.Plan, pids []uint32, w *observer) error {
	pids = withChildren(pids)
	l.times = map[string]float64{}
	take := func(r *run.Request) {
		if r.Retried {
			return
		}
		l.All++
		if r.State == run.StateSuccess && r.Class != "warmup" && r.SentNS != nil && r.EndNS != nil {
			l.times[r.ID] = float64(*r.EndNS-*r.SentNS) / 1e6
		}
	}
	var tool int64
	known := true
	if w != nil {
		tool, known = w.cpu()
	}
	before, self, host, from := cpuTimes(pids), processCPU(), readHost(), run.Mono()
	sum, err := loadgen.Run(ctx, plan, take)
	if err != nil {
		return err
	}
	after, wall, now := cpuTimes(pids), run.Mono()-from, readHost()
	own := processCPU() - self
	if w != nil {
		now, still := w.cpu()
		if tool, known = now-tool, known && still; known {
			ms := float64(tool) / 1e6
			l.ToolMS = &ms
		}
	}
	if sum.Success == 0 || sum.Success < sum.Planned {
		return fmt.Errorf("%d of %d requests to %s succeeded: loads with failures cannot be compared: %s", sum.Success, sum.Planned, plan.Addr(), sum.FirstError)
	}
	l.Requests, l.Throughput, l.WallS = sum.Success, sum.Throughput, float64(wall)/1e9
	if d := sum.JCTFromSend; d != nil {
		l.P50MS, l.P99MS = d.P50, d.P99
	}
	var cpu int64
	for pid, ns := range after {
		cpu += ns - before[pid]
	}
	l.TargetMS, l.HostMS = float64(cpu)/1e6, float64(now.cores)*float64(wall)/1e6
	if known && host.cores > 0 && now.cores == host.cores {
		ms := max(0, float64(now.taken-host.taken)/1e6-float64(cpu+own+tool)/1e6)
		l.OthersMS = &ms
	}
	return nil
}

// take adds what is known of an observer once it has ended.
func (l *armLoad) take(w *observer) {
	l.Said = &w.said
	if l.ToolMS != nil {
		ms := max(0, float64(w.total)/1e6-*l.ToolMS)
		l.BesideMS = &ms
	}
}

// account reads the recorder's own account from its run, and removes the run.
func (l *armLoad) account(dir string) error {
	defer os.RemoveAll(dir)
	r, err := run.Open(dir, run.OpenOptions{})
	if err != nil {
		return fmt.Errorf("read what the recorder took: %w", err)
	}
	if l.Overhead = r.Meta.Overhead; l.Overhead != nil {
		// The time was kept in parts of the recording that lie in the load, but for its edges.
		if ns, ok := l.Overhead.KernelNS(); ok && l.Overhead.ToNS > l.Overhead.FromNS {
			ms := float64(ns) / 1e6 * l.WallS * 1e9 / float64(l.Overhead.ToNS-l.Overhead.FromNS)
			l.KernelMS = &ms
		}
	}
	return r.Close()
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

// hostCPU is what /proc/stat says of the whole host.
type hostCPU struct {
	cores int
	taken int64 // ns since boot in which a core was not idle, or not given to this machine
}

// readHost has no cores where /proc/stat cannot be read.
func readHost() (h hostCPU) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return h
	}
	const tick = int64(10 * time.Millisecond) // USER_HZ is 100 on x86-64
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		switch {
		case len(f) < 9 || !bytes.HasPrefix(f[0], []byte("cpu")):
		case len(f[0]) > 3:
			h.cores++
		default:
			for _, i := range []int{1, 2, 3, 6, 7, 8} { // user, nice, system, irq, softirq, steal
				n, _ := strconv.ParseInt(string(f[i]), 10, 64) // the kernel writes numbers
				h.taken += n * tick
			}
		}
	}
	return h
}
