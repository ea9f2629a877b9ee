package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// recordSize is sizeof(struct trec) in stage/stage.h.
const recordSize = 192

const (
	recVisit = 1
	recSend  = 2
	recRecv  = 3
)

// record is one truth record, from a stage's mapping or from the API itself.
type record struct {
	kind, typ, carrier uint8
	from, to           int
	proc, peer         int
	chunk              int
	bytes              uint32
	t                  [8]int64
	arrivals           []int // stages, times in t[4:]
	id                 string
}

// parseRecords reads a stage's mapping: a head slot {used, dropped}, then the
// records. A slot without kind was reserved by a process killed just then.
func parseRecords(b []byte) (recs []record, dropped uint64) {
	if len(b) < recordSize {
		return nil, 0
	}
	le := binary.LittleEndian
	used := min(le.Uint64(b), uint64(len(b)/recordSize-1))
	dropped = le.Uint64(b[8:])
	for i := range used {
		r := b[(i+1)*recordSize : (i+2)*recordSize]
		if r[0] == 0 {
			continue
		}
		i16 := func(at int) int { return int(int16(le.Uint16(r[at:]))) }
		rec := record{
			kind: r[0], typ: r[1], carrier: r[2],
			from: i16(4), to: i16(6), proc: i16(8), peer: i16(10),
			chunk: int(int32(le.Uint32(r[12:]))), bytes: le.Uint32(r[16:]),
			id: cString(r[96:]),
		}
		for k := range rec.t {
			rec.t[k] = int64(le.Uint64(r[24+8*k:]))
		}
		for k := range min(int(r[3]), 4) {
			rec.arrivals = append(rec.arrivals, i16(88+2*k))
		}
		recs = append(recs, rec)
	}
	return recs, dropped
}

func cString(b []byte) string {
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// apiTruth keeps the API's own stamps in memory taken before the run.
type apiTruth struct {
	mu       sync.Mutex
	recs     []record
	requests []*request
}

const apiRecords = 1 << 17

func newAPITruth() *apiTruth {
	return &apiTruth{recs: make([]record, 0, apiRecords), requests: make([]*request, 0, 1<<14)}
}

func (a *apiTruth) add(r record) {
	a.mu.Lock()
	a.recs = append(a.recs, r)
	a.mu.Unlock()
}

func (a *apiTruth) addRequest(r *request) {
	a.mu.Lock()
	a.requests = append(a.requests, r)
	a.mu.Unlock()
}

type truthMeta struct {
	T        string `json:"t"`
	Source   string `json:"source"`
	Seed     uint64 `json:"seed"`
	Impl     string `json:"impl"`
	Topology string `json:"topology"`
	SendAt   string `json:"send_stamp"`
	// ArrivalAt is "read call", or "application" where a library reads on a thread of its own.
	ArrivalAt string       `json:"arrival_stamp"`
	Stages    []truthStage `json:"stages"`
	APIPID    int          `json:"api_pid"`
	Dropped   uint64       `json:"truth_dropped"`
	Unpaired  int          `json:"messages_unpaired"`
	Drawn     *Topology    `json:"drawn"`
	Faults    *Faults      `json:"faults"`
}

type truthStage struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	PIDs []int  `json:"pids"`
}

type truthArrival struct {
	From string `json:"from"`
	NS   int64  `json:"ns"`
}

type truthVisit struct {
	T         string         `json:"t"`
	Request   string         `json:"request"`
	Stage     string         `json:"stage"`
	PID       int            `json:"pid"`
	Chunk     *int           `json:"chunk"`
	Arrivals  []truthArrival `json:"arrivals"`
	Ready     int64          `json:"ready_ns,omitempty"`
	Start     int64          `json:"start_ns,omitempty"`
	Finish    int64          `json:"finish_ns,omitempty"`
	Departure int64          `json:"departure_ns,omitempty"`
}

type truthHop struct {
	T         string `json:"t"`
	Request   string `json:"request"`
	From      string `json:"from"`
	To        string `json:"to"`
	FromPID   int    `json:"from_pid"`
	ToPID     int    `json:"to_pid"`
	Type      string `json:"type"`
	Seq       int    `json:"seq"`
	Chunk     *int   `json:"chunk"`
	Send      int64  `json:"send_ns,omitempty"`
	Recv      int64  `json:"recv_ns,omitempty"`
	Bytes     uint32 `json:"bytes"`
	Transport string `json:"transport"`
}

type truthRequest struct {
	T        string `json:"t"`
	Request  string `json:"request"`
	WireID   string `json:"wire_id"`             // the string in the stages' messages
	HeaderID string `json:"header_id,omitempty"` // X-Request-Id as received
	ReplyID  string `json:"reply_id,omitempty"`
	Endpoint string `json:"endpoint"`
	Recv     int64  `json:"entry_recv_ns,omitempty"`
	First    int64  `json:"entry_reply_first_ns,omitempty"`
	Last     int64  `json:"entry_reply_last_ns,omitempty"`
	State    string `json:"state"`
}

