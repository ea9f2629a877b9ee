package correlate

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"github.com/stageline/stageline/collector/run"
)

// hop is a Hop with what visits need to know of it.
type hop struct {
	Hop
	c        *crossing // nil for a hop through a named segment
	seg      *segment
	from, to *process
	control  bool // carries no data: ack, credit, abort
	ns       int64
	seq      uint64
}

// controlWords mark message types that carry no data, whatever the engine.
var controlWords = map[string]bool{
	"ack": true, "nack": true, "acked": true, "credit": true, "credits": true, "abort": true,
	"aborted": true, "cancel": true, "cancelled": true, "release": true, "released": true,
	"heartbeat": true, "ping": true, "pong": true, "hello": true, "shutdown": true,
}

// isControl decides by the words of the type and then by the engine's rules, once for each type.
func (t *Timeline) isControl(typ string) bool {
	is, known := t.control[typ]
	if !known {
		is = t.controlType(typ)
		if len(t.control) < maxTypes {
			t.control[typ] = is
		}
	}
	return is
}

// maxTypes bounds the message types that are remembered; an engine has some dozen.
const maxTypes = 4096

func (t *Timeline) controlType(typ string) bool {
	for _, w := range strings.FieldsFunc(typ, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if controlWords[strings.ToLower(w)] {
			return true
		}
	}
	return t.opt.Control != nil && t.opt.Control(typ)
}

// buildHops turns the crossings and named segments of a request into hops, in order of time.
func (t *Timeline) buildHops(r *request) []hop {
	t.pairLate(r)
	out := make([]hop, 0, len(r.crossings)+len(r.segments))
	for _, c := range r.crossings {
		if c.into != nil || c.hidden {
			continue
		}
		if h, ok := t.hopOf(r, c); ok {
			out = append(out, h)
		}
	}
	for _, g := range r.segments {
		if h, ok := t.segmentHop(r, g); ok {
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b hop) int {
		if a.ns != b.ns {
			return int(min(max(a.ns-b.ns, -1), 1))
		}
		return int(min(max(int64(a.seq)-int64(b.seq), -1), 1))
	})
	t.ackBySegment(out)
	t.nameUnstated(out)
	return out
}

// nameUnstated decides for messages that state no stage, at a process that holds several: an answer
// belongs to the stage that it answers, data to the stage whose own messages of this request came
// last before it.
func (t *Timeline) nameUnstated(l []hop) {
	for i := range l {
		h := &l[i]
		if h.c == nil || h.from == nil || h.to == nil {
			continue
		}
		from, to := h.c.any().From, h.c.any().To
		if from == "" && len(t.hosts(h.from)) > 1 {
			for j := i - 1; j >= 0; j-- {
				d := &l[j]
				if h.control && d.ToTGID == h.FromTGID && d.FromTGID == h.ToTGID && !d.control {
					h.From = d.To
					break
				}
				if !h.control && d.FromTGID == h.FromTGID && d.c != nil && d.c.any().From != "" && !d.control {
					h.From = d.From
					break
				}
			}
		}
		if to == "" && h.control && len(t.hosts(h.to)) > 1 {
			for j := i - 1; j >= 0; j-- {
				if d := &l[j]; d.FromTGID == h.ToTGID && d.ToTGID == h.FromTGID && !d.control {
					h.To = d.From
					break
				}
			}
		}
	}
}

// hopOf describes a crossing as a hop of r; false when it is none: inside one process, or to or
// from a process that is not watched.
func (t *Timeline) hopOf(r *request, c *crossing) (hop, bool) {
	if c.from == nil || c.to == nil {
		return hop{}, false
	}
	m := c.any()
	at := messageNS(m)
	fromTGID, toTGID := c.from.byTGID[0], c.to.byTGID[1]
	if c.send != nil {
		fromTGID = c.send.TGID
	}
	if c.recv != nil {
		toTGID = c.recv.TGID
	}
	if fromTGID == toTGID {
		return hop{}, false
	}
	h := hop{c: c, ns: c.ns(), seq: c.seq, control: t.isControl(m.Type)}
	h.Type, h.Transport, h.Via = m.Type, c.to.Transport, c.to.Transport.String()
	h.FromTGID, h.ToTGID = fromTGID, toTGID
	if fromTGID != 0 {
		h.from = t.procs.at(fromTGID, at)
		h.From = t.stageAt(h.from, m.From)
	}
	if toTGID != 0 {
		h.to = t.procs.at(toTGID, at)
		h.To = t.stageAt(h.to, m.To)
	}
	if m.Chunk >= 0 {
		h.Chunk = ptr(m.Chunk)
	}
	if m.Bytes >= 0 {
		h.Bytes = ptr(m.Bytes)
	}
	h.Send, h.Recv = sendPoint(c), recvPoint(c)
	h.Identity, h.Reason = identityOf(r, c)
	for _, p := range []Point{h.Send, h.Recv} {
		if h.Reason == "" && p.Timing != TimingSeen {
			h.Reason = cmp.Or(p.Rule, "a call that carried it was not seen")
		}
	}
	t.shmOf(r, &h, m)
	return h, true
}

