package drain

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"github.com/stageline/stageline/bpf"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/collector/wire"
)

// endpoint is what the drain keeps of one kernel object.
type endpoint struct {
	id     uint32
	key    bpf.StagelineSlEp
	info   run.Endpoint
	conn   *wire.Conn
	hint   int
	seq    [3]seqUnwrap // by direction
	votes  baseVotes
	led    bool      // the reader of what this sends knows its protocol
	told   bool      // in the run
	next   [3]uint64 // by direction: position after the last call
	by     [3]holder // by direction: who used it last
	lastNS int64     // last call, or when it came to be known
	ends   ending
}

// ending says how much is known of an endpoint's end.
type ending uint8

const (
	endOpen ending = iota
	endHalf        // one direction: the other may still be used, after a long silence
	endBoth
)

// TCP states of the kernel in which a socket sends no more. That of a closed socket is not seen,
// because by then it has no owner.
const (
	tcpFinWait1 = 4 // closed, or shut down for sending
	tcpClose    = 7
	tcpLastAck  = 9
)

const (
	// closedAfter is how long a closed endpoint is kept for records that come late, and halfAfter
	// how long a silent one is that may have been closed: by a server that takes its time to
	// answer a client that has said all, for example.
	closedAfter = int64(10 * time.Second)
	halfAfter   = int64(10 * time.Minute)
	// restartAfter: a call that goes back in its stream and began this long after the last one ended
	// is no late record, but a stream that the kernel's table had forgotten.
	restartAfter = int64(time.Second)
)

// seqUnwrap extends 32-bit TCP sequence numbers.
type seqUnwrap struct {
	last uint64
	on   bool
}

func (s *seqUnwrap) extend(seq uint32) uint64 {
	if !s.on {
		s.on, s.last = true, uint64(seq)
		return s.last
	}
	v := s.last + uint64(int64(int32(seq-uint32(s.last))))
	if int64(v) < 0 {
		v = uint64(seq)
	}
	if v > s.last {
		s.last = v
	}
	return v
}

func (d *Drain) endpoint(key bpf.StagelineSlEp, atNS int64) *endpoint {
	if e, ok := d.eps[key]; ok {
		return e
	}
	d.lastID++
	e := &endpoint{id: d.lastID, key: key, lastNS: atNS, votes: baseVotes{count: map[int64]uint32{}}}
	e.info = run.Endpoint{ID: e.id, Transport: run.Transport(key.Transport), Inode: key.Ino, FirstNS: atNS,
		PosAbsolute: run.Transport(key.Transport) == run.TransportTCP}
	d.eps[key] = e
	return e
}

// ordered lists endpoints by id, so that what a run holds does not depend on map order.
func (d *Drain) ordered() []*endpoint {
	out := make([]*endpoint, 0, len(d.eps))
	for _, e := range d.eps {
		if e.conn != nil || e.votes.dirty || e.ends != endOpen {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *endpoint) int { return int(a.id) - int(b.id) })
	return out
}

// onEndpoint notes what the kernel says of an object. A unix peer that was not accepted at first
// is completed by a second announcement under the same id.
func (d *Drain) onEndpoint(r *bpf.StagelineSlEndpoint) bool {
	if r == nil {
		return false
	}
	e := d.endpoint(r.Ep, int64(r.FirstNs))
	in, was := &e.info, e.info
	in.PeerInode, in.NetNS = r.PeerIno, r.Netns
	in.Path, in.PeerPath = sunPath(r.Path[:], r.PathLen), sunPath(r.PeerPath[:], r.PeerPathLen)
	switch in.Transport {
	case run.TransportTCP, run.TransportUDP:
		in.Local, in.Remote = addrPort(r.Family, r.Laddr[:], r.Lport), addrPort(r.Family, r.Raddr[:], r.Rport)
	}
	told := e.told
	d.open(e)
	if told && *in == was {
		return true // each direction announces the same object
	}
	d.ep = *in
	d.cfg.Sink.Endpoint(&d.ep)
	return true
}

