package loadgen

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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

	wg          sync.WaitGroup
	outstanding atomic.Int64 // open loop: dispatched and not yet finished
}

// worker carries one request at a time.
type worker struct {
	*executor
	buf, request, scratch []byte
}

// Run sends the plan and hands each finished request to emit, one call at a time, in the order in
// which they finish. Every planned request is handed over exactly once: those that ctx stops, in
// flight or not yet sent, as client-cancelled. The error says that ctx ended the run early; the
// summary is complete all the same.
func Run(ctx context.Context, plan *Plan, emit func(*run.Request)) (Summary, error) {
	x := &executor{plan: plan, pool: newPool(plan.url), results: make(chan *run.Request, backlog)}
	defer x.pool.close()
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
		x.openLoop(ctx)
	} else {
		x.closedLoop(ctx)
	}
	x.wg.Wait()
	close(x.results)
	<-delivered
	sum := tally.summary(run.Mono())
	if ctx.Err() != nil {
		sum.Stopped = true
		return sum, fmt.Errorf("load stopped early: %w", context.Cause(ctx))
	}
	return sum, nil
}

func (x *executor) newWorker() *worker {
	return &worker{executor: x, buf: make([]byte, readBuffer)}
}

// closedLoop keeps Concurrency requests in flight.
func (x *executor) closedLoop(ctx context.Context) {
	if d := x.plan.cfg.Duration; d > 0 {
		x.stopNS = x.startNS + d.Nanoseconds()
	}
	var next atomic.Int64
	for range x.plan.cfg.Concurrency {
		x.wg.Go(func() {
			w := x.newWorker()
			for x.more(ctx) {
				n := int(next.Add(1))
				if x.plan.n >= 0 && n > x.plan.n {
					return
				}
				w.serve(ctx, n)
			}
		})
	}
	x.wg.Wait()
	if ctx.Err() == nil {
		return // a duration that ended first leaves the rest of N unplanned
	}
	w := x.newWorker()
	for n := int(next.Load()) + 1; n <= x.plan.n; n++ {
		w.serve(ctx, n)
	}
}

// more says whether a closed loop goes on.
func (x *executor) more(ctx context.Context) bool {
	return ctx.Err() == nil && (x.stopNS == 0 || run.Mono() < x.stopNS)
}

// openLoop dispatches each request at its planned time to a worker. Workers are started as needed,
// never more than the cap: what finds none waits, and its wait counts from its planned time.
func (x *executor) openLoop(ctx context.Context) {
	x.startNS += lead.Nanoseconds()
	queue := make(chan int, x.plan.n)
	workers := int64(0)
	limit := int64(x.plan.cfg.Concurrency)
	send := func(i int) {
		queue <- i + 1 // never blocks: it holds the whole plan
		if x.outstanding.Add(1) <= workers || limit > 0 && workers >= limit {
			return
		}
		workers++
		x.wg.Go(func() { x.drain(ctx, queue) })
	}
	x.wg.Go(func() {
		defer close(queue)
		due := dispatch(ctx, x.plan.offsets, x.startNS, send)
		w := x.newWorker()
		for n := due + 1; n <= x.plan.n; n++ {
			w.serve(ctx, n)
		}
	})
	x.wg.Wait()
}

func (x *executor) drain(ctx context.Context, queue <-chan int) {
	w := x.newWorker()
	for n := range queue {
		w.serve(ctx, n)
		x.outstanding.Add(-1)
	}
}

// serve carries planned request n to its terminal state and hands it over.
func (w *worker) serve(ctx context.Context, n int) {
	it := w.plan.Item(n)
	req := &run.Request{
		RunID: w.plan.cfg.RunID, Source: "loadgen", ID: it.ID, Group: it.ID, Attempt: 1, Class: it.Class,
		Method: "POST", Path: w.plan.Path(), Events: []run.ReplyEvent{},
	}
	if w.plan.Open() {
		at := w.startNS + it.OffsetNS
		req.PlannedNS = &at
	}
	defer func() { w.results <- req }()
	if ctx.Err() != nil {
		req.State, req.Error = run.StateClientCancelled, "the load was stopped before this request was sent"
		return
	}
	req.DequeuedNS = nowPtr()
	deadline := w.deadline(req)
	if deadline > 0 && *req.DequeuedNS >= deadline {
		req.State, req.Error = run.StateDeadlineExceeded, "deadline passed before the request was sent"
		req.EndNS = nowPtr()
		return
	}
	w.request, w.scratch = w.plan.appendRequest(w.request[:0], w.scratch, it)
	w.exchange(ctx, it, req, deadline)
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
