package drain

import "github.com/stageline/stageline/collector/run"

// baseVotes collects what sends say about the alignment of a channel: the sender's position minus
// the receiver's position of the same byte. A receive in flight during the observation makes it
// wrong by that receive, so single observations are outvoted.
type baseVotes struct {
	count   map[int64]uint32
	total   uint32
	firstNS int64
	lastNS  int64
	sent    int64 // base last written
	written bool
	dirty   bool
}

const (
	baseMaxValues = 64               // distinct observations kept; more means the channel cannot be aligned
	baseAlone     = 20 * 1000 * 1000 // ns after which an uncontradicted single observation is believed
)

func (v *baseVotes) add(base, atNS int64) {
	if _, ok := v.count[base]; !ok && len(v.count) >= baseMaxValues {
		v.total++
		return
	}
	v.count[base]++
	v.total++
	if v.firstNS == 0 {
		v.firstNS = atNS
	}
	v.lastNS = atNS
	v.dirty = true
}

// leader returns the most frequent observation; ties go to the smaller distance from zero, then to
// the smaller value, so that the outcome does not depend on map order.
func (v *baseVotes) leader() (base int64, n, second uint32) {
	for b, c := range v.count {
		switch {
		case c > n || (c == n && (abs(b) < abs(base) || (abs(b) == abs(base) && b < base))):
			if n > second {
				second = n
			}
			base, n = b, c
		case c > second:
			second = c
		}
	}
	return base, n, second
}

// emit writes the leading base when it is settled and new, and once more with all votes at the end.
func (v *baseVotes) emit(d *Drain, e *endpoint, now int64, final bool) {
	if !v.dirty || v.total == 0 {
		return
	}
	base, n, second := v.leader()
	settled := n > second && (n >= 2 || now-v.firstNS > baseAlone || final)
	if !settled || (v.written && v.sent == base && !final) {
		return
	}
	to := d.peer(e)
	if to == nil {
		return
	}
	v.sent, v.written = base, true
	v.dirty = !final
	d.cfg.Sink.Base(&run.Base{Sender: e.id, Receiver: to.id, Base: base, Votes: n, Against: v.total - n, FirstNS: v.firstNS, LastNS: v.lastNS})
}

func abs(v int64) int64 {
	if v < 0 {
		return -v
	}
	return v
}
