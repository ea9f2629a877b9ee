package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// ioBatch is libzmq's in_batch_size and out_batch_size.
const ioBatch = 8192

const maxFrame = 256 << 20

// zmtpGreeting is ZMTP 3.1 with the NULL mechanism.
func zmtpGreeting() []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10], g[11] = 0xff, 0x7f, 3, 1
	copy(g[12:], "NULL")
	return g
}

func zmtpReady(socketType string) []byte {
	body := append([]byte("\x05READY\x0bSocket-Type"), 0, 0, 0, byte(len(socketType)))
	body = append(body, socketType...)
	return append([]byte{4, byte(len(body))}, body...)
}

func appendFrame(b []byte, more bool, body []byte) []byte {
	var flags byte
	if more {
		flags = 1
	}
	if len(body) < 256 {
		b = append(b, flags, byte(len(body)))
	} else {
		b = append(b, flags|2)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	}
	return append(b, body...)
}

// zmtpReader reads whole messages and the time of the read call that brought
// the last byte of each.
type zmtpReader struct {
	conn   net.Conn
	clock  *monoClock
	buf    [ioBatch]byte
	r, w   int
	ns     int64  // of the latest read call
	before func() // called before a read that begins a message; nil in a run without faults
}

func (z *zmtpReader) fill() error {
	n, err := z.conn.Read(z.buf[:])
	z.ns = z.clock.Now()
	z.r, z.w = 0, n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

func (z *zmtpReader) read(p []byte) error {
	for len(p) > 0 {
		if z.r == z.w {
			if err := z.fill(); err != nil {
				return err
			}
		}
		n := copy(p, z.buf[z.r:z.w])
		z.r += n
		p = p[n:]
	}
	return nil
}

func (z *zmtpReader) frame() (flags byte, body []byte, err error) {
	var head [9]byte
	if err = z.read(head[:2]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1])
	if head[0]&2 != 0 {
		if err = z.read(head[2:9]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(head[1:9])
	}
	if size > maxFrame {
		return 0, nil, fmt.Errorf("read ZMTP frame: %d bytes is more than %d", size, maxFrame)
	}
	body = make([]byte, size)
	return head[0], body, z.read(body)
}

// message returns the parts of the next message and its size on the wire.
func (z *zmtpReader) message() (parts [][]byte, wire int, err error) {
	if z.before != nil && z.r == z.w {
		z.before()
	}
	for {
		flags, body, err := z.frame()
		if err != nil {
			return nil, 0, err
		}
		if flags&4 != 0 {
			continue
		}
		wire += 2 + len(body)
		if flags&2 != 0 {
			wire += 7
		}
		parts = append(parts, body)
		if flags&1 == 0 {
			return parts, wire, nil
		}
	}
}

// handshake exchanges greetings and READY; both ends may write at once.
func (z *zmtpReader) handshake(socketType string) error {
	g := zmtpGreeting()
	if _, err := z.conn.Write(g[:10]); err != nil {
		return fmt.Errorf("send ZMTP signature: %w", err)
	}
	peer := make([]byte, 64)
	if err := z.read(peer[:10]); err != nil {
		return fmt.Errorf("receive ZMTP signature: %w", err)
	}
	if peer[0] != 0xff || peer[9] != 0x7f {
		return errors.New("receive ZMTP signature: the peer speaks another protocol")
	}
	if _, err := z.conn.Write(g[10:]); err != nil {
		return fmt.Errorf("send ZMTP greeting: %w", err)
	}
	if err := z.read(peer[10:]); err != nil {
		return fmt.Errorf("receive ZMTP greeting: %w", err)
	}
	if _, err := z.conn.Write(zmtpReady(socketType)); err != nil {
		return fmt.Errorf("send ZMTP READY: %w", err)
	}
	flags, _, err := z.frame()
	if err == nil && flags&4 == 0 {
		err = errors.New("a message came before the command")
	}
	if err != nil {
		return fmt.Errorf("receive ZMTP READY: %w", err)
	}
	return nil
}

// outMessage is one message on its way; sent is called with the time just
// before the write that carries its first byte.
type outMessage struct {
	wire []byte
	sent func(ns int64)
}

// zmtpWriter writes queued messages from one goroutine, up to ioBatch bytes a
// write; the rest of a large message goes out in one piece.
type zmtpWriter struct {
	conn  net.Conn
	clock *monoClock
	mu    sync.Mutex
	queue []outMessage
	wake  chan struct{}
	dead  bool
	done  chan struct{}
}

func newZMTPWriter(conn net.Conn, clock *monoClock) *zmtpWriter {
	w := &zmtpWriter{conn: conn, clock: clock, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.loop(w.wake)
	return w
}

// Send queues a message; it is dropped when the peer is gone.
func (w *zmtpWriter) Send(m outMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return
	}
	w.queue = append(w.queue, m)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *zmtpWriter) take() []outMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue
	w.queue = nil
	return q
}

// Close ends the writer after what it is at, and waits for it.
func (w *zmtpWriter) Close() {
	w.mu.Lock()
	if w.wake != nil {
		close(w.wake)
	}
	w.dead, w.wake = true, nil
	w.mu.Unlock()
	<-w.done
	w.conn.Close()
}

func (w *zmtpWriter) loop(wake <-chan struct{}) {
	defer close(w.done)
	buf := make([]byte, 0, ioBatch)
	for range wake {
		queue := w.take()
		for len(queue) > 0 {
			var err error
			if queue, err = w.batch(buf[:0], queue); err != nil {
				w.mu.Lock()
				w.dead, w.queue = true, nil
				w.mu.Unlock()
				return
			}
		}
	}
}

// batch writes the messages that fit into one buffer, and the rest of the last.
func (w *zmtpWriter) batch(buf []byte, queue []outMessage) ([]outMessage, error) {
	n := 0
	var rest []byte
	for n < len(queue) && len(buf) < ioBatch {
		m := queue[n].wire
		take := min(len(m), ioBatch-len(buf))
		buf = append(buf, m[:take]...)
		rest = m[take:]
		n++
	}
	ns := w.clock.Now()
	_, err := w.conn.Write(buf)
	if err == nil && len(rest) > 0 {
		_, err = w.conn.Write(rest)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range queue[:n] {
		if m.sent != nil {
			m.sent(ns)
		}
	}
	return queue[n:], nil
}
