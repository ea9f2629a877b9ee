package correlate

import (
	"cmp"
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

	results, signalled int // results of a lone compute thread, and those that it signalled by themselves

	n, decidedAt int // events counted, and when the roles were decided
	known        roles
}

// signalsAlways reports that compute signals each result, and not only those for a loop that sleeps.
func (r *roleStats) signalsAlways() bool { return r.results >= 20 && r.signalled*100 >= r.results*95 }

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
	courier uint32   // waits for the results of compute and signals them to the loop
	unheard bool     // how the results of compute reach the loop was not seen
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
	r.io = x.receiver()
	if r.io == 0 {
		return r
	}
	loops := x.wokenBy(r.io, []uint32{r.io})
	r.loop = busiest(loops)
	if r.loop == 0 {
		r.loop = r.io
	}
	r.compute, r.courier = x.workers(r.loop, []uint32{r.io, r.loop})
	if len(r.compute) == 0 && r.loop != r.io {
		// The thread that reads the messages runs the loop too, and what it wakes computes.
		r.loop = r.io
		r.compute, r.courier = x.workers(r.io, []uint32{r.io})
	}
	if len(r.compute) == 0 {
		r.compute = []uint32{r.loop}
	}
	r.unheard = r.courier == 0 && slices.ContainsFunc(r.compute, func(tid uint32) bool {
		return tid != r.loop && x.signalled(tid, r.loop) == 0
	})
	return r
}

// receiver is the thread that receives messages. Where one that receives passes on to another that
// receives, too, from other channels, it is the one that passes on.
func (x *process) receiver() uint32 {
	io := busiest(x.roles.recvIDs)
	if io == 0 {
		return busiest(x.roles.sendIDs)
	}
	passing := map[uint32]int{}
	for tid, n := range x.roles.recvIDs {
		if tid != io && x.gaveTo(tid, io)*2 >= n && n > 2 && x.gaveTo(io, tid) > 2 {
			passing[tid] = n
		}
	}
	return cmp.Or(busiest(passing), io)
}

// workers are the threads that a loop hands work to or takes results from: those that it wakes or
// that wake it, at least a tenth as often as the busiest of them. One that never runs out of work is
// known by its results alone. A courier is no worker; what workers hand it are their results.
func (x *process) workers(loop uint32, not []uint32) (out []uint32, courier uint32) {
	score := x.wokenBy(loop, not)
	for tid, n := range x.wakersOf(loop, not) {
		score[tid] += n
	}
	if courier = x.courier(loop, score, not); courier != 0 {
		delete(score, courier)
		for k, w := range x.roles.wakes {
			if k[1] == courier && !slices.Contains(not, k[0]) {
				score[k[0]] += w.futex
			}
		}
	}
	most := score[busiest(score)]
	for tid, n := range score {
		if n*10 >= most {
			out = append(out, tid)
		}
	}
	slices.Sort(out)
	// What gives next to nothing back while others do helps the loop itself (a pool for parallel
	// copies).
	for _, locks := range [...]bool{false, courier != 0} {
		helps := func(tid uint32) bool { return x.helps(tid, loop, courier, score[tid], locks) }
		if givers := slices.DeleteFunc(slices.Clone(out), helps); len(givers) > 0 {
			return givers, courier
		}
	}
	return out, courier
}

// helps reports that a thread gives next to nothing back for what it gets, so that, where others do,
// it helps the loop itself. Beside a courier none need tell the loop anything; with locks, waiting for
// one that the loop uses counts, too.
func (x *process) helps(tid, loop, courier uint32, got int, locks bool) bool {
	n := x.gaveBack(tid, loop) + x.gaveBack(tid, courier)
	if w := x.roles.wakes[[2]uint32{loop, tid}]; locks && w != nil {
		n += w.lock
	}
	return n*10 < got
}

// gaveBack counts how often one thread woke another, or wrote what it reads.
func (x *process) gaveBack(from, to uint32) int {
	if to == 0 {
		return 0
	}
	n := x.gaveTo(from, to)
	if w := x.roles.wakes[[2]uint32{from, to}]; w != nil {
		n += w.futex + w.lock + w.poll + w.other
	}
	return n
}

// minVoice is how many signals to the loop show what a thread is for.
const minVoice = 3

// courier finds among the threads around a loop the one that signals to it what another, which does
// not signal to it, has handed over; 0 where there is none. It is known by its sleeps that the other
// ended, else by there being no other way for what the other has worked at.
func (x *process) courier(loop uint32, around map[uint32]int, not []uint32) (best uint32) {
	most := 0
	for c := range around {
		n := x.gaveTo(c, loop)
		for k, w := range x.roles.wakes {
			if k[1] != c || slices.Contains(not, k[0]) || w.futex < minVoice || w.futex*8 < n || x.gaveTo(k[0], loop)*10 > n {
				continue
			}
			back := x.roles.wakes[[2]uint32{c, k[0]}]
			if back != nil && back.futex > w.futex || n == 0 {
				continue
			}
			if w.futex > most || w.futex == most && c < best {
				best, most = c, w.futex
			}
		}
	}
	return cmp.Or(best, x.onlyVoice(loop, around))
}

// onlyVoice is the only thread around a loop that signals to it, where that does next to no work while
// another, silent one does: the results of the latter have no other way. So it is where a courier
// hardly ever waits, because results are there before it asks for them. 0: not so.
func (x *process) onlyVoice(loop uint32, around map[uint32]int) (voice uint32) {
	for tid := range around {
		if x.signalled(tid, loop) > x.signalled(voice, loop) {
			voice = tid
		}
	}
	n := x.signalled(voice, loop)
	if n < minVoice {
		return 0
	}
	worker := false
	for tid := range around {
		if tid == voice {
			continue
		}
		if x.signalled(tid, loop)*10 > n {
			return 0
		}
		worker = worker || !x.helps(tid, loop, voice, around[tid], true) && x.thread(voice).workNS*10 <= x.thread(tid).workNS
	}
	if !worker {
		return 0
	}
	return voice
}

// signalled counts the signals by which one thread told another, whether or not that slept.
func (x *process) signalled(from, to uint32) int {
	n := x.gaveTo(from, to)
	if w := x.roles.wakes[[2]uint32{from, to}]; w != nil {
		n = max(n, w.poll)
	}
	return n
}

// gaveTo counts what one thread wrote that another read.
func (x *process) gaveTo(from, to uint32) (n int) {
	for g, k := range x.roles.gives {
		if g.tid == from {
			n += min(k, x.roles.takes[tidEP{to, g.ep}])
		}
	}
	return n
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
