package correlate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

// request gathers what belongs to one request until it is built.
type request struct {
	id      string
	seq     uint64
	source  string
	aliases []Alias
	client  *client

	conn     *endpoint // entry connection; nil when its entry was not seen
	exchange uint32
	method   string
	path     string
	tgid     uint32 // entry process

	entryNS, entryLoNS int64 // request's last byte read; first byte read
	sinceNS            int64 // its entry, when not seen, was after this
	replyNS, exitNS    int64 // first reply byte's write entered, last reply write returned
	lastWriteNS        int64 // last reply write entered
	replyFirst         bool  // the first reply part was seen as such
	replyLast          bool
	status             int32
	cut                bool // the peer closed before the reply was complete
	inFlight           bool
	voted              bool // has its say on which stages fire per chunk
	minted             bool // id was made up here: the request carried none

	firstNS, lastNS int64
	endNS           int64 // 0 open
	votesThen       int   // requests that had voted when this one did

	crossings []*crossing
	segments  []*segment
	seen      map[*crossing]bool
	notes     []string
}

func (r *request) adopt(c *crossing) {
	if r.seen == nil {
		r.seen = map[*crossing]bool{}
	}
	if !r.seen[c] {
		r.seen[c] = true
		r.crossings = append(r.crossings, c)
		if ns := c.ns(); ns > 0 && (r.firstNS == 0 || ns < r.firstNS) {
			r.firstNS = ns
		}
	}
}

// weakAlias reports that v is a name of r only because it once stood beside r's own id, or because
// no other request was there.
func (r *request) weakAlias(v string) bool {
	for _, a := range r.aliases {
		if a.Value == v {
			return a.Reason == aliasMessage || a.Reason == aliasOrder
		}
	}
	return false
}

func (r *request) dropAlias(v string) {
	r.aliases = slices.DeleteFunc(r.aliases, func(a Alias) bool { return a.Value == v })
}

// httpConn is the state of an entry connection.
type httpConn struct {
	exchanges int
	current   *request
	number    uint32
	freeNS    int64  // end of the last complete reply
	skipped   uint32 // number of an exchange that is no request
}

// message interprets one message in its turn.
func (t *Timeline) message(m *run.Message) {
	e := t.endpoints[m.EP]
	if m.Flags&run.MsgResynced != 0 {
		t.counts.Resyncs++
	}
	if len(m.IDs) == 0 {
		t.counts.MessagesNoID++
	}
	if e == nil {
		t.ledger.count("decode", "message without endpoint", 1, uint64(max(m.Bytes, 0)), messageNS(m))
		return
	}
	if m.TGID == 0 { // the call that brought its last byte was lost: the end's usual user made it
		m.TGID = e.byTGID[m.Dir-1]
	}
	p := t.procs.at(m.TGID, messageNS(m))
	e.byTGID[m.Dir-1] = m.TGID
	t.stateNames(p, e, m)
	if httpProto(m.Proto) && t.isEntry(e, m) {
		t.counts.MessagesAtEntry++
		t.entryMessage(e, p, m)
		return
	}
	t.namedSegments(m)
	if m.Proto == "burst" { // one call's bytes of no known framing: the other end cuts them elsewhere
		t.counts.MessagesUnframed++
		t.unframed(e, m)
		return
	}
	c := t.cross(e, m)
	if len(m.IDs) == 0 {
		t.notice(e, m)
		return
	}
	e.carries = true
	p.roles.carried(m)
	if m.Dir == run.Recv && !t.isControl(m.Type) {
		p.arrivals = append(p.arrivals, arrival{messageNS(m), m.EP, m.Pos, m.Type})
	}
	if m.Dir == run.Send && !t.isControl(m.Type) {
		p.sends = insertArrival(p.sends, arrival{cmp.Or(m.FirstEnterNS, messageNS(m)), m.EP, m.Pos, m.Type})
	}
	t.attach(c, m)
}

