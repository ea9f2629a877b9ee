package loadgen

import (
	"context"
	"runtime"

	"github.com/stageline/stageline/collector/run"
	"golang.org/x/sys/unix"
)

const (
	// spinNS is how long before a deadline the pacer stops sleeping: a wake-up from clock_nanosleep
	// is late by the timer slack (50 µs) and by the time it takes to get a processor back.
	spinNS = 200_000
	// sleepNS bounds one sleep, so that a cancelled run ends soon.
	sleepNS = 20_000_000
)

// pace says what to do at nowNS to meet deadlineNS: go ahead (due), try again at once (wakeNS 0),
// or sleep until the absolute time wakeNS.
func pace(nowNS, deadlineNS int64) (wakeNS int64, due bool) {
	left := deadlineNS - nowNS
	switch {
	case left <= 0:
		return 0, true
	case left <= spinNS:
		return 0, false
	}
	return min(deadlineNS-spinNS, nowNS+sleepNS), false
}

// waitUntil returns true at deadlineNS or later, false when ctx ended first. The caller has locked
// its OS thread.
func waitUntil(ctx context.Context, deadlineNS int64) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		wake, due := pace(run.Mono(), deadlineNS)
		if due {
			return true
		}
		if wake > 0 {
			ts := unix.NsecToTimespec(wake)
			// EINTR needs no handling: the loop looks at the clock again.
			_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil)
		}
	}
}

// dispatch calls send for each of n planned requests at its absolute time and returns how many
// became due before ctx ended.
func dispatch(ctx context.Context, offsets []int64, startNS int64, send func(i int)) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, off := range offsets {
		if !waitUntil(ctx, startNS+off) {
			return i
		}
		send(i)
	}
	return len(offsets)
}
