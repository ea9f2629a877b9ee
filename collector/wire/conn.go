package wire

import (
	"sync/atomic"

	"github.com/stageline/stageline/collector/run"
)

// Budget bounds the captured bytes that all Conns sharing it hold at one time. A Conn that goes
// beyond gives up what it waits for. The zero value does not limit.
type Budget struct {
	Max  int64
	used atomic.Int64
}

// Used returns the bytes held now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Stats are the counters of one Conn. No drop, truncation or guess is without one.
type Stats struct {
	Calls     uint64 // fed
	Late      uint64 // calls or parts that came twice, or after their hole was given up
	Noise     uint64 // wake-up calls that are no messages
	Lost      uint64 // holes given up
	Resyncs   uint64
	Truncated uint64 // messages whose bytes were not all seen
	Guessed   uint64
	Shed      uint64 // times the budget forced something to be given up
}

// Conn decodes both directions of one endpoint.
type Conn struct {
	ep      *run.Endpoint
	rules   *compiled
	ids     *IDSet
	out     Emitter
	dirs    [2]stream // by run.Dir-1
	http    exchanges
	budget  *Budget
	held    int64
	turn    uint32
	lastDir run.Dir
	stats   Stats
	names   map[string]string
	fields  fields
}

// NewConn returns a decoder for ep. ids may be shared between Conns; rules must not change.
func NewConn(ep *run.Endpoint, rules *Rules, ids *IDSet, out Emitter) *Conn {
	c := &Conn{ep: ep, rules: compile(rules), ids: ids, out: out, budget: &Budget{}}
	for i := range c.dirs {
		c.dirs[i].init(c, run.Dir(i+1))
	}
	return c
}

// Share makes the Conn count what it holds against b.
func (c *Conn) Share(b *Budget) { c.budget = b }

// Stats returns the counters so far.
func (c *Conn) Stats() Stats {
	s := c.stats
	s.Late += c.dirs[0].order.late + c.dirs[1].order.late
	return s
}

// Feed takes one successful call. Calls of one direction may come in any order.
func (c *Conn) Feed(dir run.Dir, k *Chunk) {
	if k.Len == 0 || c.ep.Transport == run.TransportEventFD {
		return
	}
	c.stats.Calls++
	d, other := c.pair(dir)
	data := k.Data
	if uint64(len(data)) > k.Len {
		data = data[:k.Len]
	}
	s := segment{data: data, call: call{pos: k.Pos, end: k.Pos + k.Len,
		enter: k.EnterNS, exit: k.ExitNS, tgid: k.TGID, tid: k.TID}}
	if s.end < s.pos {
		return
	}
	if c.ep.Transport != run.TransportPipe && c.lastDir != dir {
		c.lastDir = dir
		c.turn++
		other.endBurst(k.ExitNS)
	}
	s.turn = c.turn
	d.feed(s)
	c.settle()
}

// Lost says that the bytes [from, to) of a direction will never be fed.
func (c *Conn) Lost(dir run.Dir, from, to uint64) {
	if to <= from || c.ep.Transport == run.TransportEventFD {
		return
	}
	d, _ := c.pair(dir)
	d.feed(segment{call: call{pos: from, end: to, lost: true}, owned: true})
	c.settle()
}

// Expire gives up holes whose later calls are older than HoleAge and ends idle bursts.
func (c *Conn) Expire(nowNS int64) {
	for i := range c.dirs {
		d := &c.dirs[i]
		if t := d.order.oldest(); t != 0 && nowNS-t > int64(HoleAge) {
			d.giveUp()
		}
		d.idle(nowNS)
	}
	c.settle()
}

// Follow tells the receiving side what the other end of the channel sends. A reader that was attached
// in the midst of long messages may see no proof of its own. It reports whether the sender's protocol
// was known, so that there is nothing left to tell.
func (c *Conn) Follow(sender *Conn) bool {
	from, to := &sender.dirs[0], &c.dirs[1]
	if from.mode != modeFramed {
		return false
	}
	if to.dec == nil {
		to.follows(from.dec)
		c.settle()
	}
	return true
}

// CaptureHint returns how many bytes of each call this Conn can use: as much as there is while the
// protocol is unknown, because what decides it may lie deep in a call, and for framed protocols,
// because small frames share a write; little once the streams are known to be opaque.
func (c *Conn) CaptureHint() int {
	opaque := false
	for i := range c.dirs {
		s := &c.dirs[i]
		switch {
		case s.dec != nil && s.dec.proto() == "http1":
			return captureHTTP
		case s.dec != nil:
			return captureFramed
		case s.mode == modeOpaque:
			opaque = true
		}
	}
	if opaque {
		return captureOpaque
	}
	return captureFramed
}

// Close gives up all holes and emits what is complete. Messages whose end was not seen are
// dropped. Call it when the endpoint is gone or the recording ends.
func (c *Conn) Close(_ int64) {
	for i := range c.dirs {
		c.dirs[i].close()
	}
	for i := range c.dirs {
		c.dirs[i].endBurst(0)
		c.dirs[i].flush()
		c.dirs[i].flushGap()
	}
	c.budget.used.Add(-c.held)
	c.held = 0
}

func (c *Conn) pair(dir run.Dir) (d, other *stream) {
	if dir == run.Send {
		return &c.dirs[0], &c.dirs[1]
	}
	return &c.dirs[1], &c.dirs[0]
}

// settle ends a call into the Conn: messages go out, borrowed bytes are copied, the budget is kept.
func (c *Conn) settle() {
	var held int64
	for i := range c.dirs {
		d := &c.dirs[i]
		if d.told {
			d.told = false
			for d.work() {
			}
		}
		d.flush()
		d.tape.retain()
		held += int64(d.order.bytes + d.tape.held())
	}
	now := c.budget.used.Add(held - c.held)
	c.held = held
	if c.budget.Max > 0 && now > c.budget.Max && held > 0 {
		c.shed()
	}
}

// shed drops what this Conn holds: holes are given up and undecided bytes become a burst.
func (c *Conn) shed() {
	c.stats.Shed++
	var held int64
	for i := range c.dirs {
		d := &c.dirs[i]
		d.giveUp()
		d.drop()
		d.flush()
		d.tape.retain()
		held += int64(d.order.bytes + d.tape.held())
	}
	c.budget.used.Add(held - c.held)
	c.held = held
}

// name returns one shared copy of a short text that occurs in many messages.
func (c *Conn) name(b []byte) string {
	if s, ok := c.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if c.names == nil {
		c.names = make(map[string]string)
	}
	if len(c.names) < 256 {
		c.names[s] = s
	}
	return s
}
