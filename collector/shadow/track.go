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
	chunk int
}

// track makes events of the hits of one register.
//
// A hit says which register, not which of its flags, and may be one for nothing: emulated processors
// report a register beside the one that was hit. So it counts only where exactly one flag is up that
// was down before. The writer alone changes written flags, so its own hits tell both. A reader's flags
// are put down by the writer, whose hits on the same 8 bytes tell that.
type track struct {
	register
	flagsNow [word]byte // at the last hit, or when watching began
	seq      uint64
	fromNS   int64   // before it nothing is known of this register
	events   []event // not matched yet, in order
	hits     uint64
}

// newTrack begins with the flags as they are once the register is armed, at a time.
func newTrack(r register, meta []byte, nowNS int64) *track {
	t := &track{register: r, fromNS: nowNS}
	copy(t.flagsNow[:], meta[r.word:])
	return t
}

func (t *track) hit(h *attach.Hit) {
	t.hits++
	if h.Seq != t.seq+1 {
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
	if rose >= 0 {
		t.add(event{h.AtNS, h.TID, t.chunks[rose]})
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

func (t *track) add(e event) {
	if len(t.events) == maxEvents {
		t.lose(e.atNS)
		return
	}
	t.events = append(t.events, e)
}

// lose forgets what was known: what happened up to a time may have gone unseen.
func (t *track) lose(untilNS int64) {
	t.fromNS, t.events = untilNS+1, t.events[:0]
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
