package correlate

import (
	"fmt"
	"io"
	"iter"

	"github.com/stageline/stageline/collector/run"
)

// Store takes the bytes of requests that are finished and gives them back; a file, as a rule.
type Store interface {
	io.Writer // at its end
	io.ReaderAt
}

// shelf keeps finished requests outside memory, until the report reads them one after the other.
type shelf struct {
	store Store
	codec codec
	buf   []byte // not yet written
	end   int64  // bytes put so far
	err   error  // the first of the store
}

// shelfBuffer is how much is written at once.
const shelfBuffer = 256 << 10

// place is where a request lies on the shelf.
type place struct {
	at int64
	n  int32
}

func newShelf(s Store) *shelf {
	return &shelf{store: s, codec: codec{numbers: map[string]uint64{}, names: new([]string)}}
}

func (s *shelf) put(q *RequestTimeline) place {
	from := len(s.buf)
	s.buf = s.codec.append(s.buf, q)
	return s.added(from)
}

func (s *shelf) putClient(q *run.Request) place {
	from := len(s.buf)
	s.buf = s.codec.appendClient(s.buf, q)
	return s.added(from)
}

// added takes what was added to the buffer for one thing more on the shelf.
func (s *shelf) added(from int) place {
	p := place{s.end, int32(len(s.buf) - from)}
	s.end += int64(p.n)
	if len(s.buf) >= shelfBuffer {
		s.flush()
	}
	return p
}

func (s *shelf) flush() {
	if s.err == nil {
		if _, err := s.store.Write(s.buf); err != nil {
			s.err = fmt.Errorf("keep finished requests: %w", err)
		}
	}
	s.buf = s.buf[:0]
}

// shelved is the requests of a result that lie on a shelf, and what was learned of them later.
type shelved struct {
	*shelf
	list     []built
	visits   []uint32 // number of the first visit of each request
	together []int32  // activation of each visit
	firings  []firing
	members  [][2]uint32 // of the firings, one after the other
	stages   []string    // that the firings name
	credits  []hopCredit // by request and hop
	recent   [recentRequests]recentRequest
}

// recentRequests is how many requests that were read out of order are kept: activations lead to the
// same few again and again.
const recentRequests = 256

type recentRequest struct {
	index int // plus one; 0: none
	q     *RequestTimeline
}

// Len is the number of requests.
func (r *Result) Len() int {
	if r.kept == nil {
		return len(r.Requests)
	}
	return len(r.kept.list)
}

// Err is the first error of the store that the requests lie in: what All and Request gave is then
// not complete.
func (r *Result) Err() error {
	if r.kept == nil {
		return nil
	}
	return r.kept.err
}

// All gives the requests in their order, each valid until the next is asked for. They may come from
// a file: ask Err in the end.
func (r *Result) All() iter.Seq2[int, *RequestTimeline] {
	return func(yield func(int, *RequestTimeline) bool) {
		if r.kept == nil {
			for i := range r.Requests {
				if !yield(i, &r.Requests[i]) {
					return
				}
			}
			return
		}
		d := decoder{names: r.kept.codec.names}
		var buf []byte
		for i := range r.kept.list {
			q, ok := r.kept.read(i, &d, &buf)
			if !ok || !yield(i, q) {
				return
			}
		}
	}
}

// Request is one of the requests, by its index; null when it could not be read (see Err).
func (r *Result) Request(i int) *RequestTimeline {
	if r.kept == nil {
		return &r.Requests[i]
	}
	slot := &r.kept.recent[i%recentRequests]
	if slot.index != i+1 {
		q, ok := r.kept.read(i, &decoder{names: r.kept.codec.names}, new([]byte))
		if !ok {
			return nil
		}
		*slot = recentRequest{i + 1, q}
	}
	return slot.q
}

// ID is the id of one of the requests.
func (r *Result) ID(i int) string {
	if r.kept == nil {
		return r.Requests[i].ID
	}
	return r.kept.list[i].id
}

// AllActivations gives the activations in their order, each valid until the next is asked for.
func (r *Result) AllActivations() iter.Seq2[int, *Activation] {
	return func(yield func(int, *Activation) bool) {
		if r.kept == nil {
			for i := range r.Activations {
				if !yield(i, &r.Activations[i]) {
					return
				}
			}
			return
		}
		for i := range r.kept.firings {
			a, ok := r.activationOf(&r.kept.firings[i], r.kept.members)
			if !ok || !yield(i, &a) {
				return
			}
		}
	}
}

// activationOf gives a firing its boundaries.
func (r *Result) activationOf(f *firing, members [][2]uint32) (a Activation, ok bool) {
	visit := func(k uint32) *Visit {
		q := r.Request(int(members[k][0]))
		if q == nil {
			return nil
		}
		return &q.Visits[members[k][1]]
	}
	first, last := visit(f.first), visit(f.last)
	if first == nil || last == nil {
		return a, false
	}
	a = Activation{Stage: first.Stage, TGID: first.TGID, Start: first.Start, Finish: last.Finish, Identity: IdentityOrdered}
	if f.exact {
		a.Identity = IdentityExact
	}
	for _, m := range members[f.from:f.to] {
		a.Members = append(a.Members, [2]int{int(m[0]), int(m[1])})
	}
	return a, true
}

// read decodes a request and adds what was learned after it was put there.
func (s *shelved) read(i int, d *decoder, buf *[]byte) (*RequestTimeline, bool) {
	b := &s.list[i]
	q := d.request(s.bytes(b.place, buf))
	bad := d.bad
	if b.client != nil {
		c := d.client(s.bytes(b.client.place, buf))
		bad = bad || d.bad
		if b.joined {
			q.setClient(c, b.unnamed)
		} else {
			q.Client = c
		}
	}
	b.noteLate(q)
	if bad && s.err == nil {
		s.err = fmt.Errorf("finished request %d was not read as it was written: is its file on a failing disk?", i)
	}
	if s.err != nil {
		return nil, false
	}
	if s.together != nil {
		for k := range q.Visits {
			q.Visits[k].Activation = int(s.together[int(s.visits[i])+k])
		}
	}
	for _, c := range creditsOf(s.credits, uint32(i)) {
		q.Hops[c.hop].CreditWaitUS = &CreditWait{c.lo, c.est, c.hi, c.rule}
	}
	return q, true
}

// bytes reads one thing from the shelf into buf; nothing after an error.
func (s *shelf) bytes(p place, buf *[]byte) []byte {
	if cap(*buf) < int(p.n) {
		*buf = make([]byte, max(int(p.n), 2*cap(*buf)))
	}
	b := (*buf)[:p.n]
	if s.err != nil {
		return nil
	}
	if _, err := s.store.ReadAt(b, p.at); err != nil {
		s.err = fmt.Errorf("read finished requests again: %w", err)
		return nil
	}
	return b
}

// setClient makes a record of the load generator the client side of a finished request.
func (q *RequestTimeline) setClient(c *run.Request, unnamed bool) {
	q.Client, q.Source = c, "loadgen"
	if c.State != "" {
		q.State = c.State
	}
	if q.ID != c.ID && !unnamed {
		q.Aliases = append([]Alias{{q.ID, aliasExchange}}, q.Aliases...)
	}
	q.ID = c.ID
}
