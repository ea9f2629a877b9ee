package loadgen

import (
	"container/heap"
	"context"
	"math"
	"sync"

	"github.com/stageline/stageline/collector/run"
)

const (
	// prepareNS is how long before its time a request is made and given a connection, so that what is
	// left to do at the time is one write.
	prepareNS = 5_000_000
	// followNS is how often a dispatcher looks for later turns of conversations. Gaps below
	// 2·prepareNS are kept by the worker that had the turn before.
	followNS = 1_000_000
	// maxWaiting bounds the requests that are made and wait for a place under the cap: the rest of what
	// is due waits in the plan, which takes no memory.
	maxWaiting = 1024
)

// dispatcher sends the requests of an open loop at their times. Workers prepare them, take the
// replies, and are started as needed, never more than the cap: what finds none waits, and its wait
// counts from its planned time.
type dispatcher struct {
	*executor
	limit int // 0: none
	ready shotHeap

	live sync.WaitGroup // conversations (or single requests) not yet finished

	mu      sync.Mutex
	workers int
	idle    []*worker
	waiting []*shot // for a worker, in order
	follow  []*shot // later turns whose time is known now
	open    int     // as live, for the dispatcher to look at
	closed  bool    // the load was stopped: nothing more may follow
	over    bool    // all is finished: no worker needs to wait for more
}

// openLoop sends the whole plan.
func (x *executor) openLoop(ctx context.Context, src source) error {
	d := &dispatcher{executor: x, limit: x.plan.cfg.Concurrency}
	x.startNS += lead.Nanoseconds()
	items := newShared(src, x.plan)
	done := make(chan struct{})
	go func() { // a goroutine of its own, for the thread
		defer close(done)
		d.dispatch(ctx, items)
	}()
	<-done
	if ctx.Err() != nil {
		d.giveUp()
		x.cancelRest(items)
	}
	d.live.Wait()
	d.mu.Lock()
	d.over = true // the last request is finished before its worker has become idle
	for _, w := range d.idle {
		close(w.in)
	}
	d.mu.Unlock()
	return items.verdict()
}

// dispatch returns when everything was sent, or ctx ended.
func (d *dispatcher) dispatch(ctx context.Context, items *shared) {
	p, end := newPacer()
	defer end()
	turns := items.next()
	for ctx.Err() == nil {
		now := run.Mono()
		for turns != nil && d.startNS+turns[0].OffsetNS-2*prepareNS <= now && d.room() {
			d.takeUp(ctx, turns)
			turns = items.next()
		}
		more := d.takeFollowing(ctx)
		prepare := int64(math.MaxInt64)
		if turns != nil {
			// What is due already waits for room, and that is looked for as later turns are.
			prepare = max(d.startNS+turns[0].OffsetNS-prepareNS, now+followNS)
		} else if len(d.ready) == 0 && !more {
			return
		}
		wake, due := d.pace(p, now, prepare)
		switch {
		case due:
			s := heap.Pop(&d.ready).(*shot)
			s.fire()
			p.met(*s.req.PlannedNS)
		case wake > 0:
			p.sleep(wake)
		}
	}
	for i := range turns { // pulled from the plan, and not begun when ctx ended
		d.cancelled(&turns[i], notSent)
	}
}

// room says whether another conversation may be taken up.
func (d *dispatcher) room() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting) < maxWaiting
}

// pace is pace for the nearest of what the dispatcher has to do; preparing need not be exact.
func (d *dispatcher) pace(p *pacer, now, prepareNS int64) (wakeNS int64, due bool) {
	wake := min(prepareNS, now+sleepNS)
	if len(d.ready) > 0 {
		at, due := pace(now, *d.ready[0].req.PlannedNS, p.spinNS())
		if due || at == 0 {
			return 0, due
		}
		wake = min(wake, at)
	}
	if d.plan.turns {
		wake = min(wake, now+followNS)
	}
	return wake, false
}

// takeUp starts a conversation or a single request.
func (d *dispatcher) takeUp(ctx context.Context, turns []Item) {
	first := newShot(d.executor, &turns[0])
	for i, last := 1, first; i < len(turns); i++ {
		last.next = newShot(d.executor, &turns[i])
		last = last.next
	}
	d.live.Add(1)
	d.mu.Lock()
	d.open++
	d.mu.Unlock()
	heap.Push(&d.ready, first)
	d.assign(ctx, first)
}

