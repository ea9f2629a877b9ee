package main

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
)

// costMeter measures what a recording takes. Its methods are called by one goroutine at a time.
type costMeter struct {
	out    run.Overhead
	progs  *attach.Programs
	begin  []run.ProgramCost
	atNS   [3]int64         // CPU time of this process when it began to attach, to record, and to end
	first  map[uint32]int64 // CPU time of each living target when it was first looked at
	last   map[uint32]int64 // and when it last was
	looked int64

	// The kernel keeps the programs' time in stretches: see statsOn.
	stats  io.Closer // nil: not now
	since  int64
	next   int64 // when the next begins
	failed bool
}

const (
	// lookEvery is how often the targets' CPU clocks are read, for those that end before the recording.
	lookEvery = int64(1e9)
	// In statsFor of each statsEvery the kernel keeps the programs' time. Doing so takes two clock readings
	// a run, as much as a short program itself: a tenth of that is paid, and the report scales what it
	// says. To begin and to end changes the kernel's code on all processors, so it is done seldom. The
	// first stretch begins when the recorder has long read /proc.
	statsEvery, statsFor, statsFirst = int64(4e9), int64(4e8), int64(4e8)
	// statsSlack lets a tick end a stretch that comes a little early: the next may be as long in coming
	// as a stretch is.
	statsSlack = int64(5e7)
)

// newCost begins the account of a recorder that is about to attach.
func newCost() *costMeter {
	return &costMeter{atNS: [3]int64{processCPU()}, first: map[uint32]int64{}, last: map[uint32]int64{}}
}

// attached begins the account of the recording itself: the targets' time until now is not in it.
func (c *costMeter) attached(p *attach.Programs) {
	c.progs = p
	c.begin, _ = p.Costs() // what cannot be read is left out of the table
	for pid := range c.first {
		if ns, ok := attach.CPUTime(pid); ok && ns >= c.last[pid] {
			c.first[pid], c.last[pid] = ns, ns
		}
	}
	c.out.FromNS, c.atNS[1] = run.Mono(), processCPU()
	c.next = c.out.FromNS + statsFirst
}

// ending closes the account of the recording; what comes until end is the ending.
func (c *costMeter) ending(drainNS int64) {
	o := &c.out
	o.ToNS, o.DrainCPUNS, c.atNS[2] = run.Mono(), drainNS, processCPU()
	for pid, from := range c.first {
		ns, ok := attach.CPUTime(pid)
		if !ok || ns < c.last[pid] { // gone, or its PID is another's by now
			c.exited(pid)
			continue
		}
		o.Targets++
		o.TargetCPUNS += ns - from
	}
	clear(c.first)
	c.pause(o.ToNS)
}

// count switches the keeping of the programs' time on or off, as its turn comes. A kernel that
// refuses leaves the time unknown.
func (c *costMeter) count(now int64) {
	switch {
	case c.stats != nil:
		if now-c.since >= statsFor-statsSlack {
			c.pause(now)
			c.next = c.since + statsEvery
		}
	case now >= c.next && !c.failed:
		s, err := attach.CountTime()
		if err != nil {
			c.failed = true
			return
		}
		c.stats, c.since = s, now
		if c.out.KeepingNS == 0 {
			c.out.KeepingNS, _ = attach.KeepingTime()
		}
	}
}

func (c *costMeter) pause(now int64) {
	if c == nil || c.stats == nil {
		return
	}
	c.out.CountedNS += now - c.since
	c.stats.Close()
	c.stats = nil
}

// target begins to count a process; one that was born during the recording is counted from zero.
func (c *costMeter) target(pid uint32, born bool) {
	if c.out.ToNS != 0 {
		return
	}
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

// exited closes the account of a process with its last look, because another may have its PID by now.
func (c *costMeter) exited(pid uint32) {
	from, known := c.first[pid]
	if !known {
		return
	}
	c.out.Targets++
	c.out.TargetsEnded++
	c.out.TargetCPUNS += c.last[pid] - from
	delete(c.first, pid)
	delete(c.last, pid)
}

// tick is called several times a second.
func (c *costMeter) tick(now int64) {
	if c.out.ToNS != 0 {
		return
	}
	c.count(now)
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
func (c *costMeter) end(shared bool) *run.Overhead {
	o := &c.out
	t := append(c.atNS[:], processCPU())
	attach, recording, ending := t[1]-t[0], t[2]-t[1], t[3]-t[2]
	o.AttachCPUNS, o.RecordingCPUNS, o.EndCPUNS = &attach, &recording, &ending
	o.ProcessCPUNS, o.SharesProcess = t[3]-t[0], shared
	now, err := c.progs.Costs()
	if err != nil || len(now) != len(c.begin) || o.CountedNS == 0 {
		return o
	}
	for i := range now {
		now[i].Runs -= c.begin[i].Runs
		now[i].RunNS -= c.begin[i].RunNS
	}
	o.Programs = now
	return o
}

func processCPU() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // always there
	return t.Nano()
}