func decodable(t run.Transport) bool {
	return t == run.TransportUnix || t == run.TransportTCP || t == run.TransportPipe
}

func (d *Drain) onIO(r *bpf.StagelineSlIo, b []byte) bool {
	if r == nil || int(r.Cap) > len(b)-int(unsafe.Sizeof(*r)) {
		return false
	}
	e, known := d.eps[r.Ep]
	if !known {
		// Eventfds are not announced; of others the announcement was lost, and will be repeated.
		e = d.endpoint(r.Ep, int64(r.EnterNs))
		e.told = true
		d.ep = e.info
		d.cfg.Sink.Endpoint(&d.ep)
	}
	if e.restarted(r) {
		e = d.replace(e, int64(r.EnterNs))
	}
	pos := r.Pos
	if r.Flags&uint8(bpf.StagelineSlIoFlagSL_IO_POS_ABS) != 0 {
		pos = e.seq[r.Dir%3].extend(uint32(r.Pos))
	}
	d.io = run.IO{
		EnterNS: int64(r.EnterNs), ExitNS: int64(r.ExitNs), TGID: r.H.Tgid, TID: r.H.Tid, FD: r.Fd, Call: run.Call(r.Call),
		Dir: run.Dir(r.Dir), EP: e.id, Ret: r.Ret, Pos: pos, Captured: r.Cap, Queued: r.Queued,
	}
	d.cfg.Sink.IO(&d.io)
	e.lastNS = int64(r.ExitNs)
	e.by[r.Dir%3] = holder{r.H.Tgid, r.Fd}
	if r.Ret == 0 && run.Dir(r.Dir) == run.Recv {
		e.ends = max(e.ends, endHalf)
		if e.info.Transport == run.TransportPipe {
			e.ends = endBoth // it has one direction
		}
	}
	if r.Ret > 0 {
		e.next[r.Dir%3] = r.Pos + uint64(r.Ret)
	}
	if r.Flags&uint8(bpf.StagelineSlIoFlagSL_IO_BASE) != 0 && r.Ret > 0 {
		e.votes.add(-r.Base, int64(r.EnterNs))
	}
	if e.conn == nil || r.Ret <= 0 {
		return true
	}
	off := int(unsafe.Sizeof(*r))
	d.chunk = wire.Chunk{Pos: pos, Len: uint64(r.Ret), Data: b[off : off+int(r.Cap)],
		EnterNS: int64(r.EnterNs), ExitNS: int64(r.ExitNs), TGID: r.H.Tgid, TID: r.H.Tid}
	e.conn.Feed(run.Dir(r.Dir), &d.chunk)
	d.capture(e)
	return true
}

// restarted: the position of a stream went back to its beginning, because the kernel's table had
// forgotten it.
func (e *endpoint) restarted(r *bpf.StagelineSlIo) bool {
	return r.Flags&uint8(bpf.StagelineSlIoFlagSL_IO_POS_ABS) == 0 && r.Pos < e.next[r.Dir%3] && int64(r.EnterNs) > e.lastNS+restartAfter
}

// replace gives an object whose positions began anew another id, so that no byte of the new stream
// is taken for one of the old.
func (d *Drain) replace(e *endpoint, atNS int64) *endpoint {
	d.forget(e, atNS)
	n := d.endpoint(e.key, atNS)
	id := n.info.ID
	n.info = e.info
	n.info.ID, n.info.FirstNS = id, atNS
	d.open(n)
	d.ep = n.info
	d.cfg.Sink.Endpoint(&d.ep)
	return n
}

// drop forgets an endpoint whose stream has ended, here and in the kernel's table: if it is used
// after all, it is announced again.
func (d *Drain) drop(e *endpoint, now int64) {
	for _, dir := range []run.Dir{run.Send, run.Recv} {
		k := bpf.StagelineSlStreamKey{Ep: e.key, Dir: uint32(dir)}
		_ = d.cfg.Maps.Streams.Delete(&k) // a direction that was never used has no entry
	}
	_ = d.cfg.Maps.Capture.Delete(&e.key) // an inode that comes again begins with the default
	d.forget(e, now)
}

