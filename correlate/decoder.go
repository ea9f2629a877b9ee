package correlate

import (
	"encoding/binary"
	"math"

	"github.com/stageline/stageline/collector/run"
)

// decoder reads what codec wrote. What it returns is overwritten by the next request, but for texts.
type decoder struct {
	names *[]string
	b     []byte
	last  int64
	bad   bool
	texts map[string]string

	q      RequestTimeline
	ints   slab[int64]
	nums   slab[float64]
	pairs  slab[[2]int64]
	visits slab[Visit]
	hops   slab[Hop]
	inputs slab[Input]
	outs   slab[int]
	blocks slab[Blocked]
	helds  slab[Held]
	phased slab[ShmPhases]
	phase1 slab[Phase]
	polls  slab[ShmPoll]
	waits  slab[CreditWait]
	froms  slab[FromEntry]
	batch  slab[uint64]
}

// slab hands out memory that is used again for the next request.
type slab[T any] struct {
	l []T
	n int
}

// take gives n zeroed elements whose neighbours are not theirs to grow into.
func (s *slab[T]) take(n int) []T {
	if n == 0 {
		return []T{} // empty is not null
	}
	if s.n+n > len(s.l) {
		s.l, s.n = make([]T, max(2*len(s.l), n, 16)), 0
	}
	out := s.l[s.n : s.n+n : s.n+n]
	clear(out)
	s.n += n
	return out
}

func (s *slab[T]) one(v T) *T {
	p := &s.take(1)[0]
	*p = v
	return p
}

func (d *decoder) reset(b []byte) {
	d.b, d.last, d.bad = b, 0, false
	d.ints.n, d.nums.n, d.pairs.n, d.visits.n, d.hops.n, d.inputs.n, d.outs.n, d.blocks.n = 0, 0, 0, 0, 0, 0, 0, 0
	d.helds.n, d.phased.n, d.phase1.n, d.polls.n, d.waits.n, d.froms.n, d.batch.n = 0, 0, 0, 0, 0, 0, 0
}

func (d *decoder) request(b []byte) *RequestTimeline {
	d.reset(b)
	q := &d.q
	*q = RequestTimeline{ID: d.text(), Source: d.name()}
	q.Aliases = list(d, func(n int) []Alias { return make([]Alias, n) }, func(a *Alias) { *a = Alias{d.text(), d.name()} })
	q.State = d.name()
	q.Entry, q.Reply, q.Exit = d.point(), d.point(), d.point()
	q.Visits = list(d, d.visits.take, d.visit)
	q.Hops = list(d, d.hops.take, d.hop)
	q.JCTUS, q.Residual = d.maybeFloat(), d.maybeFloat()
	if d.has() {
		q.FromEntry = d.froms.one(FromEntry{d.maybeFloat(), d.maybeFloat(), d.maybeFloat(), d.maybeFloat()})
	}
	q.InFlight = d.has()
	q.Notes = list(d, func(n int) []string { return make([]string, n) }, func(s *string) { *s = d.text() })
	d.bad = d.bad || len(d.b) != 0
	return q
}

// list reads the elements of a list, null for null.
func list[T any](d *decoder, take func(int) []T, read func(*T)) []T {
	n := d.uint()
	if n == 0 {
		return nil
	}
	if n-1 > uint64(len(d.b)) { // an element has a byte at least
		d.bad = true
		return nil
	}
	out := take(int(n - 1))
	for i := range out {
		read(&out[i])
	}
	return out
}

func (d *decoder) visit(v *Visit) {
	v.Stage, v.TGID, v.Chunk = d.name(), uint32(d.uint()), d.maybe(0)
	v.Inputs = list(d, d.inputs.take, func(in *Input) {
		in.From, in.Chunk = d.name(), d.maybe(0)
		in.At, in.InHand, in.Hop = d.point(), d.point(), int(d.int())
	})
	v.Join, v.LossNear = d.has(), d.has()
	v.Arrival, v.Ready, v.Start, v.Finish, v.Departure = d.point(), d.point(), d.point(), d.point(), d.point()
	v.Identity = Identity(d.name())
	v.Outputs = list(d, d.outs.take, func(o *int) { *o = int(d.int()) })
	v.Activation = int(d.int())
	v.OnCPUUS, v.RunQueueUS = d.maybeFloat(), d.maybeFloat()
	v.Blocked = list(d, d.blocks.take, func(b *Blocked) { *b = Blocked{d.name(), d.float(), int(d.int())} })
	v.tid = uint32(d.uint())
	v.batches = list(d, d.batch.take, func(b *uint64) { *b = d.uint() })
}

