package shadow

import (
	"github.com/stageline/stageline/collector/attach"
)

// maxEvents bounds what a register keeps of hits whose messages no look has found yet.
const maxEvents = 1024

// event is a flag that was set to 1, from a hit.
type event struct {
	atNS  int64
	tid   uint32
	chunk int // -1: one of the register's, not known yet which
}

// track makes events of the hits of one register.
//
// The writer alone changes written flags, so each of its hits that shows one of them up and the hit
// before it down is that flag being set. A reader's flags are put down by the writer, between its own
// hits; but it sets them in order, each with one write, so that one that is known tells the others.
// Which is the first one shows by the writer's hits on the same 8 bytes, or by a look.
type track struct {
	register
	flagsNow [word]byte // at the last hit, or when watching began
	seq      uint64
	last     int     // index of the chunk that the last hit was about; -1 unknown
	fromNS   int64   // before it nothing is known of this register
	events   []event // not matched yet, in order
	hits     uint64
	lost     uint64
}

// newTrack begins with the flags as they are once the register is armed, at a time.
func newTrack(r register, meta []byte, nowNS int64) *track {
	t := &track{register: r, last: -1, fromNS: nowNS}
	copy(t.flagsNow[:], meta[r.word:])
	return t
}

func (t *track) hit(h *attach.Hit) {
	t.hits++
	if h.Seq != t.seq+1 {
		if h.Seq > t.seq {
			t.lost += h.Seq - t.seq - 1
		}
		// Until this hit, any flag may have been set.
		t.seq, t.flagsNow = h.Seq, h.Flags
		t.lose(h.AtNS)
		return
	}
	rose := t.rose(h.Flags)
	t.seq, t.flagsNow = h.Seq, h.Flags
	if h.AtNS < t.fromNS {
		return
	}
	switch {
	case t.reader < 0 && rose >= 0:
		t.add(event{h.AtNS, h.TID, t.chunks[rose]})
	case t.reader >= 0:
		t.last = t.readNow(rose, &h.Flags)
		e := event{h.AtNS, h.TID, -1}
		if t.last >= 0 {
			e.chunk = t.chunks[t.last]
		}
		t.add(e)
	}
}

// rose is the index of the one flag that is 1 now and was not at the last hit; -1 none, or several.
func (t *track) rose(now [word]byte) int {
	found := -1
	for i, f := range t.flags {
		if now[f] == 1 && t.flagsNow[f] != 1 {
			if found >= 0 {
				return -1
			}
			found = i
		}
	}
	return found
}

// readNow is the index of the chunk that a reader's hit is about.
func (t *track) readNow(rose int, now *[word]byte) int {
	if t.last < 0 {
		return rose
	}
	next := (t.last + 1) % len(t.flags)
	if now[t.flags[next]] != 1 || rose >= 0 && rose != next {
		return -1 // not the protocol that is known
	}
	return next
}

func (t *track) add(e event) {
	if len(t.events) == maxEvents {
		t.lose(e.atNS)
		return
	}
	t.events = append(t.events, e)
}

// lose forgets what was known: what happened up to a time may have gone unseen.
func (t *track) lose(untilNS int64) {
	t.last, t.fromNS, t.events = -1, untilNS+1, t.events[:0]
}

// find is the first event of a chunk from a time on; nil when there is none.
func (t *track) find(chunk int, fromNS int64) *event {
	for i := range t.events {
		if e := &t.events[i]; e.chunk == chunk && e.atNS >= fromNS {
			return e
		}
	}
	return nil
}

// again reports that an event's chunk had another one by a time: the ring went round, and which of
// the two is that of the message that a look found is not certain.
func (t *track) again(e *event, toNS int64) bool {
	n := 0
	for i := range t.events {
		if o := &t.events[i]; o.chunk == e.chunk && o.atNS >= e.atNS && o.atNS <= toNS {
			n++
		}
	}
	return n > 1
}

// learn names a reader's hits that are not known, by the only one of them in an interval in which a
// chunk was seen to be taken.
func (t *track) learn(chunk int, fromNS, toNS int64) {
	k, first, n := t.indexOf(chunk), -1, 0
	for i := range t.events {
		if e := &t.events[i]; e.atNS >= fromNS && e.chunk >= 0 {
			return
		} else if e.atNS >= fromNS && e.atNS <= toNS {
			if n++; n == 1 {
				first = i
			}
		}
	}
	if n != 1 || k < 0 || t.last >= 0 {
		return
	}
	for i := range t.events[first:] {
		t.events[first+i].chunk = t.chunks[(k+i)%len(t.chunks)]
	}
	t.last = (k + len(t.events) - 1 - first) % len(t.chunks)
}

// putDown notes read flags that a hit of the writer shows to be 0.
func (t *track) putDown(flags [word]byte) {
	for _, f := range t.flags {
		if flags[f] == 0 {
			t.flagsNow[f] = 0
		}
	}
}

func (t *track) indexOf(chunk int) int {
	for i, c := range t.chunks {
		if c == chunk {
			return i
		}
	}
	return -1
}

// take removes an event and those before it: their chunks come before it, so they will not be asked
// for any more.
func (t *track) take(e *event) {
	for i := range t.events {
		if &t.events[i] == e {
			t.events = append(t.events[:0], t.events[i+1:]...)
			return
		}
	}
}
