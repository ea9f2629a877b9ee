package main

import (
	"context"
	"net"
	"sync"
)

// connStamps are the entry's times of one request on its connection.
type connStamps struct {
	mu                sync.Mutex
	recv, first, last int64
}

func (s *connStamps) get() (recv, first, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recv, s.first, s.last
}

// entryListener stamps every read and write of the HTTP connections.
type entryListener struct {
	net.Listener
	clock *monoClock
}

func (l *entryListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &entryConn{Conn: c, clock: l.clock, armed: true}, nil
}

// entryConn remembers the read that brought a request's first byte, and stamps
// the writes of the reply.
type entryConn struct {
	net.Conn
	clock *monoClock
	mu    sync.Mutex
	armed bool  // the next read begins a request
	recv  int64 // first read of the request that begins
	cur   *connStamps
}

func (c *entryConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		ns := c.clock.Now()
		c.mu.Lock()
		if c.armed {
			c.armed, c.recv = false, ns
		}
		c.mu.Unlock()
	}
	return n, err
}

func (c *entryConn) Write(p []byte) (int, error) {
	ns := c.clock.Now()
	c.mu.Lock()
	cur := c.cur
	c.mu.Unlock()
	if cur != nil {
		cur.mu.Lock()
		if cur.first == 0 {
			cur.first = ns
		}
		cur.last = ns
		cur.mu.Unlock()
	}
	return c.Conn.Write(p)
}

// begin ties the connection's writes to a request; its body is read by now.
func (c *entryConn) begin(s *connStamps) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.recv = c.recv
	c.cur = s
	c.armed = true
}

// ignore is begin for a request without truth.
func (c *entryConn) ignore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cur = nil
	c.armed = true
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *entryConn {
	return ctx.Value(connKey{}).(*entryConn)
}
