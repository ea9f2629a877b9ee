package loadgen

import (
	"context"
	"sync/atomic"

	"github.com/stageline/stageline/collector/run"
)

// States of a shot while its worker and the dispatcher meet.
const (
	shotPreparing int32 = iota // the worker has not got a connection yet
	shotArmed                  // ready; the dispatcher writes it when it is due
	shotFired                  // the dispatcher has taken it
	shotOverdue                // became due while it was prepared: the worker writes it at once
	shotWithdrawn              // the load was stopped first
)

// shot is one planned request on its way.
type shot struct {
	it     Item
	req    *run.Request
	freeNS int64      // when a place for it became free, if it had to wait for one; 0 otherwise
	dialNS int64      // when a connection was asked for
	keep   *keptAudio // not nil: where the sound of the reply is kept

	state atomic.Int32
	fired chan bool // true: the dispatcher has written the request; false: the worker is to
	x     *exchange // of an armed shot
	next  *shot     // the following turn of the conversation
}

func newShot(x *executor, it *Item) *shot {
	return &shot{it: *it, req: x.newRequest(it), fired: make(chan bool, 1)}
}

// endNS is when the reply had arrived, or when the attempt was given up.
func (s *shot) endNS() int64 {
	if s.req.EndNS != nil {
		return *s.req.EndNS
	}
	return run.Mono()
}

// lag is how much later the request was sent than it could have been: after its planned time and
// after a place under the cap was free (in closed loop: after the reply before it had arrived). The
// time in which a new connection was made is the host's and the system's, not the generator's.
func (s *shot) lag() *int64 {
	r := s.req
	if r.SentNS == nil {
		return nil
	}
	from := s.freeNS
	if r.PlannedNS != nil {
		from = max(from, *r.PlannedNS)
	}
	if from == 0 {
		from = *r.DequeuedNS
	}
	lag := *r.SentNS - from
	if r.NewConn != nil && *r.NewConn {
		lag -= max(0, *r.ConnectedNS-max(s.dialNS, from))
	}
	return &lag
}

// dispatchedWrite is the largest request that the dispatcher writes itself: it fits the buffers of an
// idle connection, so that the write cannot block.
const dispatchedWrite = 8 << 10

// fire sends a request that is due, or leaves it to its worker.
func (s *shot) fire() {
	if s.state.CompareAndSwap(shotArmed, shotFired) {
		b := s.x.request
		// HTTP/2 may have to wait for its window.
		if len(b) > dispatchedWrite || s.x.conn.h2 != nil || !s.x.conn.alive() {
			s.fired <- false
			return
		}
		s.x.start(b)
		s.fired <- true
		return
	}
	s.state.CompareAndSwap(shotPreparing, shotOverdue)
}

// shoot carries a request of an open loop to its terminal state and hands it over.
func (w *worker) shoot(ctx context.Context, s *shot) {
	defer w.deliver(ctx, s)
	x := w.prepare(ctx, s)
	if x == nil {
		return
	}
	s.x = x
	if !s.state.CompareAndSwap(shotPreparing, shotArmed) {
		w.complete(ctx, s, x)
		return
	}
	written := false
	select {
	case written = <-s.fired:
	case <-ctx.Done():
		if s.state.CompareAndSwap(shotArmed, shotWithdrawn) {
			w.withdraw(s, x)
			return
		}
		written = <-s.fired
	}
	if !written && !x.conn.alive() {
		// The server closed the connection after it was chosen; nothing was sent on it.
		x.stop()
		x.conn.rw.Close()
		if x = w.prepare(ctx, s); x == nil {
			return
		}
	}
	w.complete(ctx, s, x)
}
