package correlate

import (
	"encoding/binary"
	"math"
)

// codec writes requests as short as it can without losing anything: times as differences, names that
// come again by number. The load generator's record is not in it. Numbers are varints; of lists and
// of what may be null the length plus one, 0 for null.
type codec struct {
	numbers map[string]uint64
	names   *[]string
	last    int64 // time that the next is the difference to
	b       []byte
}

// maxNames bounds the names that are kept for their number; others are written out.
const maxNames = 1 << 16

var timings = [...]Timing{"", TimingSeen, TimingBounded, TimingUnknown}

// Bits of a point beside its timing.
const (
	pointNS = 4 << iota
	pointLo
	pointHi
	pointSame // lo and hi are NS
	pointRunnable
	pointHeld
)

func (c *codec) append(b []byte, q *RequestTimeline) []byte {
	c.b, c.last = b, 0
	c.text(q.ID)
	c.name(q.Source)
	c.length(len(q.Aliases), q.Aliases == nil)
	for _, a := range q.Aliases {
		c.text(a.Value)
		c.name(a.Reason)
	}
	c.name(q.State)
	c.points(&q.Entry, &q.Reply, &q.Exit)
	c.length(len(q.Visits), q.Visits == nil)
	for i := range q.Visits {
		c.visit(&q.Visits[i])
	}
	c.length(len(q.Hops), q.Hops == nil)
	for i := range q.Hops {
		c.hop(&q.Hops[i])
	}
	c.floats(q.JCTUS, q.Residual)
	if c.has(q.FromEntry != nil) {
		c.floats(q.FromEntry.SentBeforeUS, q.FromEntry.FirstContentUS, q.FromEntry.PlayableUS, q.FromEntry.EndUS)
	}
	c.has(q.InFlight)
	c.length(len(q.Notes), q.Notes == nil)
	for _, n := range q.Notes {
		c.text(n)
	}
	return c.b
}

func (c *codec) visit(v *Visit) {
	c.name(v.Stage)
	c.uint(uint64(v.TGID))
	c.maybe(v.Chunk, 0)
	c.length(len(v.Inputs), v.Inputs == nil)
	for i := range v.Inputs {
		in := &v.Inputs[i]
		c.name(in.From)
		c.maybe(in.Chunk, 0)
		c.points(&in.At, &in.InHand)
		c.int(int64(in.Hop))
	}
	c.has(v.Join)
	c.has(v.LossNear)
	c.points(&v.Arrival, &v.Ready, &v.Start, &v.Finish, &v.Departure)
	c.name(string(v.Identity))
	c.length(len(v.Outputs), v.Outputs == nil)
	for _, o := range v.Outputs {
		c.int(int64(o))
	}
	c.int(int64(v.Activation))
	c.floats(v.OnCPUUS, v.RunQueueUS)
	c.length(len(v.Blocked), v.Blocked == nil)
	for _, b := range v.Blocked {
		c.name(b.Reason)
		c.float(b.US)
		c.int(int64(b.N))
	}
	c.uint(uint64(v.tid))
	c.length(len(v.batches), v.batches == nil)
	for _, b := range v.batches {
		c.uint(b)
	}
}

func (c *codec) hop(h *Hop) {
	c.name(h.From)
	c.name(h.To)
	c.uint(uint64(h.FromTGID))
	c.uint(uint64(h.ToTGID))
	c.name(h.Type)
	c.maybe(h.Chunk, 0)
	c.uint(uint64(h.Transport))
	c.name(h.Via)
	c.points(&h.Send, &h.Recv)
	c.maybe(h.VisibleNS, c.last)
	c.maybe(h.PickedUpNS, c.last)
	c.maybe(h.Bytes, 0)
	c.text(h.ShmName)
	c.maybe(h.ShmBytes, 0)
	for _, p := range [...]*[2]int64{h.ShmWrite, h.ShmRead} {
		if c.has(p != nil) {
			c.int(p[0] - c.last)
			c.int(p[1] - c.last)
		}
	}
	if c.has(h.ShmPhases != nil) {
		c.phases(h.ShmPhases)
	}
	if w := h.CreditWaitUS; c.has(w != nil) {
		c.float(w.Lo)
		c.float(w.Est)
		c.float(w.Hi)
		c.name(w.Rule)
	}
	c.name(string(h.Identity))
	c.name(h.Reason)
}