// stateNames learns what stage names a process's own messages give it.
func (t *Timeline) stateNames(p *process, e *endpoint, m *run.Message) {
	if e.Path != "" {
		p.bind(e.Path)
	}
	name := m.From
	if m.Dir == run.Recv {
		name = m.To
	}
	name = withoutReplica(name)
	if name != "" && (p.stated[name] > 0 || len(p.stated) < 64) {
		p.stated[name]++
		if n := p.stated[name]; n&(n-1) == 0 { // the name stated most may be another one now
			p.named = nil
		}
	}
}

func httpProto(p string) bool { return p == "http1" || p == "sse" || p == "ndjson" }

// isEntry reports that an HTTP message belongs to a connection from outside on which the target
// is the server.
func (t *Timeline) isEntry(e *endpoint, m *run.Message) bool {
	if e.conn != nil {
		return true
	}
	if e.peer != nil || e.Transport == run.TransportPipe {
		return false
	}
	if m.Dir == run.Send {
		// A reply whose request came before attach. A request to the outside names a method.
		return method(m.Type) == "" && (m.Proto != "http1" || m.Status != 0)
	}
	return method(m.Type) != ""
}

// method is the HTTP method that opens a request's type, or "".
func method(typ string) string {
	w, rest, ok := strings.Cut(typ, " ")
	if !ok || w == "" || !strings.HasPrefix(rest, "/") || strings.ToUpper(w) != w || !letters(w) {
		return ""
	}
	return w
}

func (t *Timeline) entryMessage(e *endpoint, p *process, m *run.Message) {
	if e.conn == nil {
		e.conn = &httpConn{}
	}
	if m.Dir == run.Recv {
		p.entry = true
		p.nEntry++
		p.named = nil
		t.requestPart(e, m)
		return
	}
	t.replyPart(e, m)
}

// requestPart takes a part of a request at the entry.
func (t *Timeline) requestPart(e *endpoint, m *run.Message) {
	c := e.conn
	if r := c.current; r != nil && c.number == m.Exchange {
		r.entryNS = max(r.entryNS, m.LastExitNS)
		t.entryIDs(r, m)
		return
	}
	if c.skipped == m.Exchange && method(m.Type) == "" {
		return
	}
	if r := c.current; r != nil && r.endNS == 0 {
		t.end(r, m.FirstEnterNS) // the connection moved on: the last exchange is over
	}
	c.exchanges++
	c.current, c.number = nil, m.Exchange
	if verb := method(m.Type); (verb == "GET" || verb == "HEAD" || verb == "OPTIONS") && !t.namesClient(m) {
		c.skipped = m.Exchange
		t.idleExchanges++
		return
	}
	r := t.entered(m)
	c.current = r
	r.conn, r.exchange, r.tgid = e, m.Exchange, m.TGID
	r.method, r.path, _ = strings.Cut(m.Type, " ")
	r.entryLoNS, r.entryNS = m.FirstEnterNS, m.LastExitNS
	r.lastNS = max(r.lastNS, m.LastExitNS)
	if r.firstNS == 0 || m.FirstEnterNS > 0 && m.FirstEnterNS < r.firstNS {
		r.firstNS = m.FirstEnterNS
	}
	t.entryIDs(r, m)
}

// namesClient reports that a message carries an id of the load generator.
func (t *Timeline) namesClient(m *run.Message) bool {
	for _, id := range m.IDs {
		if t.clients.byID[id.Value] != nil {
			return true
		}
	}
	return false
}

// entered finds or makes the request that a request message at the entry begins.
func (t *Timeline) entered(m *run.Message) *request {
	for _, id := range m.IDs {
		r := t.ids.active[id.Value]
		if c := t.clients.byID[id.Value]; r == nil && c != nil && !c.linked {
			r = t.activate(c)
		}
		if r != nil && r.conn == nil {
			return r
		}
	}
	id := ""
	for _, ref := range m.IDs { // a header is what the client chose to be known by
		if id == "" || strings.HasPrefix(ref.Field, "header") {
			id = ref.Value
		}
		if strings.HasPrefix(ref.Field, "header") {
			break
		}
	}
	r := t.newRequest(id)
	if id == "" {
		r.minted = true
		r.id = fmt.Sprintf("entry-%d", r.seq)
	} else {
		t.ids.active[id] = nil // a repeated id names its newest request
		delete(t.ids.active, id)
		t.own(r, id, aliasSelf)
	}
	return r
}

