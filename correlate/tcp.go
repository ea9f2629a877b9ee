package correlate

import (
	"fmt"
	"net"
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// tcpIndex finds the other end of a TCP connection. Within one network namespace two addresses say
// it. Between namespaces other containers may use the same addresses, and addresses may be
// translated on the way (DNAT); sequence numbers are the same at both ends, so what one end read
// tells which other end wrote it.
type tcpIndex struct {
	byPair   map[string]*endpoint // namespace, local, remote; namespace 0: of any, nil when several
	byLocal  map[string][]*endpoint
	byRemote map[string][]*endpoint
	byStart  map[callStart][]*endpoint // first calls of those that addresses alone do not pair
}

// callStart is where in its stream a call began.
type callStart struct {
	dir run.Dir
	pos uint64
}

// maxStarts is for how many calls an endpoint without a peer is kept in byStart.
const maxStarts = 32

func newTCPIndex() tcpIndex {
	return tcpIndex{byPair: map[string]*endpoint{}, byLocal: map[string][]*endpoint{}, byRemote: map[string][]*endpoint{}, byStart: map[callStart][]*endpoint{}}
}

func (t *Timeline) addTCP(e *endpoint) {
	x := &t.tcp
	p := x.byPair[tcpKey(e.NetNS, e.Remote, e.Local)]
	if p == nil && !loopback(e.Remote) && !x.twin(e) {
		p = x.byPair[tcpKey(0, e.Remote, e.Local)] // the same pair of addresses from another namespace
	}
	if p != nil && p.peer == nil && p.closedNS == 0 {
		t.join(e, p)
	}
	x.byPair[tcpKey(e.NetNS, e.Local, e.Remote)] = e
	x.byLocal[e.Local] = append(x.byLocal[e.Local], e)
	x.byRemote[e.Remote] = append(x.byRemote[e.Remote], e)
	if loopback(e.Local) {
		return
	}
	any := tcpKey(0, e.Local, e.Remote)
	if x.twin(e) {
		x.part(any)
		e = nil // none of them is found by addresses any more
	}
	x.byPair[any] = e
}

// twin tells that a connection of another namespace has the same addresses.
func (x *tcpIndex) twin(e *endpoint) bool {
	other, known := x.byPair[tcpKey(0, e.Local, e.Remote)]
	return known && (other == nil || other != e && other.NetNS != e.NetNS && other.closedNS == 0)
}

// part takes back a channel between namespaces that was guessed by addresses that turn out to be
// used twice.
func (x *tcpIndex) part(any string) {
	if e := x.byPair[any]; e != nil && e.peer != nil && e.peer.NetNS != e.NetNS {
		e.peer.peer, e.peer = nil, nil
	}
}

func (x *tcpIndex) forget(e *endpoint) {
	for _, k := range [...]string{tcpKey(e.NetNS, e.Local, e.Remote), tcpKey(0, e.Local, e.Remote)} {
		if x.byPair[k] == e {
			delete(x.byPair, k)
		}
	}
	without(x.byLocal, e.Local, e)
	without(x.byRemote, e.Remote, e)
	for _, k := range e.starts {
		without(x.byStart, k, e)
	}
}

func without[K comparable](m map[K][]*endpoint, key K, e *endpoint) {
	l := slices.DeleteFunc(m[key], func(o *endpoint) bool { return o == e })
	if len(l) == 0 {
		delete(m, key)
		return
	}
	m[key] = l
}

// pairByPosition joins an endpoint whose addresses name no other with the one that wrote what it
// read, or read what it wrote. Where one address fits, as translation of one leaves the other, one
// byte is enough: another connection at the same position by chance is one in 2^32 over the bytes in
// flight.
func (t *Timeline) pairByPosition(e *endpoint, r *run.IO) {
	candidates := t.tcp.byLocal[e.Remote]
	if r.Dir == run.Send {
		candidates = t.tcp.byRemote[e.Local]
	}
	for _, c := range candidates {
		h := &c.sent
		if r.Dir == run.Send {
			h = &c.received
		}
		if c.mayPair(e) && h.covers(e.absolute(r.Pos)) {
			t.join(e, c)
			return
		}
	}
	t.pairByStarts(e, r)
}

// pairByStarts is for connections of which both addresses are translated: calls that begin at the
// same position must be found in both directions.
func (t *Timeline) pairByStarts(e *endpoint, r *run.IO) {
	if !e.PosAbsolute || len(e.starts) == maxStarts || loopback(e.Local) {
		return
	}
	at := callStart{r.Dir, e.absolute(r.Pos)}
	for _, c := range t.tcp.byStart[at.facing()] {
		back := func(k callStart) bool { return k.dir != r.Dir && slices.Contains(c.starts, k.facing()) }
		if c.mayPair(e) && slices.ContainsFunc(e.starts, back) {
			t.join(e, c)
			return
		}
	}
	e.starts = append(e.starts, at)
	t.tcp.byStart[at] = append(t.tcp.byStart[at], e)
}

func (e *endpoint) mayPair(with *endpoint) bool {
	return e != with && e.peer == nil && e.closedNS == 0 && (e.NetNS == with.NetNS || !loopback(with.Local))
}

// facing is the same place as the other end sees it.
func (k callStart) facing() callStart {
	if k.dir == run.Send {
		return callStart{run.Recv, k.pos}
	}
	return callStart{run.Send, k.pos}
}

// covers tells whether a call moved the byte at pos.
func (h *half) covers(pos uint64) bool {
	return slices.ContainsFunc(h.marks, func(m mark) bool { return m.start <= pos && pos < m.end })
}

func tcpKey(ns uint32, local, remote string) string {
	return fmt.Sprintf("%d %s %s", ns, local, remote)
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true
	}
	ip := net.ParseIP(host)
	return ip == nil || ip.IsLoopback()
}