func (d *decoder) hop(h *Hop) {
	h.From, h.To, h.FromTGID, h.ToTGID = d.name(), d.name(), uint32(d.uint()), uint32(d.uint())
	h.Type, h.Chunk, h.Transport, h.Via = d.name(), d.maybe(0), run.Transport(d.uint()), d.name()
	h.Send, h.Recv = d.point(), d.point()
	h.VisibleNS, h.PickedUpNS, h.Bytes = d.maybe(d.last), d.maybe(d.last), d.maybe(0)
	h.ShmName, h.ShmBytes = d.text(), d.maybe(0)
	for _, p := range [...]**[2]int64{&h.ShmWrite, &h.ShmRead} {
		if d.has() {
			*p = d.pairs.one([2]int64{d.int() + d.last, d.int() + d.last})
		}
	}
	if d.has() {
		h.ShmPhases = d.phases()
	}
	if d.has() {
		h.CreditWaitUS = d.waits.one(CreditWait{d.float(), d.float(), d.float(), d.name()})
	}
	h.Identity, h.Reason = Identity(d.name()), d.name()
}

func (d *decoder) phases() *ShmPhases {
	p := &d.phased.take(1)[0]
	p.CreatedNS, p.OpenedNS, p.UnlinkedNS = d.maybe(d.last), d.maybe(d.last), d.maybe(d.last)
	for _, s := range [...]**Phase{&p.Write, &p.Read} {
		if d.has() {
			*s = d.phase1.one(Phase{d.int() + d.last, d.int() + d.last, d.name()})
		}
	}
	p.LockWaitUS = ShmLock{d.maybeFloat(), d.maybeFloat()}
	if d.has() {
		p.Poll = d.polls.one(ShmPoll{int(d.int()), d.int() + d.last, d.int() + d.last, d.int() + d.last, d.float(), d.float()})
	}
	return p
}

func (d *decoder) point() (p Point) {
	head := d.uint()
	p.Timing = timings[head&3]
	p.Rule = d.name()
	if head&pointNS != 0 {
		d.last += d.int()
		p.NS = d.ints.one(d.last)
	}
	if head&pointSame != 0 {
		p.LoNS, p.HiNS = p.NS, p.NS
	}
	if head&pointLo != 0 {
		p.LoNS = d.ints.one(d.last + d.int())
	}
	if head&pointHi != 0 {
		p.HiNS = d.ints.one(d.last + d.int())
	}
	if head&pointRunnable != 0 {
		p.RunnableUS = d.nums.one(d.float())
	}
	if head&pointHeld != 0 {
		p.Held = d.helds.one(Held{d.float(), d.float()})
	}
	return p
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	return v & d.took(n)
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	return v & int64(d.took(n))
}

// took moves on by n bytes; past the end it is bad, and what was read counts as 0.
func (d *decoder) took(n int) uint64 {
	if n <= 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return ^uint64(0)
}

func (d *decoder) float() float64 {
	if len(d.b) < 8 {
		d.took(0)
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(d.b))
	d.b = d.b[8:]
	return v
}

func (d *decoder) maybeFloat() *float64 {
	if !d.has() {
		return nil
	}
	return d.nums.one(d.float())
}

func (d *decoder) has() bool {
	if len(d.b) == 0 {
		d.bad = true
		return false
	}
	is := d.b[0] != 0
	d.b = d.b[1:]
	return is
}

func (d *decoder) maybe(from int64) *int64 {
	if !d.has() {
		return nil
	}
	return d.ints.one(from + d.int())
}

func (d *decoder) text() string {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad = true
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) name() string {
	n := d.uint()
	if n == 0 {
		return d.text()
	}
	if n > uint64(len(*d.names)) {
		d.bad = true
		return ""
	}
	return (*d.names)[n-1]
}
