package correlate

import (
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// Options tune a Timeline. The zero value works: generic rules, one stage per process.
type Options struct {
	// StageOf names the stage of a process and the rule that did so; "" leaves it to the names
	// stated in messages and then to the process itself.
	StageOf func(ProcInfo) (name, rule, engine string)
	// Overrides are the user's own rules; the first that matches wins over everything else.
	Overrides []StageOverride
	// Control says that messages of this type carry no data (acks, credits, aborts). It is asked
	// after the generic rules and may be nil.
	Control func(messageType string) bool
	// LagNS is how far record time runs ahead of the moment that is interpreted; records that are
	// out of order by less than this are put in order. Default 1 s.
	LagNS int64
	// IdleNS ends a request that shows no activity for this long. Default 60 s.
	IdleNS int64
	// Settle is the number of requests that must end after one before it is built, so that the
	// roles of threads are learned by then. Default 32.
	Settle int
	// Done is given each request when it is finished, which the timeline then forgets: its memory
	// does not grow with their number, but for their ids. Result then lacks the requests and what
	// follows from all of them (Activations, hops inferred to be uncovered), and Visit.Activation is
	// not known. Load generator records whose id the engine never showed must be given before.
	Done func(*RequestTimeline)
	// Store takes finished requests, so that memory grows with their number by little more than their
	// ids. Result.All reads them again. Its first error is told by Result.Err. Not together with Done.
	Store Store
}

// StageOverride names the stage of every process that Match accepts.
type StageOverride struct {
	Name  string
	Match func(ProcInfo) bool
}

// Timeline turns records into the timelines of requests. It implements run.Sink; it is not safe
// for concurrent use. Raw state is dropped once the requests it belongs to are built.
type Timeline struct {
	opt    Options
	queue  eventQueue
	seq    uint64
	nowNS  int64 // latest record time seen
	fromNS int64
	sweepN int64 // record time of the next sweep
	doneTo int64 // record time up to which events were interpreted

	procs     procTable
	endpoints map[uint32]*endpoint
	unixByIno map[uint64]*endpoint
	tcp       tcpIndex
	shm       shmTable
	rings     ringTable
	ids       identities
	clients   clientTable

	open     []*request // not yet built, by first sight
	results  []built
	visits   int    // of results
	shelf    *shelf // nil: finished requests stay in memory
	filed    int    // results that Options.Done is given sooner or later
	unhanded []int  // those among them that it was not given yet
	chunky   map[string]*chunkVotes
	votes    int // requests that have voted on chunks
	channels map[channelKey]*Channel
	control  map[string]bool // message types that carry no data

	counts Counts
	ledger ledger
	notes  []run.Note

	snapshotNS    int64 // last record of the first snapshot; 0 none
	orphanIDs     uint64
	orphanMsgs    uint64
	lateMessages  uint64
	conflicts     uint64
	idleExchanges uint64 // entry exchanges that no stage took part in
}

// New makes an empty timeline.
func New(o Options) *Timeline {
	if o.LagNS == 0 {
		o.LagNS = 1e9
	}
	if o.IdleNS == 0 {
		o.IdleNS = 60e9
	}
	if o.Settle == 0 {
		o.Settle = 32
	}
	t := &Timeline{
		opt:       o,
		endpoints: map[uint32]*endpoint{},
		unixByIno: map[uint64]*endpoint{},
		tcp:       newTCPIndex(),
		chunky:    map[string]*chunkVotes{},
		channels:  map[channelKey]*Channel{},
		control:   map[string]bool{},
	}
	if o.Store != nil {
		t.shelf = newShelf(o.Store)
	}
	t.procs.byTGID = map[uint32][]*process{}
	t.shm.init()
	t.rings.init()
	t.ids.init()
	t.clients.init()
	return t
}

// eof is the end of a stream, as its reader saw it.
type eof struct{ end *endpoint }

func (t *Timeline) push(ns int64, what any) {
	t.seq++
	t.queue.push(event{ns, t.seq, what})
	t.advance(ns)
}

// advance moves record time on and interprets what has become old enough.
func (t *Timeline) advance(ns int64) {
	if ns <= 0 {
		return
	}
	if t.fromNS == 0 || ns < t.fromNS {
		t.fromNS = ns
	}
	if ns <= t.nowNS {
		return
	}
	t.nowNS = ns
	t.interpret(ns - t.opt.LagNS)
	if t.nowNS >= t.sweepN {
		t.sweepN = t.nowNS + t.opt.LagNS
		t.sweep()
	}
}

func (t *Timeline) interpret(upTo int64) {
	for {
		e, ok := t.queue.pop(upTo)
		if !ok {
			return
		}
		t.doneTo = max(t.doneTo, e.ns)
		switch r := e.what.(type) {
		case *run.Message:
			t.message(r)
		case *run.Shm:
			t.shmOp(r)
		case *run.Proc:
			t.procs.event(r)
		case *run.Net:
			t.netEvent(r)
		case eof:
			t.peerClosed(r.end, e.ns)
		}
	}
}

// Endpoint takes a kernel object that processes read and write.
func (t *Timeline) Endpoint(r *run.Endpoint) {
	t.counts.Records++
	t.addEndpoint(*r)
}

// IO takes one read- or write-like call.
func (t *Timeline) IO(r *run.IO) {
	t.counts.Records++
	t.advance(r.ExitNS)
	t.procs.sawIO(r)
	e := t.endpoints[r.EP]
	if e == nil {
		return
	}
	if r.Ret > 0 {
		e.used(r)
		if e.peer == nil && e.Transport == run.TransportTCP {
			t.pairByPosition(e, r)
		}
		t.procs.signal(e, r)
		t.noticeIO(e, r)
	}
	if r.Ret == 0 && r.Dir == run.Recv && e.Transport == run.TransportTCP {
		t.push(r.ExitNS, eof{e})
	}
}

// Message takes a framed message.
func (t *Timeline) Message(r *run.Message) {
	t.counts.Records++
	t.counts.Messages++
	m := *r
	m.IDs, m.Shm = slices.Clone(r.IDs), slices.Clone(r.Shm)
	t.push(messageNS(&m), &m)
}

// messageNS is the moment a message was complete at its end.
func messageNS(m *run.Message) int64 {
	for _, ns := range [...]int64{m.LastExitNS, m.LastEnterNS, m.FirstExitNS, m.FirstEnterNS} {
		if ns > 0 {
			return ns
		}
	}
	return 0
}

// Gap takes a stretch of a stream that no message covers.
func (t *Timeline) Gap(r *run.Gap) {
	t.counts.Records++
	t.counts.Gaps++
	if r.Cause == run.GapUnframed || r.Cause == run.GapUnknown {
		t.counts.BytesUnframed += r.End - r.Pos
	}
	t.ledger.gap(r)
	if e := t.endpoints[r.EP]; e != nil {
		e.gap(r)
	}
	t.advance(r.AtNS)
}

// Base takes the alignment of a channel whose ends count bytes since attach.
func (t *Timeline) Base(r *run.Base) {
	t.counts.Records++
	t.align(r)
	t.advance(r.LastNS)
}

// Shm takes a call on a shared-memory file.
func (t *Timeline) Shm(r *run.Shm) {
	t.counts.Records++
	s := *r
	ns := s.EnterNS
	if ns == 0 {
		ns = s.ExitNS
	}
	t.push(ns, &s)
}

// OffCPU takes one interval in which a thread did not run.
func (t *Timeline) OffCPU(r *run.OffCPU) {
	t.counts.Records++
	t.procs.offCPU(r)
	t.rings.yielded(r)
	t.advance(max(r.InNS, r.OutNS))
}

// Proc takes a life-cycle event.
func (t *Timeline) Proc(r *run.Proc) {
	t.counts.Records++
	p := *r
	p.Cmdline, p.Bound = slices.Clone(r.Cmdline), slices.Clone(r.Bound)
	if p.Event == run.ProcSeen && (t.snapshotNS == 0 || p.AtNS < t.snapshotNS+1e9) {
		t.snapshotNS = max(t.snapshotNS, p.AtNS)
	}
	t.push(p.AtNS, &p)
}

// Net takes a socket event.
func (t *Timeline) Net(r *run.Net) {
	t.counts.Records++
	if r.Event != run.NetState {
		if e := t.endpoints[r.EP]; e != nil && r.Event == run.NetData && r.Bytes > 0 {
			e.arrived(readable{r.AtNS, r.Bytes})
		}
		t.advance(r.AtNS)
		return
	}
	n := *r
	t.push(n.AtNS, &n)
}

// Loss takes a count of records that could not be taken.
func (t *Timeline) Loss(r *run.Loss) {
	t.counts.Records++
	t.ledger.loss(r)
	t.advance(r.ToNS)
}

// Note takes a statement of the recorder about itself.
func (t *Timeline) Note(r *run.Note) {
	t.counts.Records++
	if len(t.notes) < maxNotes {
		t.notes = append(t.notes, *r)
	}
	t.advance(r.AtNS)
}

// maxNotes bounds what a chatty recorder can make the timeline keep.
const maxNotes = 10000

// Request takes an attempt of the load generator, before, during or after its records.
func (t *Timeline) Request(q *run.Request) {
	c := newClient(q)
	if t.shelf != nil {
		c.place = t.shelf.putClient(q)
	} else {
		full := *q
		c.full = &full
	}
	t.clients.add(c, t.opt.Done != nil)
	if r := t.ids.active[c.id]; r != nil {
		t.link(r, c)
		return
	}
	if i, ok := t.ids.done[c.id]; ok {
		c.linked = true
		t.results[i].setClient(c)
		return
	}
	if _, ok := t.ids.orphans[c.id]; ok {
		t.activate(c)
	}
}
