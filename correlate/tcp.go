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
	outward  []*endpoint // those that do not end on a loopback device, in order of announcement
}

func newTCPIndex() tcpIndex {
	return tcpIndex{byPair: map[string]*endpoint{}, byLocal: map[string][]*endpoint{}, byRemote: map[string][]*endpoint{}}
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
	if !slices.Contains(x.outward, e) {
		x.outward = append(x.outward, e)
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
	x.outward = slices.DeleteFunc(x.outward, func(o *endpoint) bool { return o == e })
}

func without(m map[string][]*endpoint, key string, e *endpoint) {
	l := slices.DeleteFunc(m[key], func(o *endpoint) bool { return o == e })
	if len(l) == 0 {
		delete(m, key)
		return
	}
	m[key] = l
}

// maxStrangers bounds the calls at one endpoint for which all others are looked at. What appears
// later looks for this one in turn.
const maxStrangers = 32

// pairByPosition joins an endpoint whose addresses name no other with the one that wrote what it
// read, or read what it wrote. Where one address fits, as translation of one leaves the other, one
// byte is enough: another connection at the same position by chance is one in 2^32 over the bytes in
// flight. Where both are translated, calls that begin at the same position must be found in both
// directions.
func (t *Timeline) pairByPosition(e *endpoint, r *run.IO) {
	candidates := t.tcp.byLocal[e.Remote]
	if r.Dir == run.Send {
		candidates = t.tcp.byRemote[e.Local]
	}
	for _, c := range candidates {
		if c.mayPair(e) && c.opposite(r.Dir).covers(e.absolute(r.Pos)) {
			t.join(e, c)
			return
		}
	}
	if e.strangers == maxStrangers || loopback(e.Local) {
		return
	}
	e.strangers++
	for _, c := range t.tcp.outward {
		if c.mayPair(e) && c.opposite(r.Dir).begins(e.absolute(r.Pos)) && c.sameBeginning(e, r.Dir) {
			t.join(e, c)
			return
		}
	}
}

func (e *endpoint) mayPair(with *endpoint) bool {
	return e != with && e.peer == nil && e.closedNS == 0 && (e.NetNS == with.NetNS || !loopback(with.Local))
}

// opposite is the half that moved what the other end's dir moves.
func (e *endpoint) opposite(dir run.Dir) *half {
	if dir == run.Send {
		return &e.received
	}
	return &e.sent
}

// sameBeginning tells whether two ends have calls that begin at the same position in the direction
// other than dir of with.
func (e *endpoint) sameBeginning(with *endpoint, dir run.Dir) bool {
	mine, other := &e.received, &with.sent
	if dir == run.Send {
		mine, other = &e.sent, &with.received
	}
	return slices.ContainsFunc(other.marks, func(m mark) bool { return mine.begins(m.start) })
}

// begins tells whether a call began to move bytes at pos.
func (h *half) begins(pos uint64) bool {
	return slices.ContainsFunc(h.marks, func(m mark) bool { return m.start == pos })
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
