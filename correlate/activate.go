package correlate

import (
	"cmp"
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// batches are the messages for several requests among the last needed input and the first output of
// a visit.
func batches(l []hop, g *group, needed int) (out []uint64) {
	add := func(i int) {
		if c := l[i].c; c != nil && c.any().Flags&run.MsgDuplicateID != 0 {
			out = append(out, c.seq)
		}
	}
	if needed >= 0 {
		add(g.in[needed])
	}
	if len(g.out) > 0 {
		add(g.out[0])
	}
	return out
}

// server is one thread of one stage in one process; thread 0 where it is not known.
type server struct {
	stage     string
	tgid, tid uint32
}

// batch is one message for several requests at one stage.
type batch struct {
	stage string
	tgid  uint32
	seq   uint64
}

// served is a visit on its way into an activation.
type served struct {
	at    [2]int // request, visit
	v     *Visit
	by    server
	group *served // toward the one that stands for its activation; nil: itself
	alone bool    // it is certain that no other was served with it
}

func (s *served) root() *served {
	for s.group != nil {
		s = s.group
	}
	return s
}

// with puts two visits into one activation.
func (s *served) with(o *served) {
	if a, b := s.root(), o.root(); a != b {
		b.group = a
	}
}

// core is the interval in which the visit was certainly being served; it is empty when z ≤ a.
func (s *served) core() (a, z int64) { return s.v.Start.hi(), s.v.Finish.lo() }

// activations finds which visits were served together and tells each visit its activation.
func activations(requests []RequestTimeline) []Activation {
	all := servedVisits(requests)
	byServer, byMessage := map[server][]*served{}, map[batch]*served{}
	for _, s := range all {
		if s.by.tid != 0 {
			byServer[s.by] = append(byServer[s.by], s)
		}
		for _, m := range s.v.batches {
			k := batch{s.v.Stage, s.v.TGID, m}
			if o := byMessage[k]; o != nil {
				o.with(s)
			} else {
				byMessage[k] = s
			}
		}
	}
	for _, l := range byServer {
		overlaps(l)
	}
	members := map[*served][]*served{}
	for _, s := range all { // in order of requests and visits
		members[s.root()] = append(members[s.root()], s)
	}
	out := []Activation{}
	for _, m := range members {
		if len(m) > 1 || m[0].alone {
			out = append(out, activation(m))
		}
	}
	slices.SortFunc(out, func(a, b Activation) int {
		return cmp.Or(cmp.Compare(a.Start.at(), b.Start.at()), cmp.Compare(a.Members[0][0], b.Members[0][0]), cmp.Compare(a.Members[0][1], b.Members[0][1]))
	})
	for i := range out {
		for _, at := range out[i].Members {
			requests[at[0]].Visits[at[1]].Activation = i
		}
	}
	for _, s := range all {
		s.v.batches = nil
	}
	return out
}

// servedVisits lists the visits whose service is known.
func servedVisits(requests []RequestTimeline) (out []*served) {
	for i := range requests {
		for j := range requests[i].Visits {
			v := &requests[i].Visits[j]
			if v.Start.NS != nil && v.Finish.NS != nil && (v.tid != 0 || len(v.batches) > 0) {
				out = append(out, &served{at: [2]int{i, j}, v: v, by: server{v.Stage, v.TGID, v.tid}})
			}
		}
	}
	return out
}

// overlaps joins the visits of one thread whose cores overlap, and marks those that were served
// alone: their core overlaps no other, or, where they have none, they can overlap others by no more
// than the uncertainty of one finish. Nothing is said of one whose estimates overlap another's by
// more than that, when its start is too uncertain to be sure.
func overlaps(l []*served) {
	slices.SortStableFunc(l, func(a, b *served) int { return cmp.Compare(a.v.Start.hi(), b.v.Start.hi()) })
	var last *served // of those so far, the one whose core ends last
	for _, s := range l {
		a, z := s.core()
		if z <= a {
			continue
		}
		s.alone = true
		if last != nil && last.v.Finish.lo() > a {
			last.with(s)
		}
		if last == nil || z > last.v.Finish.lo() {
			last = s
		}
	}
	slices.SortStableFunc(l, func(a, b *served) int { return cmp.Compare(a.v.Start.lo(), b.v.Start.lo()) })
	var end int64 // the latest of the earliest finishes before
	for i, s := range l {
		before := end <= s.v.Start.lo()
		after := i+1 == len(l) || l[i+1].v.Start.lo() >= s.v.Finish.lo()
		s.alone = s.alone || before && after
		end = max(end, s.v.Finish.lo())
	}
	doubtful(l)
}

// doubtful takes back that visits were served alone.
func doubtful(l []*served) {
	slices.SortStableFunc(l, func(a, b *served) int { return cmp.Compare(a.v.Start.at(), b.v.Start.at()) })
	var last *served // of those so far, the one that finished last
	for _, s := range l {
		if last != nil && last.root() != s.root() && last.v.Finish.at()-s.v.Start.at() > last.v.Finish.hi()-last.v.Finish.lo() {
			s.alone, last.alone = false, false
		}
		if last == nil || s.v.Finish.at() > last.v.Finish.at() {
			last = s
		}
	}
}

// activation describes the visits that were served together; m is not empty.
func activation(m []*served) Activation {
	first, last := m[0].v, m[0].v
	a := Activation{Stage: first.Stage, TGID: first.TGID, Identity: IdentityOrdered}
	for _, s := range m {
		a.Members = append(a.Members, s.at)
		if s.v.Start.at() < first.Start.at() {
			first = s.v
		}
		if s.v.Finish.at() > last.Finish.at() {
			last = s.v
		}
	}
	a.Start, a.Finish = first.Start, last.Finish
	for _, b := range first.batches {
		if !slices.ContainsFunc(m, func(s *served) bool { return !slices.Contains(s.v.batches, b) }) {
			a.Identity = IdentityExact
		}
	}
	return a
}
