package loadgen

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
)

func okHandler(c net.Conn, _ *received) bool {
	write(c, okStream())
	return true
}

func countStates(rs []*run.Request) map[string]int {
	m := map[string]int{}
	for _, r := range rs {
		m[r.State]++
	}
	return m
}

func TestClosedLoop(t *testing.T) {
	s := newServer(t, okHandler)
	c := chatConfig(s, 40)
	c.Concurrency, c.Warmup = 4, 3
	rs, sum, err := runAll(t, t.Context(), mustPlan(t, c))
	if err != nil || len(rs) != 43 || sum.Planned != 40 || sum.Success != 40 || sum.Sent != 40 || sum.Warmup != 3 {
		t.Fatalf("%d requests, error %v, summary %+v", len(rs), err, sum)
	}
	if p := s.peak.Load(); p > 4 {
		t.Errorf("%d requests in flight at the server, concurrency is 4", p)
	}
	if n := s.conns.Load(); n > 4 || int(n) != sum.NewConns {
		t.Errorf("%d connections at the server, %d by the client; at most 4 are needed", n, sum.NewConns)
	}
	exchanges := map[string]int{}
	for _, r := range rs {
		if r.State != run.StateSuccess || r.PlannedNS != nil || r.ReplyID != "chatcmpl-x1" {
			t.Fatalf("request %+v", r)
		}
		exchanges[r.Local] = max(exchanges[r.Local], *r.Exchange)
		if *r.NewConn != (*r.Exchange == 1) {
			t.Errorf("new connection %v at exchange %d", *r.NewConn, *r.Exchange)
		}
	}
	total := 0
	for _, n := range exchanges {
		total += n
	}
	if total != 43 || len(exchanges) != int(s.conns.Load()) {
		t.Errorf("exchanges by connection %v, want 43 over %d", exchanges, s.conns.Load())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		id := r.header("x-request-id")
		if id == "" || !strings.HasPrefix(r.body, `{"request_id":"`+id+`"`) {
			t.Errorf("id %q in the header, body begins %.60q", id, r.body)
		}
	}
}

// The concurrency cap of an open loop holds requests back; the wait counts from the plan.
func TestOpenLoopCap(t *testing.T) {
	s := newServer(t, func(c net.Conn, _ *received) bool {
		<-time.After(20 * time.Millisecond)
		write(c, okStream())
		return true
	})
	c := chatConfig(s, 60)
	c.Rate, c.Concurrency, c.Seed = 400, 2, 3
	rs, sum, err := runAll(t, t.Context(), mustPlan(t, c))
	if err != nil || sum.Success != 60 || len(rs) != 60 {
		t.Fatalf("error %v, summary %+v", err, sum)
	}
	if p := s.peak.Load(); p != 2 {
		t.Errorf("%d requests in flight at the server, cap is 2", p)
	}
	// 60 requests planned over about 150 ms need 600 ms at two times 20 ms.
	if send, plan := *sum.JCTFromSend.P50, *sum.JCTFromPlan.P50; plan < 3*send || plan < 100 {
		t.Errorf("JCT p50 from send %.1f ms, from plan %.1f ms", send, plan)
	}
	if sum.SendLag.N != 60 || *sum.SendLag.P50 < 100 {
		t.Errorf("send lag %+v", sum.SendLag)
	}
}

func TestOpenLoopKeepsItsSchedule(t *testing.T) {
	s := newServer(t, okHandler)
	c := chatConfig(s, 300)
	c.Rate, c.MaxLag = 500, DefaultMaxLag
	p := mustPlan(t, c)
	rs, sum, err := runAll(t, t.Context(), p)
	if err != nil || sum.Success != 300 {
		t.Fatalf("error %v, summary %+v", err, sum)
	}
	at := offsets(t, p)
	zero := *rs[0].PlannedNS - at[0]
	for i, r := range rs {
		if *r.PlannedNS-zero != at[i] || *r.SentNS < *r.PlannedNS || *r.LagNS < 0 || *r.ConnectedNS > *r.SentNS {
			t.Fatalf("request %d planned %d sent %d", i+1, *r.PlannedNS-zero, *r.SentNS-zero)
		}
	}
	if a, want := *sum.AchievedRate, *sum.PlannedRate; math.Abs(a/want-1) > 0.05 && sum.Generator.Valid {
		t.Errorf("achieved %.1f/s of %.1f/s planned", a, want)
	}
	t.Logf("send lag p50 %.3f p99 %.3f max %.3f ms", *sum.SendLag.P50, *sum.SendLag.P99, *sum.SendLag.Max)
}

