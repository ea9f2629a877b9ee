package shadow

import (
	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
)

// patienceNS is how long the end of a message waits for its hit after a look has found it. A trap is
// over within microseconds; on a busy virtual machine it may be held up.
const patienceNS = 20e6

// end is one end of a message that was found by a look, with the times of that, on its way to become
// a record.
type end struct {
	msg     run.Message
	chunk   int
	reader  int // -1: put there
	put     *end
	foundNS int64
	exact   bool
	out     found
}

// found notes an end. Ends of a ring are handed on in the order in which they are found.
func (r *ring) foundEnd(e *end) {
	e.foundNS = e.msg.LastExitNS
	if len(r.tracks) == 0 {
		r.hand(e)
		return
	}
	r.waiting = append(r.waiting, e)
}

// hand makes the records of an end: what is put there is put there for each reader.
func (r *ring) hand(e *end) {
	if e.reader >= 0 {
		e.out.message(&e.msg)
		return
	}
	for _, ep := range r.ep {
		e.msg.EP = ep
		e.out.message(&e.msg)
	}
}

// settle hands on the ends whose hits have come, or will not.
func (r *ring) settle(nowNS int64) {
	n := 0
	for ; n < len(r.waiting); n++ {
		e := r.waiting[n]
		t := r.trackOf(e.chunk, e.reader)
		switch {
		case t == nil || e.msg.FirstEnterNS < t.fromNS:
			r.bounded++
		case r.fuse(e, t):
			r.exact++
		case e.msg.FirstEnterNS < t.fromNS: // just found out
			r.bounded++
		case nowNS < e.foundNS+patienceNS:
			r.waiting = append(r.waiting[:0], r.waiting[n:]...)
			return
		default: // one that comes now would be taken for that of the next lap
			t.lose(nowNS)
			r.bounded++
		}
		r.hand(e)
	}
	r.waiting = r.waiting[:0]
}

// trackOf is the register that watches a flag of a chunk; nil when none does.
func (r *ring) trackOf(chunk, reader int) *track {
	for _, t := range r.tracks {
		if t.reader == reader && t.indexOf(chunk) >= 0 {
			return t
		}
	}
	return nil
}

// fuse gives an end the time of its hit. The clock is read in the trap that follows the write, and
// others can see the write before: the look, or a reader that was done before the clock was read, may
// narrow it.
func (r *ring) fuse(e *end, t *track) bool {
	m := &e.msg
	ev := t.find(e.chunk, m.FirstEnterNS)
	if ev == nil {
		return false
	}
	if t.again(ev, m.LastExitNS) {
		t.lose(m.LastExitNS)
		return false
	}
	at := min(ev.atNS, m.LastExitNS)
	if e.reader < 0 {
		for i := range r.readers {
			if o := r.trackOf(e.chunk, i); o != nil {
				if x := o.find(e.chunk, m.FirstEnterNS); x != nil {
					at = min(at, x.atNS)
				}
			}
		}
	} else if e.put.exact {
		at = max(at, e.put.msg.FirstEnterNS)
	}
	m.FirstEnterNS, m.FirstExitNS, m.LastEnterNS, m.LastExitNS, m.TID = at, at, at, at, ev.tid
	e.exact = true
	t.take(ev)
	return true
}

// hit passes a hit on to its register, and to those of the readers what it says of their flags.
func (r *ring) hit(t *track, h *attach.Hit) {
	t.hit(h)
	if t.reader >= 0 {
		return
	}
	for _, o := range r.tracks {
		if o.reader >= 0 && o.word == t.word {
			o.putDown(h.Flags)
		}
	}
}

// unwatch keeps the counts of registers that are given up. Ends that wait get no hit any more.
func (r *ring) unwatch() {
	for _, t := range r.tracks {
		r.hits += t.hits
	}
	r.tracks = nil
	r.settle(run.Mono())
}
