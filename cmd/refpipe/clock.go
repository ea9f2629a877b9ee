package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// monoClock reads CLOCK_MONOTONIC through Go's own vDSO clock: a system call of
// its own would show in the kernel what truth must not show.
type monoClock struct {
	base   time.Time
	baseNS int64
}

// newMonoClock ties Go's clock to CLOCK_MONOTONIC by the tightest of many
// brackets; its error is below half of one system call.
func newMonoClock() (*monoClock, error) {
	best := &monoClock{}
	width := time.Hour
	for range 2000 {
		var ts unix.Timespec
		before := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return nil, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
		}
		if w := time.Since(before); w < width {
			width = w
			best.base, best.baseNS = before, ts.Nano()-int64(w/2)
		}
	}
	return best, nil
}

// Now returns CLOCK_MONOTONIC in nanoseconds.
func (c *monoClock) Now() int64 { return c.baseNS + int64(time.Since(c.base)) }