// identityOf grades the tie of a crossing to a request.
func identityOf(r *request, c *crossing) (Identity, string) {
	for _, x := range c.tied {
		if x.req != r {
			continue
		}
		switch {
		case x.weak:
			return IdentityOrdered, "id known by circumstance only"
		case c.send == nil:
			return IdentityPaired, "send not seen"
		case c.recv == nil:
			return IdentityPaired, "receive not seen"
		case x.atSend && x.atRecv:
			return IdentityExact, ""
		case x.atSend:
			return IdentityPaired, "id not in the bytes captured at the receiver"
		default:
			return IdentityPaired, "id not in the bytes captured at the sender"
		}
	}
	return IdentityUnknown, ""
}

// sendPoint is when the write that carried the first byte was entered.
func sendPoint(c *crossing) Point {
	if m := c.send; m != nil && m.Proto == run.ProtoRing {
		return ringPoint(m)
	}
	if m := c.send; m != nil {
		if m.FirstEnterNS > 0 {
			return seen(m.FirstEnterNS, "write entered")
		}
		if last, ok := c.from.sent.before(m.Pos); ok && m.FirstExitNS > 0 {
			return bounded(last.enter, m.FirstExitNS, m.FirstExitNS, "in flight at attach")
		}
		return unknown("in flight at attach")
	}
	pos, ok := c.to.senderPos(c.recv.Pos)
	if !ok {
		return unknown("send not seen")
	}
	hi := c.recv.LastExitNS
	if at, ok := c.from.sent.reached(pos + 1); ok && at.start <= pos {
		return seen(at.enter, "call at this position")
	}
	if last, ok := c.from.sent.before(pos); ok && last.enter <= hi {
		return bounded(last.enter, max(last.enter, c.recv.FirstEnterNS), hi, "after the call before it")
	}
	return unknown("send not seen")
}

// recvPoint is when the read that brought the last byte returned.
func recvPoint(c *crossing) Point {
	var lo int64
	if c.send != nil {
		lo = c.send.FirstEnterNS
	}
	var end uint64 // in the receiver's positions
	switch m := c.recv; {
	case m != nil && m.Proto == run.ProtoRing:
		return ringPoint(m)
	case m != nil && m.LastExitNS > 0:
		return seen(m.LastExitNS, "read returned")
	case m != nil: // the call of its last byte was lost
		lo, end = max(lo, m.FirstEnterNS), c.to.absolute(m.End)
	case c.to.PosAbsolute:
		end = c.to.absolute(c.send.End)
	case c.to.received.aligned:
		end = c.send.End - uint64(c.to.received.base)
	default:
		return unknown("receive not seen")
	}
	at, ok := c.to.received.reached(end)
	if !ok || lo == 0 || at.exit < lo {
		return unknown("receive not seen")
	}
	if at.start < end {
		return seen(at.exit, "call at this position")
	}
	return bounded(lo, min(lo+usualTransitNS, at.exit), at.exit, "before the call after it")
}

// usualTransitNS places the estimate of a lost receive inside its interval: a local socket hands a
// message over in some tens of microseconds.
const usualTransitNS = 60_000

// shmOf adds the shared-memory payload that a message refers to.
func (t *Timeline) shmOf(r *request, h *hop, m *run.Message) {
	if len(m.Shm) == 0 && h.c != nil && h.c.recv != nil {
		m = h.c.recv
	}
	if len(m.Shm) == 0 {
		return
	}
	ref := m.Shm[0]
	h.ShmName = ref.Name
	h.seg = t.shm.at(ref.Name, h.ns)
	if h.seg != nil {
		h.seg.framed = true
	}
	if h.control {
		return
	}
	h.Via += "+shm"
	var size int64 = -1
	for _, s := range m.Shm {
		if s.Size >= 0 {
			size = max(size, 0) + s.Size
		}
	}
	if size < 0 && h.seg != nil {
		size = h.seg.size
	}
	if size >= 0 {
		h.ShmBytes = ptr(size)
	}
	if h.Chunk == nil {
		if k := nameChunk(ref.Name, r); k >= 0 {
			h.Chunk = ptr(k)
		}
	}
	h.ShmWrite, h.ShmRead = writePhase(h.seg.by(h.FromTGID)), readPhase(h.seg.by(h.ToTGID))
	h.ShmPhases = t.shm.phases(h.seg, h.FromTGID, h.ToTGID)
}

