package loadgen

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stageline/stageline/collector/run"
)

const (
	readBuffer = 64 << 10
	// lead is the time between the start of Run and the zero of an open loop's schedule, so that the
	// first requests are not late because goroutines are still starting.
	lead = 10 * time.Millisecond
	// backlog is how many finished requests may wait for the callback before workers wait for it.
	backlog = 4096
)

// executor is the state of one Run.
type executor struct {
	plan    *Plan
	pool    *pool
	startNS int64
	stopNS  int64 // closed loop: no request is taken up after this; 0 none
	results chan *run.Request

	kept keptReplies // audio to compare after the load
	wg   sync.WaitGroup
}

// worker carries one request at a time.
type worker struct {
	*executor
	buf, request, scratch []byte
	in                    chan *shot // open loop
	freeNS                int64      // open loop: since when the worker is idle
}

// Run sends the plan and hands each finished request to emit, one call at a time, in the order in
// which they finish. Every planned request is handed over exactly once: those that ctx stops, in
// flight or not yet sent, as client-cancelled. The error says that ctx ended the run early, or that a
// trace was changed while it was replayed; the summary is complete all the same.
func Run(ctx context.Context, plan *Plan, emit func(*run.Request)) (Summary, error) {
	src, done, err := plan.items()
	if err != nil {
		return Summary{}, err
	}
	defer done()
	x := &executor{plan: plan, pool: newPool(&plan.cfg, plan.url), results: make(chan *run.Request, backlog)}
	defer x.pool.close()
	x.kept.prepare(&plan.cfg)
	x.startNS = run.Mono()
	tally := newTally(plan, x.startNS)
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		for r := range x.results {
			tally.add(r)
			emit(r)
		}
	}()
	if plan.Open() {
		err = x.openLoop(ctx, src)
	} else {
		err = x.closedLoop(ctx, src)
	}
	x.wg.Wait()
	close(x.results)
	<-delivered
	sum := tally.summary(run.Mono())
	x.verifyAudio(ctx, &sum)
	if err == nil && ctx.Err() != nil {
		sum.Stopped = true
		err = fmt.Errorf("load stopped early: %w", context.Cause(ctx))
	}
	return sum, err
}

func (x *executor) newWorker() *worker {
	return &worker{executor: x, buf: make([]byte, readBuffer)}
}

// shared hands out the requests of a source to many workers, conversations whole.
type shared struct {
	mu     sync.Mutex
	src    source
	plan   *Plan
	ahead  Item // first request of the next conversation
	have   bool
	err    error
	hash   *scheduleHash
	handed int
	ended  bool
}

func newShared(src source, plan *Plan) *shared {
	return &shared{src: src, plan: plan, hash: newScheduleHash()}
}

// pull takes the next request from the source.
func (s *shared) pull() bool {
	if s.err != nil {
		return false
	}
	var ok bool
	if s.ahead, ok, s.err = s.src.next(); !ok {
		s.ended = true
		return false
	}
	s.ahead.ID = s.plan.ID(s.ahead.N)
	s.hash.add(&s.ahead)
	s.handed++
	return true
}

// next returns the turns of the next conversation (one, if the request stands alone); none at the
// end.
func (s *shared) next() []Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.have && !s.pull() {
		return nil
	}
	turns := []Item{s.ahead}
	for s.have = s.pull(); s.have && s.ahead.After != 0; s.have = s.pull() {
		turns = append(turns, s.ahead)
	}
	return turns
}

// verdict says whether what was handed out is what was planned. A foreign file can change between
// the two.
func (s *shared) verdict() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return fmt.Errorf("the plan changed while it was sent: %w", s.err)
	}
	if s.plan.n >= 0 && s.ended && (s.handed != s.plan.n || s.hash.String() != s.plan.hash) {
		return fmt.Errorf("%s changed while it was sent: copy it first, and send the copy", s.plan.cfg.Replay)
	}
	return nil
}