// Five in flight, three queued, and the rest not yet due: each is counted once, as cancelled.
func TestStop(t *testing.T) {
	for name, rate := range map[string]float64{"closed": 0, "open": 100000} {
		t.Run(name, func(t *testing.T) {
			var began atomic.Int64
			inFlight := make(chan struct{})
			s := newServer(t, func(c net.Conn, _ *received) bool {
				write(c, chunkedSSE+httpChunk(content("a")))
				if began.Add(1) == 5 {
					close(inFlight)
				}
				_, _ = c.Read(make([]byte, 1)) // until the client closes
				return false
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("asked to stop")
			go func() {
				<-inFlight
				cancel(why)
			}()
			c := chatConfig(s, 8)
			c.Rate, c.Concurrency = rate, 5
			rs, sum, err := runAll(t, ctx, mustPlan(t, c))
			if !errors.Is(err, why) || !sum.Stopped {
				t.Errorf("error %v, stopped %v", err, sum.Stopped)
			}
			if got := countStates(rs); len(rs) != 8 || got[run.StateClientCancelled] != 8 {
				t.Errorf("%d requests, states %v", len(rs), got)
			}
			if sum.Planned != 8 || sum.Sent != 5 || sum.States[run.StateClientCancelled] != 8 {
				t.Errorf("summary %+v", sum)
			}
		})
	}
}

// An open loop that is stopped in the midst of its schedule: what is not yet due is counted once, too,
// whether the dispatcher has looked at it or not.
func TestStopBeforeTheEndOfTheSchedule(t *testing.T) {
	var n atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	s := newServer(t, func(c net.Conn, _ *received) bool {
		if n.Add(1) == 5 {
			cancel()
		}
		write(c, okStream())
		return true
	})
	c := chatConfig(s, 40)
	c.Arrival = ArrivalConstant
	c.Shape = []Segment{{500, 500, 12 * time.Millisecond}, {0, 0, time.Hour}, {1000, 1000, time.Second}}
	c.Turns = IntRange{1, 2}
	rs, sum, err := runAll(t, ctx, mustPlan(t, c))
	seen := map[string]bool{}
	for _, r := range rs {
		seen[r.ID] = true
	}
	if err == nil || !sum.Stopped || sum.Planned != 40 || len(rs) != 40 || len(seen) != 40 {
		t.Errorf("error %v, %d requests, %d of them different, summary %+v", err, len(rs), len(seen), sum)
	}
}

// Far more than the cap serves: what waits is neither made nor kept beforehand, and none is lost.
func TestOpenLoopBacklogIsBounded(t *testing.T) {
	hold := make(chan struct{})
	s := newServer(t, func(c net.Conn, _ *received) bool {
		<-hold
		write(c, okStream())
		return true
	})
	c := chatConfig(s, 2*maxWaiting)
	c.Rate, c.Concurrency = 1e6, 2
	p := mustPlan(t, c)
	x := &executor{plan: p, pool: newPool(&p.cfg, p.url), results: make(chan *run.Request, 2*maxWaiting), startNS: run.Mono()}
	defer x.pool.close()
	src, done, err := p.items()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	d := &dispatcher{executor: x, limit: 2}
	items := newShared(src, p)
	dispatched := make(chan struct{})
	go func() {
		defer close(dispatched)
		d.dispatch(t.Context(), items)
	}()
	for d.room() { // until the backlog is as long as it may get
	}
	for look := run.Mono() + 20*followNS; run.Mono() < look; {
		d.mu.Lock()
		n := len(d.waiting)
		d.mu.Unlock()
		if n > maxWaiting {
			t.Fatalf("%d requests wait, at most %d may", n, maxWaiting)
		}
	}
	close(hold)
	<-dispatched
	d.live.Wait()
	if len(x.results) != 2*maxWaiting {
		t.Errorf("%d requests of %d", len(x.results), 2*maxWaiting)
	}
	d.mu.Lock()
	d.over = true
	for _, w := range d.idle {
		close(w.in)
	}
	d.mu.Unlock()
	x.wg.Wait()
}

func TestCancelAfter(t *testing.T) {
	gone := make(chan error, 1)
	r := one(t, func(c net.Conn, _ *received) bool {
		write(c, chunkedSSE)
		for _, s := range []string{"a", "b", "c"} {
			write(c, httpChunk(content(s)))
		}
		_, err := c.Read(make([]byte, 1))
		gone <- err
		return false
	}, func(c *Config) { c.Client.Cancel = Cancel{Stage: CancelEvents, Events: 2} })
	if r.State != run.StateClientCancelled || len(r.Events) < 2 || r.EndNS == nil {
		t.Errorf("state %q, events %q", r.State, kinds(r))
	}
	if err := <-gone; err == nil {
		t.Error("the connection was not closed")
	}
}

func TestDeadline(t *testing.T) {
	s := newServer(t, func(c net.Conn, _ *received) bool {
		write(c, chunkedSSE+httpChunk(content("a")))
		_, _ = c.Read(make([]byte, 1))
		return false
	})
	c := chatConfig(s, 3)
	// One at a time: the first uses up the time of the others, which are due at the same moment.
	c.Rate, c.Concurrency, c.Deadline = 100000, 1, 60*time.Millisecond
	rs, sum, _ := runAll(t, t.Context(), mustPlan(t, c))
	if sum.States[run.StateDeadlineExceeded] != 3 || sum.JCTFromSend.Missing != 3 || sum.JCTFromPlan.P50 != nil {
		t.Fatalf("summary %+v", sum)
	}
	if d := *rs[0].EndNS - *rs[0].PlannedNS; d < 60e6 || d > 2e9 {
		t.Errorf("first ended %d ns after its planned time, deadline is 60 ms", d)
	}
	if rs[0].FirstNS == nil {
		t.Error("what came before the deadline is not recorded")
	}
	// The others may get the last instants of their time, never a full wait.
	for _, r := range rs[1:] {
		if d := *r.EndNS - *r.PlannedNS; d < 60e6 || d > 2e9 {
			t.Errorf("%s ended %d ns after its planned time", r.ID, d)
		}
	}
}

func TestTransportErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c := Config{URL: "http://" + l.Addr().String(), N: 1, Stream: true}
	rs, _, _ := runAll(t, t.Context(), mustPlan(t, c))
	if r := rs[0]; r.State != run.StateTransportError || !strings.Contains(r.Error, "refused") || r.SentNS != nil || r.EndNS == nil {
		t.Errorf("refused: %+v", r)
	}
	r := one(t, func(c net.Conn, _ *received) bool {
		write(c, chunkedSSE+httpChunk(content("a")))
		<-time.After(5 * time.Millisecond)
		_ = c.(*net.TCPConn).SetLinger(0) // closing now sends a reset
		return false
	}, nil)
	if r.State != run.StateTransportError || !strings.Contains(r.Error, "reset") {
		t.Errorf("reset: %q %q", r.State, r.Error)
	}
}

// A kept connection that the server has closed is noticed before anything is sent on it; one that
// it closes on receiving the request is a transport error, not a second try.
func TestDeadKeepAlive(t *testing.T) {
	for name, tc := range map[string]struct {
		closeIdle bool
		second    string
		requests  int
	}{
		"closed while idle":   {true, run.StateSuccess, 2},
		"closed when sent to": {false, run.StateTransportError, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			s := newServer(t, func(c net.Conn, _ *received) bool {
				if n.Add(1) == 2 && !tc.closeIdle {
					return false
				}
				write(c, okStream())
				return !tc.closeIdle
			})
			p := mustPlan(t, chatConfig(s, 2))
			x := &executor{plan: p, pool: newPool(&p.cfg, p.url), results: make(chan *run.Request, 2)}
			w, first, second := x.newWorker(), item(t, p, 1), item(t, p, 2)
			w.serve(t.Context(), newShot(x, &first))
			if r := <-x.results; r.State != run.StateSuccess {
				t.Fatalf("first: %q %q", r.State, r.Error)
			}
			if tc.closeIdle {
				for x.pool.idle[0].alive() { // until the server's FIN is here
				}
			}
			w.serve(t.Context(), newShot(x, &second))
			r := <-x.results
			if r.State != tc.second || int(n.Load()) != tc.requests || *r.NewConn != tc.closeIdle {
				t.Errorf("second: %q %q, %d requests at the server, new connection %v", r.State, r.Error, n.Load(), *r.NewConn)
			}
			x.pool.close()
		})
	}
}