// merger turns records into truth lines.
type merger struct {
	top      *Topology
	pids     []int // by process
	requests map[string]*request
	unpaired int
}

func (m *merger) chunk(c int) *int {
	if c < 0 {
		return nil
	}
	return &c
}

func (m *merger) name(wireID string) string {
	if r := m.requests[wireID]; r != nil {
		return r.id
	}
	return wireID
}

func (m *merger) visit(r record) truthVisit {
	v := truthVisit{T: "visit", Request: m.name(r.id), Stage: m.top.NameOf(r.from), PID: m.pids[r.proc], Chunk: m.chunk(r.chunk),
		Ready: r.t[0], Start: r.t[1], Finish: r.t[2], Departure: r.t[3], Arrivals: []truthArrival{}}
	for i, from := range r.arrivals {
		v.Arrivals = append(v.Arrivals, truthArrival{m.top.NameOf(from), r.t[4+i]})
	}
	return v
}

// hopKey names a message at both ends; equal keys follow each other on one
// ordered connection, so the nth sent is the nth received.
type hopKey struct {
	id         string
	from, proc int
	typ        uint8
	chunk      int
}

// hops pairs what was sent with what was received. A message that only one end
// saw (its peer was killed, or the run ended) keeps its one stamp.
func (m *merger) hops(recs []record) []truthHop {
	sends := map[hopKey][]record{}
	for _, r := range recs {
		if r.kind == recSend {
			k := hopKey{r.id, r.from, r.peer, r.typ, r.chunk}
			sends[k] = append(sends[k], r)
		}
	}
	var out []truthHop
	for _, r := range recs {
		if r.kind != recRecv {
			continue
		}
		k := hopKey{r.id, r.from, r.proc, r.typ, r.chunk}
		q := sends[k]
		if len(q) == 0 {
			m.unpaired++
			h := m.hop(r, -1, r.proc)
			h.Recv = r.t[0]
			out = append(out, h)
			continue
		}
		s := q[0]
		sends[k] = q[1:]
		h := m.hop(r, s.proc, r.proc)
		h.Send, h.Recv, h.Bytes = s.t[0], r.t[0], s.bytes
		out = append(out, h)
	}
	for _, q := range sends {
		for _, s := range q {
			m.unpaired++
			h := m.hop(s, s.proc, s.peer)
			h.Send = s.t[0]
			out = append(out, h)
		}
	}
	return number(out)
}

func (m *merger) hop(r record, fromProc, toProc int) truthHop {
	h := truthHop{T: "hop", Request: m.name(r.id), From: m.top.NameOf(r.from), To: m.top.NameOf(r.to),
		Type: MsgType(r.typ).String(), Chunk: m.chunk(r.chunk), Bytes: r.bytes, Transport: carrierNames[r.carrier]}
	if fromProc >= 0 {
		h.FromPID = m.pids[fromProc]
	}
	if toProc >= 0 {
		h.ToPID = m.pids[toProc]
	}
	return h
}

// number orders the hops by request and time and sets Seq within a request.
func number(hops []truthHop) []truthHop {
	at := func(h truthHop) int64 {
		if h.Send != 0 {
			return h.Send
		}
		return h.Recv
	}
	slices.SortStableFunc(hops, func(a, b truthHop) int {
		if a.Request != b.Request {
			if a.Request < b.Request {
				return -1
			}
			return 1
		}
		return int(min(max(at(a)-at(b), -1), 1))
	})
	for i := range hops {
		if i > 0 && hops[i].Request == hops[i-1].Request {
			hops[i].Seq = hops[i-1].Seq + 1
		}
	}
	return hops
}

// writeTruth writes the truth file: meta, requests, visits, hops.
func writeTruth(path string, meta truthMeta, m *merger, recs []record, requests []*request) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create truth file: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	hops := m.hops(recs)
	meta.Unpaired = m.unpaired
	enc := json.NewEncoder(w)
	err = enc.Encode(meta)
	for _, r := range requests {
		if err == nil {
			err = enc.Encode(r.truth())
		}
	}
	for _, r := range recs {
		if err == nil && r.kind == recVisit {
			err = enc.Encode(m.visit(r))
		}
	}
	for i := range hops {
		if err == nil {
			err = enc.Encode(&hops[i])
		}
	}
	if err == nil {
		err = w.Flush()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write truth file %s: %w", path, err)
	}
	return nil
}

// readMapping reads the part of a stage's truth memory that is in use.
func readMapping(f *os.File) ([]byte, error) {
	head := make([]byte, recordSize)
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("read truth memory: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read truth memory: %w", err)
	}
	n := min(int64(binary.LittleEndian.Uint64(head)+1)*recordSize, st.Size())
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read truth memory: %w", err)
	}
	return b, nil
}
