package loadgen

import (
	"context"
	"strconv"
	"time"

	"github.com/stageline/stageline/collector/run"
)

// slowReads is how often a second a slow consumer reads: often enough that its rate is even.
const slowReads = 50

// consumer is how the client reads one reply: how fast, with which pause, and until when.
type consumer struct {
	rate    int // bytes per second; 0: as they come
	freeNS  int64
	pause   Pause
	paused  bool
	limited int // bytes of one read; 0: no limit

	cancelSent    bool
	cancelEvents  int
	cancelAfterNS int64
	cancelNS      int64 // absolute, once the request is sent
}

func newConsumer(cfg *Config, cancels bool) consumer {
	c := consumer{rate: cfg.Client.ReadRate, pause: cfg.Client.Pause}
	if c.rate > 0 {
		c.limited = max(c.rate/slowReads, 1)
	}
	if k := &cfg.Client.Cancel; cancels {
		c.cancelSent = k.Stage == CancelSent
		c.cancelEvents, c.cancelAfterNS = k.Events, k.After.Nanoseconds()
	}
	return c
}

// receiveBuffer is small for a consumer that does not keep up, so that the server feels it: the
// host's own buffer would take megabytes first.
func receiveBuffer(c *Client) int {
	switch {
	case c.ReadRate > 0:
		return max(c.ReadRate/10, 4<<10)
	case c.Pause.For > 0:
		return 16 << 10
	}
	return 0
}

// window is the part of buf that the next read may fill.
func (c *consumer) window(buf []byte) []byte {
	if c.limited > 0 && c.limited < len(buf) {
		return buf[:c.limited]
	}
	return buf
}

// hold keeps the next read back: for a slow consumer until the rate allows it, for a paused one for
// the length of the pause, which stands among the events. The wait ends with the request's time or
// the run's.
func (x *exchange) hold(ctx context.Context, n int) {
	c := &x.pace
	if c.rate > 0 {
		now := run.Mono()
		c.freeNS = max(c.freeNS, now) + int64(n)*int64(time.Second)/int64(c.rate)
		x.sleep(ctx, c.freeNS-now)
	}
	p := &c.pause
	reached := p.Events > 0 && x.reply.contents >= p.Events || p.Bytes > 0 && x.req.BytesIn >= p.Bytes
	if p.For == 0 || c.paused || !reached || x.http.done() {
		return
	}
	c.paused = true
	x.mark("paused")
	x.sleep(ctx, p.For.Nanoseconds())
	x.mark("resumed")
}

// mark adds an event of the client itself.
func (x *exchange) mark(kind string) {
	x.req.Events = append(x.req.Events, run.ReplyEvent{MonoNS: run.Mono(), Kind: kind})
}

func (x *exchange) sleep(ctx context.Context, ns int64) {
	for _, end := range []int64{x.deadlineNS, x.pace.cancelNS} {
		if end > 0 {
			ns = min(ns, end-run.Mono())
		}
	}
	if ns <= 0 {
		return
	}
	t := time.NewTimer(time.Duration(ns))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// retryable says whether another attempt makes sense: the server did not take the request, or the
// connection broke. What it answered wrongly it would answer wrongly again.
func retryable(state string) bool {
	return state == run.StateRejected || state == run.StateTransportError
}

// deliver hands over a request that has got its terminal state. Where the plan allows retries, each
// attempt is handed over as a request of the same group; only the first has a lag.
func (w *worker) deliver(ctx context.Context, s *shot) {
	s.req.LagNS = s.lag()
	for s.req.Attempt <= w.plan.cfg.Client.Retries && retryable(s.req.State) && ctx.Err() == nil {
		last := s.req
		last.Retried = true
		s.req = w.newRequest(&s.it)
		s.req.Group, s.req.Attempt, s.req.PlannedNS = last.Group, last.Attempt+1, last.PlannedNS
		s.req.ID = last.Group + "-r" + strconv.Itoa(s.req.Attempt)
		s.it.ID = s.req.ID
		w.results <- last
		if x := w.prepare(ctx, s); x != nil {
			w.complete(ctx, s, x)
		}
	}
	w.results <- s.req
}
