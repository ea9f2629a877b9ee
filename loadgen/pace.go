package loadgen

import (
	"context"
	"runtime"
	"unsafe"

	"github.com/stageline/stageline/collector/run"
	"golang.org/x/sys/unix"
)

const (
	// minSpinNS and maxSpinNS bound how long before a deadline the pacer stops sleeping. A wake-up is
	// late by the time it takes to get a processor; the pacer learns how long that is here.
	minSpinNS = 5_000
	maxSpinNS = 200_000
	// spinShare is the largest part of the time that may go into spinning, as 1/spinShare: on a host
	// that the system under test shares, a processor spent on exact sending is missing there. With 200 µs
	// before each of 5000 requests a second it would be a whole one.
	spinShare = 8
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
type pacer struct {
	lateNS int64 // learned lateness of wake-ups
	gapNS  int64 // recent mean between deadlines
	lastNS int64

	keepsPlace bool
}

// met notes a deadline that was met, for the mean gap.
func (p *pacer) met(deadlineNS int64) {
	if p.lastNS != 0 {
		p.gapNS += (min(deadlineNS-p.lastNS, spinShare*maxSpinNS) - p.gapNS) / 16
	}
	p.lastNS = deadlineNS
}

// spinNS is how long to spin before the next deadline.
func (p *pacer) spinNS() int64 { return min(p.lateNS, p.gapNS/spinShare) }

// newPacer locks the calling goroutine to its thread and prepares that: the kernel's timer slack
// (50 µs by default) is switched off for it, and it is scheduled before others if that is allowed. end
// undoes it all.
func newPacer() (p *pacer, end func()) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	setPolicy(unix.SCHED_FIFO, pacerPriority)
	p = &pacer{lateNS: maxSpinNS / 4, gapNS: spinShare * maxSpinNS, keepsPlace: runtime.GOMAXPROCS(0) > runtime.NumCPU()}
	return p, func() {
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
		wake, due := pace(run.Mono(), deadlineNS, p.spinNS())
		if due {
			p.met(deadlineNS)
			return true
		}
		if wake > 0 {
			p.sleep(wake)
		}
	}
}

// sleep sleeps until the absolute time wakeNS and learns from how late it wakes.
//
// Where the scheduler has more places for threads than there are processors, the pacer keeps its own
// while it sleeps: the place would be given to a worker, and to get one back the pacer would have to
// wait for a thread that may itself be waiting for a processor. A signal (the collector's wish to stop
// the world) ends the sleep early, so that nothing waits for it.
func (p *pacer) sleep(wakeNS int64) {
	ts := unix.NsecToTimespec(wakeNS)
	var err error
	if p.keepsPlace {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		if errno != 0 {
			err = errno
		}
	} else {
		err = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil)
	}
	// EINTR needs no handling: the caller looks at the clock again.
	if err == nil {
		p.lateNS = adaptSpin(p.lateNS, run.Mono()-wakeNS)
	}
}