// takeFollowing takes up later turns and says whether there can be more.
func (d *dispatcher) takeFollowing(ctx context.Context) bool {
	if !d.plan.turns {
		return false
	}
	d.mu.Lock()
	list := d.follow
	d.follow = nil
	more := d.open > 0
	d.mu.Unlock()
	for _, s := range list {
		heap.Push(&d.ready, s)
		d.assign(ctx, s)
	}
	return more
}

// assign gives a request to a worker, or lets it wait for one.
func (d *dispatcher) assign(ctx context.Context, s *shot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.idle); n > 0 {
		w := d.idle[n-1]
		if d.limit > 0 {
			s.freeNS = d.idle[0].freeNS // the place that is free for longest
		}
		d.idle = d.idle[:n-1]
		w.in <- s // never blocks: an idle worker's channel is empty
		return
	}
	if d.limit > 0 && d.workers >= d.limit {
		d.waiting = append(d.waiting, s)
		return
	}
	d.workers++
	d.wg.Go(func() { d.work(ctx, s) })
}

// work is the life of a worker: s, then what waits or is assigned.
func (d *dispatcher) work(ctx context.Context, s *shot) {
	w := d.newWorker()
	w.in = make(chan *shot, 1)
	for s != nil {
		w.shoot(ctx, s)
		freeNS := s.endNS()
		if s = d.after(ctx, s); s == nil {
			s = d.waitFor(w, freeNS)
		}
	}
}

// after deals with the turn that follows s: it is returned when this worker is to go on with it.
func (d *dispatcher) after(ctx context.Context, s *shot) *shot {
	n := s.next
	if n != nil && s.req.State == run.StateSuccess {
		planned := s.endNS() + n.it.GapNS
		n.req.PlannedNS = &planned
		if n.it.GapNS < 2*prepareNS && ctx.Err() == nil {
			sleepUntil(ctx, planned)
			n.state.Store(shotOverdue)
			return n
		}
		d.mu.Lock()
		if !d.closed {
			d.follow = append(d.follow, n)
			d.mu.Unlock()
			return nil
		}
		d.mu.Unlock()
	}
	d.abandon(n)
	return nil
}

// abandon ends a conversation; n is the first of its turns that is not sent, nil for none.
func (d *dispatcher) abandon(n *shot) {
	for ; n != nil; n = n.next {
		d.cancelled(&n.it, turnLost)
	}
	d.mu.Lock()
	d.open--
	d.mu.Unlock()
	d.live.Done()
}

// giveUp ends the conversations that wait for their next turn.
func (d *dispatcher) giveUp() {
	d.mu.Lock()
	d.closed = true
	list := d.follow
	d.follow = nil
	d.mu.Unlock()
	for _, s := range list {
		d.abandon(s)
	}
}

// waitFor returns the next request of a worker that is free since freeNS, nil at the end.
func (d *dispatcher) waitFor(w *worker, freeNS int64) *shot {
	d.mu.Lock()
	if len(d.waiting) > 0 {
		s := d.waiting[0]
		d.waiting[0] = nil
		d.waiting = d.waiting[1:]
		d.mu.Unlock()
		s.freeNS = freeNS
		return s
	}
	if d.over {
		d.mu.Unlock()
		return nil
	}
	w.freeNS = freeNS
	d.idle = append(d.idle, w)
	d.mu.Unlock()
	return <-w.in
}

// shotHeap orders requests by planned time.
type shotHeap []*shot

func (h shotHeap) Len() int { return len(h) }
func (h shotHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if *a.req.PlannedNS != *b.req.PlannedNS {
		return *a.req.PlannedNS < *b.req.PlannedNS
	}
	return a.it.N < b.it.N
}
func (h shotHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *shotHeap) Push(v any)   { *h = append(*h, v.(*shot)) }
func (h *shotHeap) Pop() any {
	old := *h
	n := len(old) - 1
	s := old[n]
	old[n] = nil
	*h = old[:n]
	return s
}