func (c *codec) phases(p *ShmPhases) {
	for _, ns := range [...]*int64{p.CreatedNS, p.OpenedNS, p.UnlinkedNS} {
		c.maybe(ns, c.last)
	}
	for _, s := range [...]*Phase{p.Write, p.Read} {
		if c.has(s != nil) {
			c.int(s.FromNS - c.last)
			c.int(s.ToNS - c.last)
			c.name(s.Rule)
		}
	}
	c.floats(p.LockWaitUS.Sender, p.LockWaitUS.Receiver)
	if l := p.Poll; c.has(l != nil) {
		c.int(int64(l.N))
		c.int(l.FromNS - c.last)
		c.int(l.LastNS - c.last)
		c.int(l.FoundNS - c.last)
		c.float(l.WaitUS)
		c.float(l.JitterUS)
	}
}

func (c *codec) points(l ...*Point) {
	for _, p := range l {
		c.point(p)
	}
}

func (c *codec) point(p *Point) {
	var head uint64
	for i, t := range timings {
		if p.Timing == t {
			head = uint64(i)
		}
	}
	same := p.NS != nil && p.LoNS != nil && p.HiNS != nil && *p.NS == *p.LoNS && *p.NS == *p.HiNS
	set := func(bit uint64, is bool) {
		if is {
			head |= bit
		}
	}
	set(pointNS, p.NS != nil)
	set(pointLo, p.LoNS != nil && !same)
	set(pointHi, p.HiNS != nil && !same)
	set(pointSame, same)
	set(pointRunnable, p.RunnableUS != nil)
	set(pointHeld, p.Held != nil)
	c.uint(head)
	c.name(p.Rule)
	if p.NS != nil {
		c.int(*p.NS - c.last)
		c.last = *p.NS
	}
	if head&pointLo != 0 {
		c.int(*p.LoNS - c.last)
	}
	if head&pointHi != 0 {
		c.int(*p.HiNS - c.last)
	}
	if p.RunnableUS != nil {
		c.float(*p.RunnableUS)
	}
	if p.Held != nil {
		c.float(p.Held.NoCPUUS)
		c.float(p.Held.LockUS)
	}
}

func (c *codec) uint(v uint64) { c.b = binary.AppendUvarint(c.b, v) }
func (c *codec) int(v int64)   { c.b = binary.AppendVarint(c.b, v) }

func (c *codec) float(v float64) { c.b = binary.LittleEndian.AppendUint64(c.b, math.Float64bits(v)) }

func (c *codec) floats(l ...*float64) {
	for _, v := range l {
		if c.has(v != nil) {
			c.float(*v)
		}
	}
}

func (c *codec) has(is bool) bool {
	if is {
		c.b = append(c.b, 1)
	} else {
		c.b = append(c.b, 0)
	}
	return is
}

func (c *codec) maybe(v *int64, from int64) {
	if c.has(v != nil) {
		c.int(*v - from)
	}
}

func (c *codec) length(n int, null bool) {
	if null {
		c.uint(0)
		return
	}
	c.uint(uint64(n) + 1)
}

func (c *codec) text(s string) {
	c.uint(uint64(len(s)))
	c.b = append(c.b, s...)
}

// name is a text that comes again: its number plus one, or 0 and the text.
func (c *codec) name(s string) {
	n, ok := c.numbers[s]
	if !ok && len(*c.names) < maxNames {
		n, ok = uint64(len(*c.names)), true
		c.numbers[s] = n
		*c.names = append(*c.names, s)
	}
	if ok {
		c.uint(n + 1)
		return
	}
	c.uint(0)
	c.text(s)
}
