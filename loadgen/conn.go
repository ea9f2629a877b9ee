package loadgen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conn is one connection of the pool, used by one exchange at a time.
type conn struct {
	raw           *stampedConn
	rw            net.Conn // raw, or TLS over it
	exchanges     int
	local, remote string
}

// alive says whether an idle connection can still be used. A server that closed it, or that sent
// something nobody asked for, makes it useless; finding that out before sending is what makes a
// retry unnecessary.
func (c *conn) alive() bool {
	sc, ok := c.raw.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var peekErr error
	err = rc.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, peekErr = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return true
	})
	return err == nil && errors.Is(peekErr, unix.EAGAIN)
}

// pool keeps idle connections, the most recently used first, so that as few as possible stay open.
type pool struct {
	addr string
	tls  *tls.Config // nil: plain

	mu   sync.Mutex
	idle []*conn
}

func newPool(u *url.URL) *pool {
	p := &pool{addr: hostPort(u)}
	if u.Scheme == "https" {
		p.tls = &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}}
	}
	return p
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// get returns an idle connection that still lives, or a new one.
func (p *pool) get(ctx context.Context) (c *conn, isNew bool, err error) {
	for {
		p.mu.Lock()
		if len(p.idle) == 0 {
			p.mu.Unlock()
			break
		}
		c = p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		p.mu.Unlock()
		if c.alive() {
			return c, false, nil
		}
		c.rw.Close()
	}
	c, err = p.dial(ctx)
	return c, true, err
}

func (p *pool) dial(ctx context.Context) (*conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", p.addr, err)
	}
	raw := newStampedConn(nc)
	c := &conn{raw: raw, rw: raw, local: nc.LocalAddr().String(), remote: nc.RemoteAddr().String()}
	if p.tls != nil {
		t := tls.Client(raw, p.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", p.addr, err)
		}
		c.rw = t
	}
	return c, nil
}

// put gives back a connection on which an exchange ended completely.
func (p *pool) put(c *conn) {
	if c.rw.SetDeadline(time.Time{}) != nil {
		c.rw.Close()
		return
	}
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		c.rw.Close()
	}
	p.idle = nil
}