func (t *Timeline) entryIDs(r *request, m *run.Message) {
	for _, ref := range m.IDs {
		if ref.Value != r.id {
			t.own(r, ref.Value, aliasSelf)
		}
	}
}

func (t *Timeline) newRequest(id string) *request {
	t.seq++
	r := &request{id: id, seq: t.seq, source: "discovered"}
	t.open = append(t.open, r)
	return r
}

// replyPart takes a part of a reply at the entry.
func (t *Timeline) replyPart(e *endpoint, m *run.Message) {
	c := e.conn
	if m.Status >= 100 && m.Status < 200 {
		return
	}
	if c.skipped != 0 && c.skipped == m.Exchange {
		return
	}
	r := c.current
	if r == nil || c.number != m.Exchange && c.exchanges > 0 {
		r = t.replyOnly(e, m)
	}
	if r.replyNS == 0 {
		r.replyNS = m.FirstEnterNS
		r.replyFirst = m.Flags&run.MsgFirst != 0 || m.Status != 0
	}
	if m.Status != 0 {
		r.status = m.Status
	}
	r.exitNS, r.lastWriteNS = max(r.exitNS, m.LastExitNS), max(r.lastWriteNS, m.LastEnterNS)
	r.lastNS = max(r.lastNS, m.LastExitNS)
	for _, ref := range m.IDs {
		if q, _, _ := t.resolve(ref.Value); q == nil {
			t.own(r, ref.Value, aliasExchange)
		}
	}
	if m.Flags&run.MsgLast != 0 {
		r.replyLast = true
		c.freeNS = m.LastExitNS
		t.end(r, m.LastExitNS)
	}
}

// replyOnly finds or makes the request of a reply whose own request message was not seen: before
// attach, or lost. Without an id in the reply it stays nameless, and is no request unless an id
// turns out to belong to it.
func (t *Timeline) replyOnly(e *endpoint, m *run.Message) *request {
	for _, ref := range m.IDs {
		r, _, _ := t.resolve(ref.Value)
		if r == nil {
			if _, done := t.ids.done[ref.Value]; done {
				continue
			}
			r = t.newRequest(ref.Value)
			t.own(r, ref.Value, aliasSelf)
		} else if r.conn != nil {
			continue
		}
		return t.answered(e, m, r)
	}
	r := t.newRequest("")
	r.minted = true
	r.id = fmt.Sprintf("entry-%d", r.seq)
	return t.answered(e, m, r)
}

func (t *Timeline) answered(e *endpoint, m *run.Message, r *request) *request {
	r.conn, r.exchange, r.tgid = e, m.Exchange, m.TGID
	r.inFlight = e.conn.exchanges == 0 && t.bornBefore(e)
	r.sinceNS = e.conn.freeNS
	e.conn.current, e.conn.number = r, m.Exchange
	return r
}

// bornBefore reports that an endpoint may be older than the recording.
func (t *Timeline) bornBefore(e *endpoint) bool {
	return e.FirstNS <= max(t.snapshotNS, t.fromNS)+1e9
}

// end closes a request; it is built once later requests have ended too.
func (t *Timeline) end(r *request, ns int64) {
	if r.endNS == 0 {
		r.endNS = max(ns, 1)
	}
}

// beganNS is when the request came in, or a moment before that.
func (r *request) beganNS() int64 {
	if r.entryNS != 0 {
		return r.entryNS
	}
	return r.sinceNS
}

// peerClosed takes the end of a connection from outside.
func (t *Timeline) peerClosed(e *endpoint, ns int64) {
	if e.conn == nil || e.conn.current == nil || e.conn.current.endNS != 0 {
		return
	}
	e.conn.current.cut = true
	t.end(e.conn.current, ns)
}

// tcpClose is TCP_CLOSE of the kernel's enum (include/net/tcp_states.h).
const tcpClose = 7

func (t *Timeline) netEvent(n *run.Net) {
	e := t.endpoints[n.EP]
	if e == nil || n.New != tcpClose {
		return
	}
	e.closedNS = n.AtNS
	t.peerClosed(e, n.AtNS)
}