// state notes a change of a TCP socket's state.
func (e *endpoint) state(to uint16) {
	switch to {
	case tcpFinWait1:
		e.ends = max(e.ends, endHalf)
	case tcpClose, tcpLastAck:
		e.ends = endBoth
	}
}

// over: nothing more is expected of this endpoint.
func (e *endpoint) over(now int64) bool {
	quiet := now - e.lastNS
	return e.ends == endBoth && quiet > closedAfter || e.ends == endHalf && quiet > halfAfter
}

func (d *Drain) forget(e *endpoint, now int64) {
	e.finish(d, now)
	delete(d.eps, e.key)
	if d.byIno[e.info.Inode] == e {
		delete(d.byIno, e.info.Inode)
	}
}

// open starts decoding an endpoint that is known well enough.
func (d *Drain) open(e *endpoint) {
	e.told = true
	if t := e.info.Transport; t == run.TransportUnix || t == run.TransportUnixDG {
		d.byIno[e.info.Inode] = e
	}
	if e.conn == nil && decodable(e.info.Transport) {
		e.conn = wire.NewConn(&e.info, d.cfg.Rules, d.cfg.IDs, d.cfg.Sink)
		e.conn.Share(&d.held)
	}
}

// capture tells the kernel how many bytes of each call the decoder of this endpoint wants.
func (d *Drain) capture(e *endpoint) {
	want := e.conn.CaptureHint()
	if want == e.hint {
		return
	}
	n := uint32(max(want, 0))
	if err := d.cfg.Maps.Capture.Put(&e.key, &n); err != nil {
		return // the map is full: the default stays, which captures more, not less
	}
	e.hint, d.changed = want, true
}

// tellCapture lets the programs look into the table of captures again, for each stream once.
func (d *Drain) tellCapture() error {
	if !d.changed {
		return nil
	}
	d.changed = false
	d.gen++
	if err := d.cfg.Maps.CaptureGen.Set(d.gen); err != nil {
		return fmt.Errorf("tell the kernel programs what to capture: %w", err)
	}
	return nil
}

func (e *endpoint) tick(d *Drain, now int64) {
	if e.conn != nil {
		e.conn.Expire(now)
		d.lead(e)
	}
	e.votes.emit(d, e, now, false)
	if e.over(now) {
		d.drop(e, now)
	}
}

func (e *endpoint) finish(d *Drain, now int64) {
	if e.conn != nil {
		e.conn.Close(now)
		d.shed += e.conn.Stats().Shed
	}
	e.votes.emit(d, e, now, true)
}

// peer finds the reading endpoint of what e sends; nil unknown.
func (d *Drain) peer(e *endpoint) *endpoint {
	if e.info.Transport == run.TransportPipe {
		return e
	}
	if e.info.PeerInode != 0 {
		return d.byIno[e.info.PeerInode]
	}
	for _, p := range d.byIno {
		if p.info.PeerInode == e.info.Inode {
			return p
		}
	}
	return nil
}

// lead passes on what e sends to the decoder of its reader.
func (d *Drain) lead(e *endpoint) {
	if e.led || e.info.Transport != run.TransportUnix && e.info.Transport != run.TransportPipe {
		return
	}
	if p := d.peer(e); p != nil && p.conn != nil && p.conn.Follow(e.conn) {
		e.led = true
		d.capture(p)
	}
}

// sunPath gives a socket path as /proc/net/unix prints it: '@' for the NUL of abstract names.
func sunPath(b []uint8, n uint16) string {
	if int(n) > len(b) {
		n = uint16(len(b))
	}
	p := slices.Clone(b[:n])
	if len(p) == 0 {
		return ""
	}
	if p[0] == 0 {
		p[0] = '@'
		return string(p)
	}
	return cstring(p)
}

func addrPort(family uint16, a []uint8, port uint16) string {
	n := 16
	if family == 2 {
		n = 4
	}
	ip, _ := netip.AddrFromSlice(a[:n])
	return netip.AddrPortFrom(ip.Unmap(), port).String()
}
