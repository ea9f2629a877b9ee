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

// times is a boundary of a visit that is known; lo and hi are 0 where they are not.
type times struct{ ns, lo, hi int64 }

func timesOf(p *Point) times { return times{p.at(), p.lo(), p.hi()} }

// served is a visit on its way into an activation.
type served struct {
	request, visit uint32
	start, finish  times
	stage          uint32 // in the list of stages
	group          int32  // toward the one that stands for its activation; -1: itself
	alone          bool   // it is certain that no other was served with it
}

// core is the interval in which the visit was certainly being served; it is empty when z ≤ a.
func (s *served) core() (a, z int64) { return s.start.hi, s.finish.lo }

// firing is an activation in short: its members stand in a list of all, from and to; first and last
// are those whose start and finish it has.
type firing struct {
	from, to, first, last uint32
	exact                 bool
	stage                 uint32 // in the list of stages
	start, finish         int64  // earliest of its members, latest
	served                int64  // sum of the service of its members, ns
	most                  uint32 // of them, those that were certainly served at once
}

// firings finds which visits were served together.
type firings struct {
	stages    []string
	numbers   map[string]uint32 // of stages
	all       []served
	visits    []uint32 // number of the first visit of each request
	n         uint32   // visits
	byServer  map[server][]int32
	byMessage map[batch]int32
	messages  map[int32][]uint64 // of the visits that have any
}

// newFirings expects so many visits.
func newFirings(visits int) firings {
	return firings{all: make([]served, 0, visits), numbers: map[string]uint32{}, byServer: map[server][]int32{}, byMessage: map[batch]int32{}, messages: map[int32][]uint64{}}
}

// request takes the visits whose service is known.
func (f *firings) request(i int, q *RequestTimeline) {
	f.visits = append(f.visits, f.n)
	f.n += uint32(len(q.Visits))
	for j := range q.Visits {
		v := &q.Visits[j]
		if v.Start.NS == nil || v.Finish.NS == nil || v.tid == 0 && len(v.batches) == 0 {
			continue
		}
		k := int32(len(f.all))
		f.all = append(f.all, served{request: uint32(i), visit: uint32(j), stage: f.stage(v.Stage), start: timesOf(&v.Start), finish: timesOf(&v.Finish), group: -1})
		if v.tid != 0 {
			by := server{v.Stage, v.TGID, v.tid}
			f.byServer[by] = append(f.byServer[by], k)
		}
		if len(v.batches) == 0 {
			continue
		}
		f.messages[k] = slices.Clone(v.batches)
		for _, m := range v.batches {
			b := batch{v.Stage, v.TGID, m}
			if o, ok := f.byMessage[b]; ok {
				f.join(o, k)
			} else {
				f.byMessage[b] = k
			}
		}
	}
}

func (f *firings) stage(name string) uint32 {
	n, ok := f.numbers[name]
	if !ok {
		n = uint32(len(f.stages))
		f.numbers[name], f.stages = n, append(f.stages, name)
	}
	return n
}

func (f *firings) root(k int32) int32 {
	for f.all[k].group >= 0 {
		k = f.all[k].group
	}
	return k
}

// join puts two visits into one activation.
func (f *firings) join(k, o int32) {
	if a, b := f.root(k), f.root(o); a != b {
		f.all[b].group = a
	}
}

// tell gives the activations to r, and to each visit its own.
func (f *firings) tell(r *Result) {
	for _, l := range f.byServer {
		f.overlaps(l)
	}
	list, members := f.list()
	together := make([]int32, f.n)
	for i := range together {
		together[i] = -1
	}
	for i := range list {
		for _, m := range members[list[i].from:list[i].to] {
			together[f.visits[m[0]]+m[1]] = int32(i)
		}
	}
	if r.kept != nil {
		r.kept.visits, r.kept.together, r.kept.firings, r.kept.members = f.visits, together, list, members
		r.kept.stages = f.stages
		return
	}
	for i := range list {
		a, _ := r.activationOf(&list[i], members)
		r.Activations = append(r.Activations, a)
	}
	for i := range r.Requests {
		for k := range r.Requests[i].Visits {
			v := &r.Requests[i].Visits[k]
			v.Activation, v.batches = int(together[int(f.visits[i])+k]), nil
		}
	}
}

