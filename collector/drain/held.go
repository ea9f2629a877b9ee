package drain

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/bpf"
	"github.com/stageline/stageline/collector/run"
)

// No hook tells that a socket or pipe was closed: a hook on close would cost every close of the
// target. So endpoints that have long been silent are looked up at the descriptors they were last
// used by.

const (
	// heldChecks is how many endpoints one look at the table asks for: each is a stat of
	// /proc/PID/fd/N, about 2 µs. Where more are silent they are gone through in heldTurns looks,
	// so that no rate of new ones outruns their being forgotten.
	heldChecks = 100
	heldTurns  = 50
	// heldEvery is how often a silent endpoint is asked for.
	heldEvery = closedAfter
)

// holder is a descriptor by which an endpoint was used.
type holder struct {
	tgid uint32
	fd   int32
}

// sweepHeld asks for some of the silent endpoints whether who used them last still holds them.
func (d *Drain) sweepHeld(now int64) {
	if len(d.toAsk) == 0 {
		if now-d.askedNS < heldEvery {
			return
		}
		d.askedNS = now
		for _, e := range d.eps {
			if e.ends != endBoth && now-e.lastNS > closedAfter {
				d.toAsk = append(d.toAsk, e)
			}
		}
		d.askAtOnce = len(d.toAsk) / heldTurns
	}
	n := min(max(heldChecks, d.askAtOnce), len(d.toAsk))
	for _, e := range d.toAsk[:n] {
		if d.eps[e.key] == e && now-e.lastNS > closedAfter {
			e.ends = max(e.ends, e.heldEnds())
		}
	}
	d.toAsk = d.toAsk[n:]
}

// heldEnds says what follows from the descriptors. A direction that another process goes on to use
// after a long silence is announced again.
func (e *endpoint) heldEnds() ending {
	held, gone := 0, 0
	for _, h := range e.by {
		switch {
		case h.tgid == 0:
		case holds(h, e.key):
			held++
		default:
			gone++
		}
	}
	switch {
	case held == 0 && gone == 0: // announced, and what was announced was lost
		return endHalf
	case gone == 0:
		return endOpen
	case held == 0:
		return endBoth
	}
	return endHalf
}

// holds tells whether a descriptor still stands for an object; true when that cannot be read.
func holds(h holder, key bpf.StagelineSlEp) bool {
	if run.Transport(key.Transport) == run.TransportEventFD {
		return holdsEvent(h, key.Ino)
	}
	var st unix.Stat_t
	err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", h.tgid, h.fd), &st)
	if err != nil {
		return !errors.Is(err, unix.ENOENT)
	}
	return st.Ino == key.Ino
}

// holdsEvent: all eventfds share one inode; their own number stands in fdinfo.
func holdsEvent(h holder, id uint64) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", h.tgid, h.fd))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH)
	}
	return strings.Contains(string(b), fmt.Sprintf("eventfd-id: %d\n", id))
}
