package loadgen

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/stageline/stageline/collector/run"
	"golang.org/x/net/http2"
)

const (
	// inlineWrite is the largest request written by the goroutine that reads the reply. A longer one
	// may not fit the socket's buffers, and the server may answer (with a refusal, say) before it has
	// read everything.
	inlineWrite = 32 << 10
	// doneGrace is how long a stream may leave its HTTP framing open after [DONE].
	doneGrace = time.Second
)

// past is a deadline that ends any pending read or write at once.
var past = time.Unix(1, 0)

// exchange is one request and its reply on one connection.
type exchange struct {
	plan  *Plan
	req   *run.Request
	conn  *conn
	reply *reply
	http  protocol
	pace  consumer

	request    []byte      // the worker's buffer
	stop       func() bool // undoes what an ending run does to the connection
	deadlineNS int64       // 0: none
	wrote      chan written
	broken     error // writing went wrong
}

type written struct {
	n    int
	atNS int64
	err  error
}

// prepare makes the request and gives it a connection. It returns nil when s has got its terminal
// state instead.
func (w *worker) prepare(ctx context.Context, s *shot) *exchange {
	req := s.req
	if ctx.Err() != nil {
		req.State, req.Error = run.StateClientCancelled, notSent
		return nil
	}
	if m := w.plan.cfg.lacking(); m != "" {
		req.State, req.Error = run.StateNotApplicable, "not sent: the model is said to lack "+m
		return nil
	}
	req.DequeuedNS = nowPtr()
	deadlineNS := w.deadline(req)
	if deadlineNS > 0 && *req.DequeuedNS >= deadlineNS {
		req.State, req.Error = run.StateDeadlineExceeded, "deadline passed before the request was sent"
		req.EndNS = nowPtr()
		return nil
	}
	w.request, w.scratch = w.plan.appendRequest(w.request[:0], w.scratch, s.it)
	dialCtx, cancel := ctx, context.CancelFunc(func() {})
	if deadlineNS > 0 {
		dialCtx, cancel = context.WithTimeout(ctx, time.Duration(deadlineNS-run.Mono()))
	}
	defer cancel()
	s.dialNS = run.Mono()
	c, isNew, err := w.pool.get(dialCtx)
	if err != nil {
		x := exchange{plan: w.plan, req: req, deadlineNS: deadlineNS}
		x.ended(ctx, s.it, err)
		return nil
	}
	c.exchanges++
	n := c.exchanges
	req.NewConn, req.Exchange, req.Local, req.Remote = &isNew, &n, c.local, c.remote
	req.ConnectedNS = nowPtr()

	x := &exchange{plan: w.plan, req: req, conn: c, request: w.request, reply: newReply(&w.plan.cfg, req), deadlineNS: deadlineNS}
	if x.reply.keep = s.keep; s.keep == nil && len(w.kept.list) > 0 {
		x.reply.keep = w.kept.want(w.plan, &s.it, req)
	}
	x.pace = newConsumer(&w.plan.cfg, w.plan.cancels(s.it.N))
	x.http = c.protocol(x.reply.begin, x.reply.data)
	x.setDeadline(ctx, deadlineNS)
	x.stop = context.AfterFunc(ctx, func() { c.rw.SetDeadline(past) })
	return x
}

// complete sends the request, if that is not done yet, and fills in s.req until it has a terminal
// state.
func (w *worker) complete(ctx context.Context, s *shot, x *exchange) {
	if x.wrote == nil {
		x.start(x.request)
	}
	if after := x.pace.cancelAfterNS; after > 0 {
		x.pace.cancelNS = *x.req.SentNS + after
		x.setDeadline(ctx, x.deadlineNS)
	}
	err := x.read(ctx, w.buf)
	whole := x.finishWrite()
	x.ended(ctx, s.it, err)
	// A connection whose deadline an ending run may have moved is not given back.
	if x.stop() && err == nil && whole && x.http.reusable() {
		w.pool.put(x.conn)
		return
	}
	x.http.abandon(x.conn.rw)
	x.conn.rw.Close()
}

// withdraw ends a prepared request of a stopped load.
func (w *worker) withdraw(s *shot, x *exchange) {
	x.stop()
	x.conn.rw.Close()
	s.req.State, s.req.Error = run.StateClientCancelled, notSent
}

func nowPtr() *int64 {
	t := run.Mono()
	return &t
}

func (x *exchange) setDeadline(ctx context.Context, atNS int64) {
	var t time.Time
	if c := x.pace.cancelNS; c > 0 && (atNS == 0 || c < atNS) {
		atNS = c
	}
	if atNS > 0 {
		t = time.Now().Add(time.Duration(atNS - run.Mono()))
	}
	// An error means that the connection is closed; the next read says so.
	_ = x.conn.rw.SetDeadline(t)
	if ctx.Err() != nil {
		_ = x.conn.rw.SetDeadline(past)
	}
}

// start writes the request: in place when it is short, beside the reading of the reply when long.
func (x *exchange) start(b []byte) {
	x.req.SentNS = nowPtr()
	write := func() written {
		n, err := x.http.write(x.conn.rw, b)
		return written{n, run.Mono(), err}
	}
	x.wrote = make(chan written, 1)
	if len(b) <= inlineWrite {
		x.wrote <- write()
		return
	}
	go func() { x.wrote <- write() }()
}