// closedLoop keeps Concurrency requests (of conversations: conversations) in flight.
func (x *executor) closedLoop(ctx context.Context, src source) error {
	if d := x.plan.cfg.Duration; d > 0 {
		x.stopNS = x.startNS + d.Nanoseconds()
	}
	items := newShared(src, x.plan)
	for range x.plan.cfg.Concurrency {
		x.wg.Go(func() {
			w := x.newWorker()
			freeNS := int64(0)
			for x.more(ctx) {
				turns := items.next()
				if turns == nil {
					return
				}
				freeNS = w.converse(ctx, turns, freeNS)
			}
		})
	}
	x.wg.Wait()
	if ctx.Err() != nil { // a duration that ended first leaves the rest of N unplanned
		x.cancelRest(items)
	}
	return items.verdict()
}

// cancelRest reports what a stopped load has not sent.
func (x *executor) cancelRest(items *shared) {
	if x.plan.n < 0 {
		return
	}
	for turns := items.next(); turns != nil; turns = items.next() {
		for i := range turns {
			x.cancelled(&turns[i], notSent)
		}
	}
}

// cancelled hands over a request that is not sent.
func (x *executor) cancelled(it *Item, why string) {
	r := x.newRequest(it)
	r.State, r.Error = run.StateClientCancelled, why
	x.results <- r
}

// more says whether a closed loop goes on.
func (x *executor) more(ctx context.Context) bool {
	return ctx.Err() == nil && (x.stopNS == 0 || run.Mono() < x.stopNS)
}

// converse sends the turns of one conversation in a closed loop. freeNS is when the reply before was
// complete, 0 for the first; it returns that of the last.
func (w *worker) converse(ctx context.Context, turns []Item, freeNS int64) int64 {
	for i := range turns {
		it := &turns[i]
		s := newShot(w.executor, it)
		s.freeNS = freeNS
		if it.After != 0 {
			planned := freeNS + it.GapNS
			s.req.PlannedNS, s.freeNS = &planned, 0
			sleepUntil(ctx, planned)
		}
		w.serve(ctx, s)
		freeNS = s.endNS()
		if s.req.State != run.StateSuccess {
			for j := i + 1; j < len(turns); j++ {
				w.cancelled(&turns[j], turnLost)
			}
			break
		}
	}
	return freeNS
}

// Why a request was not sent.
const (
	turnLost = "the turn before this one did not succeed"
	notSent  = "the load was stopped before this request was sent"
)

// sleepUntil waits with the runtime's timer; what it is late by is counted as lag.
func sleepUntil(ctx context.Context, atNS int64) {
	t := time.NewTimer(time.Duration(atNS - run.Mono()))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (x *executor) newRequest(it *Item) *run.Request {
	r := &run.Request{
		RunID: x.plan.cfg.RunID, Source: "loadgen", ID: it.ID, Group: it.ID, Attempt: 1, Class: it.Class,
		Tenant: it.Tenant, Session: it.Session, Turn: it.Turn,
		Method: x.plan.cfg.Client.Method, Path: x.plan.pathOf(it), Prompt: x.plan.body.promptOf(it.N), Events: []run.ReplyEvent{},
	}
	if x.plan.Open() && it.OffsetNS >= 0 {
		at := x.startNS + it.OffsetNS
		r.PlannedNS = &at
	}
	return r
}

// serve carries a request to its terminal state and hands it over.
func (w *worker) serve(ctx context.Context, s *shot) {
	defer w.deliver(ctx, s)
	if x := w.prepare(ctx, s); x != nil {
		w.complete(ctx, s, x)
	}
}

// deadline is absolute; 0 is none.
func (w *worker) deadline(req *run.Request) int64 {
	d := w.plan.cfg.Deadline.Nanoseconds()
	switch {
	case d == 0:
		return 0
	case req.PlannedNS != nil:
		return *req.PlannedNS + d
	}
	return *req.DequeuedNS + d
}