// list is the activations, by start, and their members: requests and visits.
func (f *firings) list() ([]firing, [][2]uint32) {
	size := make([]uint32, len(f.all)) // by root
	for k := range f.all {
		size[f.root(int32(k))]++
	}
	var out []firing
	number := make([]int32, len(f.all)) // by root
	at := uint32(0)
	for k := range f.all {
		number[k] = -1
		// A root is not always the first of its group, so that the order comes from the sort below.
		if n := size[k]; n > 1 || n == 1 && f.all[k].alone {
			number[k] = int32(len(out))
			out = append(out, firing{from: at, to: at})
			at += n
		}
	}
	order := make([]int32, at)
	for k := range f.all { // in order of requests and visits
		if n := number[f.root(int32(k))]; n >= 0 {
			order[out[n].to] = int32(k)
			out[n].to++
		}
	}
	members := make([][2]uint32, at)
	for i, k := range order {
		members[i] = [2]uint32{f.all[k].request, f.all[k].visit}
	}
	for i := range out {
		f.describe(&out[i], order)
	}
	slices.SortFunc(out, func(a, b firing) int {
		return cmp.Or(cmp.Compare(f.all[order[a.first]].start.ns, f.all[order[b.first]].start.ns), cmp.Compare(order[a.from], order[b.from]))
	})
	return out, members
}

// overlaps joins the visits of one thread whose cores overlap, and marks those that were served
// alone: their core overlaps no other, or, where they have none, they can overlap others by no more
// than the uncertainty of one finish. Nothing is said of one whose estimates overlap another's by
// more than that, when its start is too uncertain to be sure.
func (f *firings) overlaps(l []int32) {
	f.sort(l, func(s *served) int64 { return s.start.hi })
	last := int32(-1) // of those so far, the one whose core ends last
	for _, k := range l {
		s := &f.all[k]
		a, z := s.core()
		if z <= a {
			continue
		}
		s.alone = true
		if last >= 0 && f.all[last].finish.lo > a {
			f.join(last, k)
		}
		if last < 0 || z > f.all[last].finish.lo {
			last = k
		}
	}
	f.sort(l, func(s *served) int64 { return s.start.lo })
	var end int64 // the latest of the earliest finishes before
	for i, k := range l {
		s := &f.all[k]
		before := end <= s.start.lo
		after := i+1 == len(l) || f.all[l[i+1]].start.lo >= s.finish.lo
		s.alone = s.alone || before && after
		end = max(end, s.finish.lo)
	}
	f.doubtful(l)
}

// sort keeps the order of those that are equal, as it was.
func (f *firings) sort(l []int32, by func(*served) int64) {
	slices.SortStableFunc(l, func(a, b int32) int { return cmp.Compare(by(&f.all[a]), by(&f.all[b])) })
}

// doubtful takes back that visits were served alone.
func (f *firings) doubtful(l []int32) {
	f.sort(l, func(s *served) int64 { return s.start.ns })
	last := int32(-1) // of those so far, the one that finished last
	for _, k := range l {
		s := &f.all[k]
		if last >= 0 && f.root(last) != f.root(k) && f.all[last].finish.ns-s.start.ns > f.all[last].finish.hi-f.all[last].finish.lo {
			s.alone, f.all[last].alone = false, false
		}
		if last < 0 || s.finish.ns > f.all[last].finish.ns {
			last = k
		}
	}
}

// describe says whose start and finish an activation has, and whether one message carried all.
func (f *firings) describe(a *firing, order []int32) {
	a.first, a.last = a.from, a.from
	for i := a.from; i < a.to; i++ {
		s := &f.all[order[i]]
		if s.start.ns < f.all[order[a.first]].start.ns {
			a.first = i
		}
		if s.finish.ns > f.all[order[a.last]].finish.ns {
			a.last = i
		}
		a.served += s.finish.ns - s.start.ns
	}
	a.start, a.finish, a.stage = f.all[order[a.first]].start.ns, f.all[order[a.last]].finish.ns, f.all[order[a.first]].stage
	for _, b := range f.messages[order[a.first]] {
		if !slices.ContainsFunc(order[a.from:a.to], func(k int32) bool { return !slices.Contains(f.messages[k], b) }) {
			a.exact = true
		}
	}
	a.most = a.to - a.from
	if !a.exact && a.most > 1 {
		cores := make([][2]int64, 0, a.most)
		for _, k := range order[a.from:a.to] {
			from, to := f.all[k].core()
			cores = append(cores, [2]int64{from, to})
		}
		a.most = uint32(atOnce(cores))
	}
}
