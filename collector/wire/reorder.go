package wire

import "sort"

// reorder sorts the calls of one direction by stream position.
type reorder struct {
	known   bool
	next    uint64 // position up to which the stream has been handed on
	pending []segment
	bytes   int // captured bytes in pending
	late    uint64
}

// trim cuts what lies before p off the front of s and reports whether anything is left.
func (s *segment) trim(p uint64) bool {
	if s.end <= p {
		return false
	}
	if s.pos < p {
		s.data = s.data[min(p-s.pos, uint64(len(s.data))):]
		s.pos = p
	}
	return true
}

// put stores a segment that cannot be handed on yet. The data is copied.
func (r *reorder) put(s segment) {
	if !s.owned {
		s.data, s.owned = append([]byte(nil), s.data...), true
	}
	i := sort.Search(len(r.pending), func(i int) bool { return r.pending[i].pos > s.pos })
	r.pending = append(r.pending, segment{})
	copy(r.pending[i+1:], r.pending[i:])
	r.pending[i] = s
	r.bytes += len(s.data)
}

// pop returns the next segment in order. When force is set, a hole before it is given up and
// returned as a lost segment first.
func (r *reorder) pop(force bool) (segment, bool) {
	for len(r.pending) > 0 {
		s := r.pending[0]
		if s.pos > r.next {
			if !force {
				return segment{}, false
			}
			lost := segment{call: call{pos: r.next, end: s.pos, lost: true}, owned: true}
			r.next = s.pos
			return lost, true
		}
		k := copy(r.pending, r.pending[1:])
		r.pending[k] = segment{}
		r.pending = r.pending[:k]
		r.bytes -= len(s.data)
		if s.trim(r.next) {
			r.next = s.end
			return s, true
		}
		r.late++
	}
	return segment{}, false
}

// over reports whether a hole has to be given up.
func (r *reorder) over() bool {
	return len(r.pending) > MaxLaterCalls || r.bytes > MaxReorder
}

// oldest returns the earliest return of a call that waits behind a hole, 0 if none waits.
func (r *reorder) oldest() int64 {
	var t int64
	for i := range r.pending {
		if e := r.pending[i].exit; !r.pending[i].lost && (t == 0 || e < t) {
			t = e
		}
	}
	return t
}
