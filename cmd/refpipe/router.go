package main

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// request is one HTTP request from entry to end.
type request struct {
	id, wireID, headerID, replyID, endpoint string
	events                                  chan *Message // closed by nobody; buffered for all a request can get
	lost                                    chan struct{} // closed when a worker that may hold it died
	stamps                                  connStamps
	state                                   atomic.Value // string
}

func (r *request) truth() truthRequest {
	state, _ := r.state.Load().(string)
	if state == "" {
		state = "error"
	}
	recv, first, last := r.stamps.get()
	return truthRequest{T: "request", Request: r.id, WireID: r.wireID, HeaderID: r.headerID, ReplyID: r.replyID,
		Endpoint: r.endpoint, Recv: recv, First: first, Last: last, State: state}
}

// router is the API's side of the control plane: it submits, aborts, and gives
// what stages send to the request it belongs to.
type router struct {
	lay   *layout
	clock *monoClock
	truth *apiTruth // nil: no truth is kept

	mu      sync.Mutex
	pending map[string]*request
	peers   []*zmtpWriter // by process
	gone    []bool
	readers sync.WaitGroup
	entries []net.Listener
	beats   atomic.Int64
	bad     atomic.Int64
}

func newRouter(lay *layout, clock *monoClock, truth *apiTruth) *router {
	n := len(lay.top.Procs)
	return &router{lay: lay, clock: clock, truth: truth, pending: map[string]*request{}, peers: make([]*zmtpWriter, n), gone: make([]bool, n)}
}

// listen binds the completion socket and, where an edge needs it, the text one.
func (r *router) listen() error {
	accept := func(path string, serve func(net.Conn)) error {
		l, err := net.Listen("unix", path)
		if err != nil {
			return fmt.Errorf("listen for stages: %w", err)
		}
		r.entries = append(r.entries, l)
		r.readers.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				r.readers.Go(func() { serve(c) })
			}
		})
		return nil
	}
	if err := accept(r.lay.completionPath(), r.serveZMTP); err != nil {
		return err
	}
	return accept(r.lay.textPath(), r.serveText)
}

// dial connects to every stage process once those have bound their sockets.
func (r *router) dial() error {
	for _, p := range r.lay.top.Procs[1:] {
		path := r.lay.procSocket(p.Index)
		var c net.Conn
		var err error
		for range 1500 {
			if c, err = net.Dial("unix", path); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("connect to stage process %d: %w", p.Index, err)
		}
		z := &zmtpReader{conn: c, clock: r.clock}
		if err := z.handshake("PUSH"); err != nil {
			return fmt.Errorf("connect to stage process %d: %w", p.Index, err)
		}
		r.peers[p.Index] = newZMTPWriter(c, r.clock)
	}
	return nil
}

func (r *router) serveZMTP(c net.Conn) {
	z := &zmtpReader{conn: c, clock: r.clock}
	if err := z.handshake("PULL"); err != nil {
		c.Close()
		return
	}
	for {
		parts, wire, err := z.message()
		if err != nil {
			c.Close()
			return
		}
		m, err := decodeParts(parts)
		if err != nil {
			r.bad.Add(1)
			continue
		}
		r.dispatch(m, z.ns, wire, CarrierUnix)
		r.slow(z, m)
	}
}

// slow arms the slow-hop fault on the connection that the slow stage sends on:
// from then on bytes lie in the socket's queue before they are read.
func (r *router) slow(z *zmtpReader, m *Message) {
	f := r.lay.faults
	if f.SlowMS == 0 || f.SlowTo != 0 || z.before != nil || m.From != r.lay.top.NameOf(f.SlowFrom) {
		return
	}
	delay := time.Duration(f.SlowMS) * time.Millisecond
	z.before = func() { holdReadable(z.conn, delay) }
}

// holdReadable waits until bytes are there and then for d.
func holdReadable(c net.Conn, d time.Duration) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return
	}
	peek := make([]byte, 1)
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), peek, syscall.MSG_PEEK)
		return err != syscall.EAGAIN
	})
	if err == nil {
		time.Sleep(d)
	}
}

