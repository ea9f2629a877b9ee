package loadgen

import (
	"context"
	"runtime"

	"github.com/stageline/stageline/collector/run"
	"golang.org/x/sys/unix"
)

const (
	// minSpinNS and maxSpinNS bound how long before a deadline the pacer stops sleeping. A wake-up is
	// late by the time it takes to get a processor; the pacer learns how long that is here, because a
	// fixed 200 µs would take a fifth of a processor at 1000 requests a second, from the system under
	// test where both share a host.
	minSpinNS = 15_000
	maxSpinNS = 200_000
	// sleepNS bounds one sleep, so that a cancelled run ends soon.
	sleepNS = 20_000_000
	// pacerPriority is the lowest real-time one. The pacer's thread needs little time, but that at once;
	// a nice value would not do, because it counts only within a session (sched_autogroup).
	pacerPriority = 1
)

// pace says what to do at nowNS to meet deadlineNS: go ahead (due), try again at once (wakeNS 0),
// or sleep until the absolute time wakeNS.
func pace(nowNS, deadlineNS, spinNS int64) (wakeNS int64, due bool) {
	left := deadlineNS - nowNS
	switch {
	case left <= 0:
		return 0, true
	case left <= spinNS:
		return 0, false
	}
	return min(deadlineNS-spinNS, nowNS+sleepNS), false
}

// adaptSpin moves the spin towards the lateness of the wake-ups, up in large steps and down in small
// ones, so that about nine of ten fall within it.
func adaptSpin(spinNS, lateNS int64) int64 {
	d := lateNS - spinNS
	if d > 0 {
		spinNS += d / 4
	} else {
		spinNS += d / 32
	}
	return min(max(spinNS, minSpinNS), maxSpinNS)
}

// pacer waits for absolute times on a thread of its own.
type pacer struct{ spinNS int64 }

// newPacer locks the calling goroutine to its thread and prepares that: the kernel's timer slack
// (50 µs by default) is switched off for it, and it is scheduled before others if that is allowed. end
// undoes it all.
func newPacer() (p *pacer, end func()) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	setPolicy(unix.SCHED_FIFO, pacerPriority)
	return &pacer{spinNS: 2 * minSpinNS}, func() {
		setPolicy(unix.SCHED_NORMAL, 0)
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // 0: back to the default
		runtime.UnlockOSThread()
	}
}

// setPolicy sets the scheduling policy of the calling thread. It is refused without privilege; the lag says what
// that costs.
func setPolicy(policy, priority uint32) {
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
}

// waitUntil returns true at deadlineNS or later, false when ctx ended first.
func (p *pacer) waitUntil(ctx context.Context, deadlineNS int64) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		wake, due := pace(run.Mono(), deadlineNS, p.spinNS)
		if due {
			return true
		}
		if wake > 0 {
			p.sleep(wake)
		}
	}
}

// sleep sleeps until the absolute time wakeNS and learns from how late it wakes.
func (p *pacer) sleep(wakeNS int64) {
	ts := unix.NsecToTimespec(wakeNS)
	// EINTR needs no handling: the caller looks at the clock again.
	if unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == nil {
		p.spinNS = adaptSpin(p.spinNS, run.Mono()-wakeNS)
	}
}
