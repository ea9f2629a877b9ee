package loadgen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
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
	h2            *h2Conn // nil: HTTP/1.1
}

// protocol is the side of one exchange that the HTTP version decides. feed takes the bytes of one
// socket read, of any size; eof says whether the reply may end with the connection.
type protocol interface {
	write(w io.Writer, request []byte) (int, error)
	feed(b []byte) error
	eof() error
	done() bool
	reusable() bool
	stop() // ends a request that is still being written
	abandon(w io.Writer)
}

func (c *conn) protocol(begin func(*responseHead), data func([]byte)) protocol {
	if c.h2 != nil {
		return c.h2.open(begin, data)
	}
	return &httpParser{begin: begin, data: data}
}

// alive says whether an idle connection can still be used. A server that closed it, or that sent
// something nobody asked for, makes it useless; finding that out before sending is what makes a
// retry unnecessary.
func (c *conn) alive() bool {
	waiting, ok := c.peek()
	if !ok || !waiting {
		return ok
	}
	// An idle HTTP/2 connection is told settings and windows; HTTP/1.1 has nothing to say.
	return c.h2 != nil && c.h2.idle(c.rw)
}

// peek says whether bytes wait to be read; not ok means that the connection is of no more use.
func (c *conn) peek() (waiting, ok bool) {
	sc, ok := c.raw.Conn.(syscall.Conn)
	if !ok {
		return false, false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return false, false
	}
	var n int
	var peekErr error
	err = rc.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, peekErr = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return true
	})
	return n > 0, err == nil && (n > 0 || errors.Is(peekErr, unix.EAGAIN))
}

// pool keeps idle connections, the most recently used first, so that as few as possible stay open.
type pool struct {
	addr    string
	tls     *tls.Config // nil: plain
	h2      bool
	receive int // size asked for the receive buffer of a slow consumer; 0: the host's

	mu   sync.Mutex
	idle []*conn
}

func newPool(cfg *Config, u *url.URL) *pool {
	c := &cfg.Client
	p := &pool{addr: hostPort(u), h2: c.HTTP == "2", receive: receiveBuffer(c)}
	if u.Scheme == "https" {
		p.tls = &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}, InsecureSkipVerify: c.Insecure}
		if p.h2 {
			p.tls.NextProtos = []string{"h2"}
		}
		if len(c.CA) > 0 {
			p.tls.RootCAs = x509.NewCertPool()
			p.tls.RootCAs.AppendCertsFromPEM(c.CA)
		}
	}
	return p
}

func (p *pool) scheme() string {
	if p.tls != nil {
		return "https"
	}
	return "http"
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
	if t, ok := nc.(*net.TCPConn); ok && p.receive > 0 {
		// Refused sizes leave the host's: the consumer is slow all the same.
		_ = t.SetReadBuffer(p.receive)
	}
	raw := newStampedConn(nc)
	c := &conn{raw: raw, rw: raw, local: nc.LocalAddr().String(), remote: nc.RemoteAddr().String()}
	if p.tls != nil {
		t := tls.Client(raw, p.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", p.addr, err)
		}
		if p.h2 && t.ConnectionState().NegotiatedProtocol != "h2" {
			nc.Close()
			return nil, fmt.Errorf("connect to %s: the server does not speak HTTP/2 over TLS; use HTTP/1.1", p.addr)
		}
		c.rw = t
	}
	if p.h2 {
		if c.h2, err = newH2Conn(c.rw, p.scheme(), p.receive); err != nil {
			nc.Close()
			return nil, fmt.Errorf("HTTP/2 preface to %s: %w", p.addr, err)
		}
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