// finishWrite waits for the writer, stopping it if it still writes, and says whether the request
// went out whole.
func (x *exchange) finishWrite() bool {
	var w written
	select {
	case w = <-x.wrote:
	default:
		x.http.stop()
		_ = x.conn.rw.SetWriteDeadline(past)
		w = <-x.wrote
	}
	x.req.BytesOut = int64(w.n)
	if w.err == nil {
		x.req.WrittenNS = &w.atNS
	}
	x.broken = w.err
	return w.err == nil
}

var errCancelled = errors.New("abandoned as planned")

// read takes the reply until its end. A failed write does not end it: a server may refuse a request
// and close without having read it all. Without a reply the read fails as well.
func (x *exchange) read(ctx context.Context, buf []byte) error {
	graced := false
	if x.pace.cancelSent {
		w := <-x.wrote
		x.wrote <- w
		return x.cancelled(w.err)
	}
	for !x.http.done() {
		buf := x.pace.window(buf)
		n, err := x.conn.rw.Read(buf)
		at := x.conn.raw.arrivedNS
		if n > 0 {
			x.reply.nowNS, x.reply.readLagNS = at, x.conn.raw.readNS-at
			if x.req.FirstByteNS == nil {
				x.req.FirstByteNS = &at
			}
			x.req.BytesIn += int64(n)
			x.req.EndNS = &at
			if perr := x.http.feed(buf[:n]); perr != nil {
				return x.misspoken(perr)
			}
			if c := x.pace.cancelEvents; c > 0 && x.reply.contents >= c && !x.http.done() {
				return x.cancelled(nil)
			}
			if x.reply.done && !graced {
				graced = true
				x.setDeadline(ctx, x.graceNS())
			}
		}
		if err == io.EOF {
			return x.http.eof()
		}
		if err != nil && x.pace.cancelNS > 0 && run.Mono() >= x.pace.cancelNS && errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			return x.cancelled(nil)
		}
		if err != nil {
			return err
		}
		x.hold(ctx, n)
	}
	return nil
}

// misspoken notes what the peer did against HTTP. A stream that it reset is a broken transport, or a
// refusal when it says that it did not take the request.
func (x *exchange) misspoken(err error) error {
	var reset *h2Refusal
	switch {
	case !errors.As(err, &reset):
		x.reply.failed(run.StateInvalidOutput, "%v", err)
	case reset.code == http2.ErrCodeRefusedStream:
		x.reply.failed(run.StateRejected, "%v", err)
	}
	return err
}

// cancelled ends a request that the plan abandons; an error of its own goes first.
func (x *exchange) cancelled(err error) error {
	if err != nil {
		return err
	}
	x.req.EndNS = nowPtr()
	return errCancelled
}

// graceNS bounds the wait for the end of the framing after [DONE].
func (x *exchange) graceNS() int64 {
	at := x.reply.doneNS + doneGrace.Nanoseconds()
	if x.deadlineNS > 0 {
		at = min(at, x.deadlineNS)
	}
	return at
}

// ended gives the request its terminal state. err is how the exchange ended: nil when the reply's
// framing was complete.
func (x *exchange) ended(ctx context.Context, it Item, err error) {
	f := x.judge(ctx, err)
	if x.reply != nil {
		x.reply.closeAudio()
	}
	if r := x.reply; r != nil && r.done && err != nil {
		end := r.doneNS
		x.req.EndNS, err = &end, nil
	}
	if f == nil {
		x.req.State = run.StateSuccess
		return
	}
	if x.req.Quality != nil && f.state != run.StateQualityFailed {
		x.req.Quality.Status = run.QualityUnknown
		x.req.Quality.Why = append(x.req.Quality.Why, "the request ended as "+f.state)
	}
	x.req.State, x.req.Error = f.state, f.text
	if x.plan.quotes(f.text, it.N) {
		x.req.Error = "error text withheld: it quotes the request"
	}
	if x.req.EndNS == nil || err != nil && !errors.Is(err, errCancelled) {
		x.req.EndNS = nowPtr()
	}
}

func (x *exchange) judge(ctx context.Context, err error) *failure {
	r := x.reply
	switch {
	case errors.Is(err, errCancelled):
		return &failure{run.StateClientCancelled, err.Error()}
	case err != nil && r != nil && r.fail != nil:
		return r.fail // the server said why, then broke off
	case err != nil && r != nil && r.done:
		r.end() // the stream was complete; only its framing was left open
		return r.fail
	case err != nil && ctx.Err() != nil:
		return &failure{run.StateClientCancelled, "the load was stopped"}
	case err != nil && x.late(err):
		return &failure{run.StateDeadlineExceeded, "deadline passed before the end of the reply"}
	case err != nil:
		return x.transport(err)
	}
	r.end()
	return r.fail
}

// late says whether err comes from the request's own deadline; the caller has ruled out a stopped
// load and a stream left open after [DONE], which move the same deadline.
func (x *exchange) late(err error) bool {
	return x.deadlineNS > 0 &&
		(errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded))
}

// transport tells this host's limits from the peer's faults.
func (x *exchange) transport(err error) *failure {
	for _, own := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOMEM} {
		if errors.Is(err, own) {
			return &failure{run.StateHarnessError, err.Error()}
		}
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return &failure{run.StateHarnessError, err.Error()}
	}
	if x.broken != nil && x.req.FirstByteNS == nil {
		err = x.broken
	}
	return &failure{run.StateTransportError, err.Error()}
}