func writePhase(u *use) *[2]int64 {
	if u == nil || u.openNS == 0 || u.unmapNS == 0 {
		return nil
	}
	return &[2]int64{u.openNS, u.unmapNS}
}

func readPhase(u *use) *[2]int64 {
	if u == nil || u.openNS == 0 || max(u.unmapEndNS, u.unlinkEndNS) == 0 {
		return nil
	}
	return &[2]int64{u.openNS, max(u.unmapEndNS, u.unlinkEndNS)}
}

// ackBySegment marks answers: a message from B to A that names the segment A's data message to B
// named carries no data of its own, whatever its type is called.
func (t *Timeline) ackBySegment(l []hop) {
	for i := range l {
		if l[i].ShmName == "" || l[i].control {
			continue
		}
		for _, d := range l[:i] {
			if d.ShmName == l[i].ShmName && d.FromTGID == l[i].ToTGID && d.ToTGID == l[i].FromTGID && !d.control {
				l[i].control = true
				l[i].Via = strings.TrimSuffix(l[i].Via, "+shm")
				l[i].ShmBytes, l[i].ShmWrite, l[i].ShmRead, l[i].ShmPhases = nil, nil, nil, nil
				break
			}
		}
	}
}

// segmentHop is the hop through a segment that carries the id in its name and that no message
// refers to: written by its creator, mapped by another process.
func (t *Timeline) segmentHop(r *request, g *segment) (hop, bool) {
	w := g.by(g.creator)
	if g.framed || w == nil || w.mapNS == 0 && w.truncNS == 0 {
		return hop{}, false
	}
	h := hop{seg: g, seq: g.seq, from: t.procs.at(w.tgid, g.created)}
	h.From, h.FromTGID = t.stage(h.from).name, w.tgid
	h.Type, h.Transport, h.Via, h.ShmName = "segment", run.TransportShm, "shm", g.name
	if g.size >= 0 {
		h.Bytes, h.ShmBytes = ptr(g.size), ptr(g.size)
	}
	if k := nameChunk(g.name, r); k >= 0 {
		h.Chunk = ptr(k)
	}
	h.ShmWrite = writePhase(w)
	h.Send = seen(w.openNS, "segment created")
	h.ns = w.openNS
	h.Identity, h.Reason = IdentityPaired, "reader not seen"
	h.Recv = unknown("reader not seen")
	for i := range g.uses {
		u := &g.uses[i]
		if u.tgid == w.tgid || u.mapNS == 0 {
			continue
		}
		h.to = t.procs.at(u.tgid, u.mapNS)
		h.To, h.ToTGID = t.stage(h.to).name, u.tgid
		h.ShmRead = readPhase(u)
		h.Identity, h.Reason = IdentityExact, ""
		switch {
		case u.unmapNS != 0:
			h.Recv = seen(u.unmapNS, "segment unmapped by its reader")
		case u.unlinkNS != 0:
			h.Recv = seen(u.unlinkNS, "segment unlinked by its reader")
		default:
			h.Recv = unknown("its reader keeps the segment mapped")
		}
		break
	}
	h.ShmPhases = t.shm.phases(g, h.FromTGID, h.ToTGID)
	return h, true
}

func ptr[T any](v T) *T { return &v }

func seen(ns int64, rule string) Point {
	p := &ns // one for all three: points are replaced, never written into
	return Point{NS: p, LoNS: p, HiNS: p, Timing: TimingSeen, Rule: rule}
}

// bounded puts the estimate inside its interval.
func bounded(lo, ns, hi int64, rule string) Point {
	if hi < lo {
		hi = lo
	}
	return Point{NS: ptr(min(max(ns, lo), hi)), LoNS: ptr(lo), HiNS: ptr(hi), Timing: TimingBounded, Rule: rule}
}

func unknown(rule string) Point { return Point{Timing: TimingUnknown, Rule: rule} }
