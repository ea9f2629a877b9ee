package correlate

import (
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// roleStats counts behaviour that tells what a thread is for.
type roleStats struct {
	recvIDs map[uint32]int      // thread → messages with ids it received
	sendIDs map[uint32]int      // thread → messages with ids it sent
	wakes   map[[2]uint32]*wake // waker, woken
	gives   map[tidEP]int       // signals given on an endpoint
	takes   map[tidEP]int

	n, decidedAt int // events counted, and when the roles were decided
	known        roles
}

type tidEP struct {
	tid uint32
	ep  uint32
}

// wake counts how often one thread ended another's sleep, by kind of sleep; lock: on a futex that
// the waker waits on, too.
type wake struct{ futex, lock, poll, other int }

func (r *roleStats) init() {
	r.recvIDs, r.sendIDs = map[uint32]int{}, map[uint32]int{}
	r.wakes = map[[2]uint32]*wake{}
	r.gives, r.takes = map[tidEP]int{}, map[tidEP]int{}
}

func (r *roleStats) carried(m *run.Message) {
	r.n++
	if m.Dir == run.Send {
		r.sendIDs[m.TID]++
	} else {
		r.recvIDs[m.TID]++
	}
}

// roles are the threads of a process by what they do; 0 where there is none.
type roles struct {
	io      uint32   // receives messages
	loop    uint32   // woken by io; hands work out
	compute []uint32 // woken by loop, do the work; the loop itself where there are none
}

// learnRoles decides the roles from all that was counted so far. The answer is kept until a tenth
// more was counted.
func (x *process) learnRoles() roles {
	if s := &x.roles; s.known.io == 0 || s.n > s.decidedAt+s.decidedAt/10 {
		s.known, s.decidedAt = x.decideRoles(), s.n
	}
	return x.roles.known
}

func (x *process) decideRoles() (r roles) {
	r.io = busiest(x.roles.recvIDs)
	if r.io == 0 {
		r.io = busiest(x.roles.sendIDs)
	}
	if r.io == 0 {
		return r
	}
	loops := x.wokenBy(r.io, []uint32{r.io})
	r.loop = busiest(loops)
	if r.loop == 0 {
		r.loop = r.io
	}
	r.compute = x.workers(r.loop, []uint32{r.io, r.loop})
	if len(r.compute) == 0 && r.loop != r.io {
		// The thread that reads the messages runs the loop too, and what it wakes computes.
		r.loop = r.io
		r.compute = x.workers(r.io, []uint32{r.io})
	}
	if len(r.compute) == 0 {
		r.compute = []uint32{r.loop}
	}
	return r
}

// workers are the threads that a loop hands work to or takes results from: those that it wakes or
// that wake it, at least a tenth as often as the busiest of them. One that never runs out of work is
// known by its results alone.
func (x *process) workers(loop uint32, not []uint32) []uint32 {
	score := x.wokenBy(loop, not)
	for tid, n := range x.wakersOf(loop, not) {
		score[tid] += n
	}
	most := score[busiest(score)]
	var out []uint32
	for tid, n := range score {
		if n*10 >= most {
			out = append(out, tid)
		}
	}
	slices.Sort(out)
	return out
}

func busiest(m map[uint32]int) (best uint32) {
	for tid, n := range m {
		if b := m[best]; best == 0 || n > b || n == b && tid < best {
			best = tid
		}
	}
	return best
}

// wokenBy scores the threads that waker wakes, directly or over an eventfd they read; locks that
// both use do not count.
func (x *process) wokenBy(waker uint32, not []uint32) map[uint32]int {
	score := map[uint32]int{}
	x.signals(func(from, to uint32, n int) {
		if from == waker && !slices.Contains(not, to) {
			score[to] += n
		}
	})
	return seldom(score)
}

// wakersOf scores the threads that wake one.
func (x *process) wakersOf(woken uint32, not []uint32) map[uint32]int {
	score := map[uint32]int{}
	x.signals(func(from, to uint32, n int) {
		if to == woken && !slices.Contains(not, from) {
			score[from] += n
		}
	})
	return seldom(score)
}

// seldom drops what happened once: chance.
func seldom(score map[uint32]int) map[uint32]int {
	for tid, n := range score {
		if n < 2 {
			delete(score, tid)
		}
	}
	return score
}

// signals lists how often one thread woke another, and how often it wrote what the other read.
func (x *process) signals(each func(from, to uint32, n int)) {
	for k, w := range x.roles.wakes {
		each(k[0], k[1], w.futex+w.poll)
	}
	for g, n := range x.roles.gives {
		for tk, m := range x.roles.takes {
			if tk.ep == g.ep && tk.tid != g.tid {
				each(g.tid, tk.tid, min(n, m))
			}
		}
	}
}
