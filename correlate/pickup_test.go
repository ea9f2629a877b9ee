package correlate

import (
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// The I/O thread 21 receives at 100 and signals to the loop 20 over endpoint 5.
func TestTakenBy(t *testing.T) {
	sleep := func(out, in int64) run.OffCPU {
		return run.OffCPU{OutNS: out, WakeNS: in, InNS: in, State: run.OffSleep, Call: callPoll}
	}
	const never = int64(^uint64(0) >> 1)
	for _, c := range []struct {
		name       string
		gave, took []signal
		io, loop   []run.OffCPU
		want       int64
	}{
		{"signalled, read, handled before the loop waits again", []signal{{110, 111, 5}}, []signal{{130, 131, 5}},
			[]run.OffCPU{sleep(120, 900)}, []run.OffCPU{sleep(50, 125), sleep(160, 800)}, 160},
		{"several in one call: the last signal before it sleeps may be for this one", []signal{{110, 111, 5}, {118, 119, 5}}, []signal{{112, 113, 5}, {140, 141, 5}},
			[]run.OffCPU{sleep(120, 900)}, []run.OffCPU{sleep(50, 111), sleep(114, 139), sleep(170, 800)}, 170},
		{"a signal after it slept is for others", []signal{{130, 131, 5}}, []signal{{140, 141, 5}},
			[]run.OffCPU{sleep(120, 125)}, []run.OffCPU{sleep(170, 800)}, never},
		{"no signal: the loop was awake", nil, []signal{{140, 141, 5}},
			[]run.OffCPU{sleep(120, 125)}, []run.OffCPU{sleep(170, 800)}, never},
		{"the loop read before the signal alone", []signal{{110, 111, 5}}, []signal{{105, 106, 5}},
			[]run.OffCPU{sleep(120, 900)}, []run.OffCPU{sleep(160, 800)}, never},
		{"read from another endpoint", []signal{{110, 111, 5}}, []signal{{130, 131, 6}},
			[]run.OffCPU{sleep(120, 900)}, []run.OffCPU{sleep(160, 800)}, never},
		{"the I/O thread was not seen to sleep", []signal{{110, 111, 5}}, []signal{{130, 131, 5}},
			nil, []run.OffCPU{sleep(160, 800)}, never},
	} {
		x := newProcess(0)
		x.threads[21], x.threads[20] = &thread{tid: 21, gave: c.gave, off: c.io}, &thread{tid: 20, took: c.took, off: c.loop}
		x.roles.gives[tidEP{21, 5}], x.roles.takes[tidEP{20, 5}] = 9, 9
		w := &window{p: x, role: roles{io: 21, loop: 20, compute: []uint32{22}}}
		if got := w.takenBy(100); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
