package drain

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/run"
)

type losses struct {
	nothing
	n map[string]uint64
}

func (l *losses) Loss(r *run.Loss) { l.n[r.Reason] += r.N }

// The programs tell when a counter of losses moves: each time, and not otherwise.
func TestLossesAreTold(t *testing.T) {
	const ring, record = 1 << 14, 96
	d := ownDrainOf(t, ring)
	sink := &losses{n: map[string]uint64{}}
	d.cfg.Sink = sink
	look := func() (n uint64) {
		t.Helper()
		if err := d.empty(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.housekeeping(run.Mono()); err != nil {
			t.Fatal(err)
		}
		n = sink.n["ring-full"]
		clear(sink.n)
		return n
	}
	look() // what came before the programs' word could be read
	event, err := unix.Eventfd(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(event)
	for round := range 3 {
		if n := look(); n != 0 {
			t.Errorf("round %d: %d records lost before any was", round, n)
		}
		if moved, err := d.loss.moved(); moved || err != nil {
			t.Errorf("round %d: counters are read while nothing is lost: %v", round, err)
		}
		for range 2 * ring / record {
			if _, err := unix.Write(event, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
		}
		if n := look(); n == 0 {
			t.Errorf("round %d: no loss told of a ring that was written over twice", round)
		}
	}
}

func TestInterval(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		what  string
		ring  int
		came  uint64
		since time.Duration
		want  time.Duration
	}{
		{"nothing comes", 64 * mib, 0, busyInterval, quietInterval},
		{"what fits in a share of the ring until the next look", 64 * mib, mib, quietInterval, quietInterval},
		{"more than fits", 64 * mib, mib + 1, quietInterval, busyInterval},
		{"as much in a quarter of the time", 64 * mib, mib, quietInterval / 4, busyInterval},
		{"the smallest ring", mib, 0, busyInterval, quietInterval},
		{"a ring too small for a burst", mib / 2, 0, busyInterval, busyInterval},
	} {
		if got := intervalFor(c.ring, c.came, c.since); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