func (r *router) serveText(c net.Conn) {
	tr := &stampedReader{conn: c, clock: r.clock}
	lines := bufio.NewReaderSize(tr, ioBatch)
	f := r.lay.faults
	for {
		if f.SlowMS != 0 && f.SlowTo == 0 && f.SlowFrom == 5 && lines.Buffered() == 0 {
			holdReadable(c, time.Duration(f.SlowMS)*time.Millisecond)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			c.Close()
			return
		}
		m, err := decodeLine(line)
		if err != nil {
			r.bad.Add(1)
			continue
		}
		r.dispatch(m, tr.ns, len(line), CarrierText)
	}
}

type stampedReader struct {
	conn  net.Conn
	clock *monoClock
	ns    int64
}

func (s *stampedReader) Read(p []byte) (int, error) {
	n, err := s.conn.Read(p)
	s.ns = s.clock.Now()
	return n, err
}

func (r *router) dispatch(m *Message, ns int64, wire int, carrier Carrier) {
	if m.Type == MsgBeat {
		r.beats.Add(1)
		return
	}
	from, _ := r.lay.top.StageByName(m.From)
	if from == nil {
		r.bad.Add(1)
		return
	}
	if r.truth != nil {
		rec := record{kind: recRecv, typ: uint8(m.Type), carrier: uint8(carrier), from: from.Index, proc: 0, peer: -1,
			chunk: m.Chunk, bytes: uint32(wire), id: m.ID}
		rec.t[0] = ns
		r.truth.add(rec)
	}
	r.mu.Lock()
	q := r.pending[m.ID]
	r.mu.Unlock()
	if q != nil {
		q.events <- m
	}
}

// send queues a message to a process and records when it was written.
func (r *router) send(proc int, typ MsgType, id string, wire []byte) {
	out := outMessage{wire: wire}
	if r.truth != nil && id != "" {
		to := r.lay.top.Procs[proc].Stages[0]
		out.sent = func(ns int64) {
			rec := record{kind: recSend, typ: uint8(typ), carrier: uint8(CarrierUnix), to: to, peer: proc, chunk: -1, bytes: uint32(len(wire)), id: id}
			rec.t[0] = ns
			r.truth.add(rec)
		}
	}
	r.peers[proc].Send(out)
}

// submit registers the request and hands it to the first stage. False: the id
// is in flight already.
func (r *router) submit(q *request, payload []byte) bool {
	r.mu.Lock()
	_, taken := r.pending[q.wireID]
	if !taken {
		r.pending[q.wireID] = q
	}
	r.mu.Unlock()
	if taken {
		return false
	}
	first := r.lay.top.Stages[1]
	r.send(first.Procs[0], MsgSubmit, q.wireID, encodeSubmit(r.lay.top.EdgeOf(0, 1).Framing, q.wireID, first.Name, payload))
	return true
}

func (r *router) forget(q *request) {
	r.mu.Lock()
	delete(r.pending, q.wireID)
	r.mu.Unlock()
}

// abort tells every stage process to drop the request.
func (r *router) abort(q *request) {
	wire := encodeAbort(q.wireID)
	for p := 1; p < len(r.peers); p++ {
		r.mu.Lock()
		gone := r.gone[p]
		r.mu.Unlock()
		if !gone {
			r.send(p, MsgAbort, q.wireID, wire)
		}
	}
}

// procLost fails every request in flight: any of them may be held by p.
func (r *router) procLost(p int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[p] = true
	for _, q := range r.pending {
		select {
		case <-q.lost:
		default:
			close(q.lost)
		}
	}
}

// down names a stage without a living process, "" when all are served.
func (r *router) down() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.lay.top.Stages[1:] {
		alive := false
		for _, p := range s.Procs {
			alive = alive || !r.gone[p]
		}
		if !alive {
			return s.Name
		}
	}
	return ""
}

// close ends the control plane once the stage processes are gone: all that was
// on its way is read and stamped then.
func (r *router) close() {
	for _, l := range r.entries {
		l.Close()
	}
	for _, p := range r.peers {
		if p != nil {
			p.Close()
		}
	}
	r.readers.Wait()
}

// healthChecks sends messages without a request id now and then, as engines do.
func (r *router) healthChecks(stop <-chan struct{}) {
	tick := time.NewTicker(700 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			for p := 1; p < len(r.peers); p++ {
				r.send(p, MsgHealth, "", encodeHealth())
			}
		}
	}
}