// A server that refuses a large request before it has read it: the refusal is what counts.
func TestEarlyRefusalOfLargeRequest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	release := make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		write(c, jsonReply(429, `{"error":{"message":"too large for now"}}`))
		<-release
		c.Close()
	}()
	defer close(release)
	c := Config{URL: "http://" + l.Addr().String(), N: 1, Stream: true, PromptChars: 32 << 20, Deadline: 20 * time.Second}
	rs, _, _ := runAll(t, t.Context(), mustPlan(t, c))
	if r := rs[0]; r.State != run.StateRejected || r.Status != 429 || r.WrittenNS != nil || r.BytesOut >= 32<<20 {
		t.Errorf("state %q (%s), status %d, %d bytes out, written %v", r.State, r.Error, r.Status, r.BytesOut, r.WrittenNS)
	}
}

func TestLargeRequest(t *testing.T) {
	s := newServer(t, okHandler)
	c := chatConfig(s, 6)
	c.PromptChars, c.Concurrency = 300000, 3
	rs, sum, _ := runAll(t, t.Context(), mustPlan(t, c))
	if sum.Success != 6 || rs[0].BytesOut < 300000 || rs[0].WrittenNS == nil {
		t.Errorf("summary %+v, %d bytes out", sum, rs[0].BytesOut)
	}
}

func TestClosedLoopDuration(t *testing.T) {
	s := newServer(t, okHandler)
	c := chatConfig(s, 0)
	c.Duration, c.Concurrency = 50*time.Millisecond, 2
	p := mustPlan(t, c)
	rs, sum, err := runAll(t, t.Context(), p)
	if err != nil || p.Planned() != -1 || sum.ScheduleHash != "" || len(rs) < 2 || sum.Success != len(rs) {
		t.Fatalf("%d requests, error %v, summary %+v", len(rs), err, sum)
	}
	for _, r := range rs {
		if *r.DequeuedNS-sum.StartNS > 50e6+20e6 {
			t.Errorf("%s taken up %d ns after the start", r.ID, *r.DequeuedNS-sum.StartNS)
		}
	}
}
