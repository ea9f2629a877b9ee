package main

import (
	"io"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
)

// costMeter measures what a recording takes. begin and look and end are called by one goroutine at a
// time; the drain's thread clock is read by the drain alone.
type costMeter struct {
	out     run.Overhead
	stats   io.Closer // nil: the kernel does not keep the programs' time
	progs   []run.ProgramCost
	self    int64
	first   map[uint32]int64 // CPU time of each target when it was first looked at
	last    map[uint32]int64
	looked  int64
	drainNS int64
}

// lookEvery is how often the targets' CPU clocks are read, for those that end before the recording.
const lookEvery = int64(1e9)

// startCost switches the kernel's program statistics on. A kernel that refuses leaves them unknown.
func startCost(p *attach.Programs) *costMeter {
	c := &costMeter{first: map[uint32]int64{}, last: map[uint32]int64{}}
	if s, err := attach.CountTime(); err == nil {
		c.stats = s
	}
	c.progs, _ = p.Costs() // what cannot be read is left out of the table
	c.out.FromNS = run.Mono()
	c.self = processCPU()
	return c
}

// target begins to count a process; one that was born during the recording is counted from zero.
func (c *costMeter) target(pid uint32, born bool) {
	if _, known := c.first[pid]; known {
		return
	}
	ns, ok := attach.CPUTime(pid)
	if !ok {
		return
	}
	c.last[pid] = ns
	if born {
		ns = 0
	}
	c.first[pid] = ns
}

// look reads the targets' clocks again when that is due.
func (c *costMeter) look(now int64) {
	if now-c.looked < lookEvery {
		return
	}
	c.looked = now
	for pid := range c.first {
		if ns, ok := attach.CPUTime(pid); ok && ns >= c.last[pid] {
			c.last[pid] = ns
		}
	}
}

// end closes the account; the programs must still be loaded.
func (c *costMeter) end(p *attach.Programs, shared bool) *run.Overhead {
	o := &c.out
	o.ToNS, o.SharesProcess = run.Mono(), shared
	o.ProcessCPUNS, o.DrainCPUNS = processCPU()-c.self, c.drainNS
	for pid, from := range c.first {
		ns, ok := attach.CPUTime(pid)
		if !ok || ns < c.last[pid] { // gone, or its PID is another's by now
			ns = c.last[pid]
			o.TargetsEnded++
		}
		o.Targets++
		o.TargetCPUNS += ns - from
	}
	if c.stats == nil {
		return o
	}
	now, err := p.Costs()
	if err == nil && len(now) == len(c.progs) {
		for i := range now {
			now[i].Runs -= c.progs[i].Runs
			now[i].RunNS -= c.progs[i].RunNS
		}
		o.Programs = now
	}
	c.close()
	return o
}

func (c *costMeter) close() {
	if c != nil && c.stats != nil {
		c.stats.Close()
		c.stats = nil
	}
}

// onThread runs f on a thread of its own and adds that thread's CPU time to the drain's.
func (c *costMeter) onThread(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from := threadCPU()
	err := f()
	c.drainNS += threadCPU() - from
	return err
}

func threadCPU() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // always there
	return t.Nano()
}

func processCPU() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // always there
	return t.Nano()
}
