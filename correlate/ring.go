package correlate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

// A ring is a segment that two or more processes keep mapped and pass messages through without a
// system call. What can be seen of it is a notice of one byte for each message, where the engine
// sends one, and the reader's spinning.

// ringNotices is the transport of a channel of which only the notices are seen.
const ringNotices = "shm ring (notices)"

const (
	whyNotices  = "a ring in shared memory: one-byte notices say that messages pass, their bytes and ids make no system call"
	whyNoNotice = "both keep a shared-memory segment mapped: what passes through it makes no system call"

	callSchedYield = 24 // x86-64

	// noticeFrame is a ZMTP frame of one byte: flags, length, byte.
	noticeFrame = 3
	// noticeCall is the size up to which a call of no known framing is a wake-up.
	noticeCall = 2
)

// ringTable counts what is seen beside rings.
type ringTable struct {
	notices map[*endpoint]map[uint32]uint64 // by stream and the process that sent them; who reads may be known only later
	past    map[[2]uint32]uint64            // from one process to another, on streams that are forgotten
	yields  map[uint32]*Yields              // by process
}

func (r *ringTable) init() {
	r.notices, r.past, r.yields = map[*endpoint]map[uint32]uint64{}, map[[2]uint32]uint64{}, map[uint32]*Yields{}
}

func (r *ringTable) count(on *endpoint, from uint32) {
	sent := r.notices[on]
	if sent == nil {
		sent = map[uint32]uint64{}
		r.notices[on] = sent
	}
	sent[from]++
}

// notice counts a message of one byte without an id, where it is sent.
func (t *Timeline) notice(e *endpoint, m *run.Message) {
	if m.Dir == run.Send && m.Proto == "zmtp" && m.End-m.Pos == noticeFrame {
		t.rings.count(e, m.TGID)
	}
}

// noticeIO counts a wake-up of another process on a stream without framing.
func (t *Timeline) noticeIO(e *endpoint, r *run.IO) {
	if r.Dir == run.Send && r.Ret > 0 && r.Ret <= noticeCall && (e.Transport == run.TransportUnix || e.Transport == run.TransportPipe) {
		t.rings.count(e, r.TGID)
	}
}

// yielded counts the time a thread gave away in sched_yield.
func (r *ringTable) yielded(o *run.OffCPU) {
	if o.Call != callSchedYield || o.InNS < o.OutNS {
		return
	}
	y := r.yields[o.TGID]
	if y == nil {
		y = &Yields{}
		r.yields[o.TGID] = y
	}
	y.N++
	y.US += float64(o.InNS-o.OutNS) / 1e3
}

// forget keeps what was counted on a stream that ends, while it is known who reads it, and drops the
// stream. Both ends at once: one that is forgotten no longer tells its process to the other.
func (r *ringTable) forget(e *endpoint) {
	for _, on := range [...]*endpoint{e, e.peer} {
		if on == nil {
			continue
		}
		for from, n := range r.notices[on] {
			if on.peer != nil {
				r.past[[2]uint32{from, on.peer.byTGID[1]}] += n
			}
		}
		delete(r.notices, on)
	}
}

// between counts the notices from one process to another over all transports.
func (r *ringTable) between(from, to uint32) (n uint64) {
	n = r.past[[2]uint32{from, to}]
	for on, sent := range r.notices {
		if on.peer != nil && on.peer.byTGID[1] == to {
			n += sent[from]
		}
	}
	return n
}

// isRing reports that two or more processes have the segment mapped and nothing else says what it
// carries. Semaphores of the C library are such files, too.
func (g *segment) isRing() bool {
	n := 0
	for i := range g.uses {
		if g.uses[i].mapped {
			n++
		}
	}
	return n >= 2 && !g.framed && g.owner == nil && g.unlinked == 0 && !strings.HasPrefix(g.name, "sem.")
}

// pairs lists the processes that have the segment mapped, two and two.
func (g *segment) pairs() (out [][2]uint32) {
	for i := range g.uses {
		for j := i + 1; j < len(g.uses); j++ {
			if g.uses[i].mapped && g.uses[j].mapped {
				out = append(out, [2]uint32{g.uses[i].tgid, g.uses[j].tgid})
			}
		}
	}
	return out
}

// ringPaths adds, for every two processes that share a ring, a channel for each direction in which
// notices went, and what is not covered. Call it once channels are complete.
func (t *Timeline) ringPaths(r *Result, n map[Uncovered]int) {
	done := map[[2]uint32]bool{}
	for _, g := range t.shm.all {
		if !g.isRing() {
			continue
		}
		pairs := g.pairs()
		told := slices.ContainsFunc(pairs, func(p [2]uint32) bool {
			return t.rings.between(p[0], p[1])+t.rings.between(p[1], p[0]) > 0
		})
		for _, p := range pairs {
			if told && !done[p] {
				done[p], done[[2]uint32{p[1], p[0]}] = true, true
				t.ringChannel(r, n, p[0], p[1])
				t.ringChannel(r, n, p[1], p[0])
			}
			if !told && !t.shadowed(p) {
				t.ringUncovered(n, p[0], p[1], whyNoNotice, 1)
			}
		}
	}
	slices.SortStableFunc(r.Channels, func(a, b Channel) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.FromTGID, b.FromTGID),
			cmp.Compare(a.ToTGID, b.ToTGID), cmp.Compare(a.Transport, b.Transport))
	})
}

// shadowed reports that messages of a ring between the two were read.
func (t *Timeline) shadowed(p [2]uint32) bool {
	for _, k := range [...]channelKey{{p[0], p[1], run.TransportShm}, {p[1], p[0], run.TransportShm}} {
		if c := t.channels[k]; c != nil && c.Messages > 0 {
			return true
		}
	}
	return false
}

// ringChannel describes one direction of a ring by its notices.
func (t *Timeline) ringChannel(r *Result, n map[Uncovered]int, from, to uint32) {
	k := t.rings.between(from, to)
	if k == 0 {
		return
	}
	yields := t.rings.yields[to]
	for i := range r.Channels {
		if c := &r.Channels[i]; c.FromTGID == from && c.ToTGID == to && c.Transport == run.TransportShm.String() {
			c.Notices, c.Yields = k, yields
			return
		}
	}
	c := Channel{FromTGID: from, ToTGID: to, Transport: ringNotices, Notices: k, Yields: yields, Why: whyNotices}
	c.From, c.To = t.stage(t.procs.at(from, t.nowNS)).name, t.stage(t.procs.at(to, t.nowNS)).name
	r.Channels = append(r.Channels, c)
	t.ringUncovered(n, from, to, whyNotices, int(k))
}

func (t *Timeline) ringUncovered(n map[Uncovered]int, from, to uint32, why string, count int) {
	a, b := t.stage(t.procs.at(from, t.nowNS)).name, t.stage(t.procs.at(to, t.nowNS)).name
	if a != b {
		n[Uncovered{From: a, To: b, Why: why}] += count
	}
}

// ringPoint is when a message of a shadowed ring was put there or taken: between two looks, or at the
// one moment that a watchpoint tells.
func ringPoint(m *run.Message) Point {
	lo, hi := m.FirstEnterNS, m.LastExitNS
	if lo == 0 || hi < lo {
		return unknown("put into the ring before it was looked at")
	}
	if lo == hi {
		return seen(lo, "write to the ring's flags")
	}
	return bounded(lo, lo+(hi-lo)/2, hi, "between two looks at the ring")
}
