package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
)

// received is one request as the scripted server saw it.
type received struct {
	head string
	body string
	conn int // number of the connection, from 1
}

func (r *received) header(name string) string {
	for l := range strings.SplitSeq(r.head, "\r\n") {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.EqualFold(k, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// server is a loopback server that controls every byte and its time.
type server struct {
	url      string
	l        net.Listener
	conns    atomic.Int64
	inFlight atomic.Int64
	peak     atomic.Int64

	mu   sync.Mutex
	seen []received
}

// handler answers one request; false closes the connection.
type handler func(c net.Conn, r *received) bool

func newServer(t testing.TB, h handler) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{url: "http://" + l.Addr().String(), l: l}
	var wg sync.WaitGroup
	var open sync.Map
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(c, true)
			n := int(s.conns.Add(1))
			wg.Go(func() {
				defer c.Close()
				s.serve(c, n, h)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Range(func(k, _ any) bool { k.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return s
}

func (s *server) serve(c net.Conn, n int, h handler) {
	br := bufio.NewReader(c)
	for {
		r, err := readRequest(br)
		if err != nil {
			return
		}
		r.conn = n
		s.mu.Lock()
		s.seen = append(s.seen, *r)
		s.mu.Unlock()
		now := s.inFlight.Add(1)
		for p := s.peak.Load(); now > p && !s.peak.CompareAndSwap(p, now); p = s.peak.Load() {
		}
		again := h(c, r)
		s.inFlight.Add(-1)
		if !again {
			return
		}
	}
}

func readHead(br *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		l, err := br.ReadString('\n')
		if err != nil {
			return "", err
		}
		head.WriteString(l)
		if l == "\r\n" {
			return head.String(), nil
		}
	}
}

func readRequest(br *bufio.Reader) (*received, error) {
	head, err := readHead(br)
	if err != nil {
		return nil, err
	}
	r := &received{head: head}
	n, err := strconv.Atoi(r.header("content-length"))
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(br, b)
	r.body = string(b)
	return r, err
}

const (
	chunkedSSE = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
	eofSSE     = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
	lastChunk  = "0\r\n\r\n"

	roleChunk   = `data: {"id":"chatcmpl-x1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	finishChunk = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	doneChunk   = "data: [DONE]\n\n"
)

func content(s string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-x1","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`, s) + "\n\n"
}

func httpChunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func jsonReply(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// okStream is a whole small streamed reply.
func okStream() string {
	return chunkedSSE + httpChunk(roleChunk+content("hi")+finishChunk+doneChunk) + lastChunk
}

// taken waits until the client has read all that was written to c, so that what is written next is
// another read; false when the connection has gone. The kernel's table of sockets says so:
// tx_queue of our end and rx_queue of the client's are both empty.
func taken(c net.Conn) bool {
	for range 200_000 {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			return false
		}
		tx, okOurs := queue(table, c.LocalAddr(), c.RemoteAddr(), 0)
		rx, okTheirs := queue(table, c.RemoteAddr(), c.LocalAddr(), 1)
		if !okOurs || !okTheirs {
			return false
		}
		if tx == 0 && rx == 0 {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// queue is tx_queue (0) or rx_queue (1) of one socket, as /proc/net/tcp has them.
func queue(table []byte, local, remote net.Addr, which int) (int64, bool) {
	key := []byte(hexAddr(local) + " " + hexAddr(remote) + " ")
	for line := range bytes.SplitSeq(table, []byte("\n")) {
		if i := bytes.Index(line, key); i >= 0 {
			f := strings.Fields(string(line[i+len(key):]))
			n, err := strconv.ParseInt(strings.Split(f[1], ":")[which], 16, 64)
			return n, err == nil && f[0] != "06" // TIME_WAIT
		}
	}
	return 0, false
}

func hexAddr(a net.Addr) string {
	t := a.(*net.TCPAddr)
	ip := t.IP.To4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], t.Port)
}

func write(c net.Conn, s string) {
	_, _ = io.WriteString(c, s) // a client that went away is for the client's side to report
}

// chatConfig is the smallest load on s.
func chatConfig(s *server, n int) Config {
	return Config{URL: s.url, N: n, Stream: true, IDField: "request_id", Deadline: 20 * time.Second}
}

func mustPlan(t testing.TB, c Config) *Plan {
	t.Helper()
	p, err := NewPlan(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runAll runs the plan to its end and returns every request in order of planning.
func runAll(t testing.TB, ctx context.Context, p *Plan) ([]*run.Request, Summary, error) {
	t.Helper()
	byID := map[string]*run.Request{}
	sum, err := Run(ctx, p, func(r *run.Request) {
		if byID[r.ID] != nil {
			t.Errorf("request %s was handed over twice", r.ID)
		}
		byID[r.ID] = r
	})
	var out []*run.Request
	for n := 1; byID[p.ID(n)] != nil; n++ {
		out = append(out, byID[p.ID(n)])
	}
	if len(out) != len(byID) {
		t.Errorf("%d requests handed over, of which %d are planned in a row", len(byID), len(out))
	}
	return out, sum, err
}

// one sends a single request to a handler.
func one(t testing.TB, h handler, change func(*Config)) *run.Request {
	t.Helper()
	c := chatConfig(newServer(t, h), 1)
	if change != nil {
		change(&c)
	}
	rs, _, err := runAll(t, t.Context(), mustPlan(t, c))
	if err != nil || len(rs) != 1 {
		t.Fatalf("got %d requests, error %v", len(rs), err)
	}
	return rs[0]
}

func kinds(r *run.Request) string {
	var b strings.Builder
	for i := range r.Events {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(r.Events[i].Kind)
		if r.Events[i].Coalesced {
			b.WriteByte('+')
		}
	}
	return b.String()
}
