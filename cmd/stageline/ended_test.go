package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// However many processes end, what is kept of them is bounded, and what is left out is counted.
func TestEndedTargets(t *testing.T) {
	var e endedTargets
	const n = 2*maxEnded + 1
	for i := range uint32(n) {
		e.add(&run.Proc{TGID: i, Comm: "worker", Target: true})
		e.exit(&run.Proc{TGID: i, Comm: "worker", ExitCode: int32(i<<8&0xff00 | i%2*9)})
	}
	if len(e.listed) != maxEnded || e.unlisted != n-maxEnded || !e.listed[0].Named {
		t.Errorf("%d listed and %d not, of %d", len(e.listed), e.unlisted, n)
	}
	var out strings.Builder
	e.say(&out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != maxEnded+1 || !strings.HasSuffix(lines[maxEnded], ": 1001 more processes ended while they were recorded") ||
		!strings.Contains(lines[4], "process 4 (worker) exited with status 4 ") || !strings.Contains(lines[5], "process 5 (worker) was killed by signal 9 ") {
		t.Errorf("%d lines: %q, %q … %q", len(lines), lines[4], lines[5], lines[len(lines)-1])
	}
}

// The cost of the dead is in the sum, and no entry of them stays; a PID that comes again is another's.
func TestCostOfTheEnded(t *testing.T) {
	c := newCost()
	const pid = 1 << 22 // beyond the largest
	for i := range int64(5) {
		c.first[pid], c.last[pid] = 10, 10+i
		c.exited(pid)
		c.exited(pid)
	}
	c.first[pid], c.last[pid] = 100, 101 // of no process any more
	c.ending(0)
	c.target(1, true)
	if o := c.out; o.Targets != 6 || o.TargetsEnded != 6 || o.TargetCPUNS != 0+1+2+3+4+1 || len(c.first)+len(c.last) != 0 {
		t.Errorf("%d targets, %d ended, %d ns; entries of %d and %d", o.Targets, o.TargetsEnded, o.TargetCPUNS, len(c.first), len(c.last))
	}
}

// A child that the first look at its parent finds, and whose birth is then read from the ring, is one
// target and has not ended.
func TestCostOfTheFoundTwice(t *testing.T) {
	c, pid := newCost(), uint32(os.Getpid())
	c.target(pid, false)
	from := c.first[pid]
	c.target(pid, true)
	c.ending(0)
	if o := c.out; o.Targets != 1 || o.TargetsEnded != 0 || from == 0 || o.TargetCPUNS >= from {
		t.Errorf("%d targets, %d ended, %d ns since it had used %d", o.Targets, o.TargetsEnded, o.TargetCPUNS, from)
	}
}
