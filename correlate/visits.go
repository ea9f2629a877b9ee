package correlate

import (
	"cmp"
	"slices"
)

// stageKey is one stage in one process.
type stageKey struct {
	stage string
	tgid  uint32
}

// group gathers the hops of a request at one stage; indices into the request's hops.
type group struct {
	key     stageKey
	p       *process
	in, out []int // in order of time
	control []int // control hops the stage sent
	fires   int   // the first so many inputs are needed; 0: those that came before the first output
}

// groups lists the stages a request visited, in order of first sight.
func groups(l []hop) []*group {
	byKey := map[stageKey]*group{}
	var order []*group
	get := func(stage string, tgid uint32, p *process) *group {
		k := stageKey{stage, tgid}
		g := byKey[k]
		if g == nil {
			g = &group{key: k, p: p}
			byKey[k] = g
			order = append(order, g)
		}
		return g
	}
	for i := range l {
		h := &l[i]
		if h.control {
			if h.from != nil {
				g := get(h.From, h.FromTGID, h.from)
				g.control = append(g.control, i)
			}
			continue
		}
		if h.from != nil {
			g := get(h.From, h.FromTGID, h.from)
			g.out = append(g.out, i)
		}
		if h.to != nil {
			g := get(h.To, h.ToTGID, h.to)
			g.in = append(g.in, i)
		}
	}
	for _, g := range order {
		slices.SortStableFunc(g.in, func(a, b int) int { return cmp.Compare(l[a].arrivedNS(), l[b].arrivedNS()) })
		slices.SortStableFunc(g.out, func(a, b int) int { return cmp.Compare(l[a].sentNS(), l[b].sentNS()) })
	}
	return slices.DeleteFunc(order, func(g *group) bool { return len(g.in)+len(g.out) == 0 })
}

// at is the best estimate of a point, or 0.
func (p Point) at() int64 {
	if p.NS == nil {
		return 0
	}
	return *p.NS
}

func (p Point) lo() int64 {
	if p.LoNS == nil {
		return 0
	}
	return *p.LoNS
}

func (p Point) hi() int64 {
	if p.HiNS == nil {
		return 0
	}
	return *p.HiNS
}

// arrivedNS orders arrivals; an arrival that was not seen counts at its send.
func (h *hop) arrivedNS() int64 {
	if n := h.Recv.at(); n != 0 {
		return n
	}
	return h.Send.at()
}

func (h *hop) sentNS() int64 {
	if n := h.Send.at(); n != 0 {
		return n
	}
	return h.Recv.at()
}

// buildVisits derives the visits of a request from its hops.
func (t *Timeline) buildVisits(r *request, l []hop) []Visit {
	var out []Visit
	for _, g := range groups(l) {
		if g.p.entry && r.conn != nil && g.key.tgid == r.tgid && g.key.stage == t.stage(g.p).name {
			out = append(out, t.entryVisits(r, l, g)...)
			continue
		}
		for _, p := range t.parts(l, g) {
			out = append(out, t.visit(r, l, p.group, p.chunk))
		}
	}
	insideProcess(out)
	slices.SortStableFunc(out, func(a, b Visit) int { return cmp.Compare(a.firstNS(), b.firstNS()) })
	return out
}

// insideProcess bounds what passes between two stages of one process: the one that got input but
// sent nothing hands over to the one that sent something but got no input.
func insideProcess(visits []Visit) {
	for i := range visits {
		a := &visits[i]
		if len(a.Inputs) == 0 || a.Departure.NS != nil || a.Ready.Timing == TimingSeen {
			continue
		}
		lo, hi := a.Arrival, Point{}
		for _, in := range a.Inputs {
			if in.At.lo() > lo.lo() {
				lo = in.At
			}
		}
		for j := range visits {
			b := &visits[j]
			if b.TGID != a.TGID || b.Stage == a.Stage || len(b.Inputs) > 0 || b.Departure.NS == nil || lo.NS == nil {
				continue
			}
			mid := between(lo, b.Departure)
			mid.Rule = "hand-over inside the process"
			b.Ready, b.Start, b.Finish = mid, mid, mid
			if b.Finish.NS != nil {
				b.Finish.NS = b.Finish.HiNS
			}
			if b.Departure.hi() > hi.hi() {
				hi = b.Departure
			}
		}
		if hi.NS != nil {
			mid := between(lo, hi)
			mid.Rule = "hand-over inside the process"
			a.Ready, a.Start, a.Finish, a.Departure = mid, mid, mid, mid
		}
	}
}

func (v *Visit) firstNS() int64 {
	for _, p := range [...]Point{v.Arrival, v.Ready, v.Departure} {
		if n := p.at(); n != 0 {
			return n
		}
	}
	return 0
}

// visit builds one visit from the inputs and outputs of its group, both in order of time.
func (t *Timeline) visit(r *request, l []hop, g *group, chunk *int64) Visit {
	v := Visit{Stage: g.key.stage, TGID: g.key.tgid, Chunk: chunk, Identity: IdentityExact, Outputs: slices.Clone(g.out), Activation: -1}
	upstream := map[string]bool{}
	needed := g.needed(l)
	for n, i := range g.in {
		h := &l[i]
		v.Inputs = append(v.Inputs, Input{From: h.From, Chunk: h.Chunk, At: h.Recv, InHand: h.inHand(), Hop: i})
		v.Identity = worse(v.Identity, h.Identity)
		if n <= needed {
			upstream[h.From] = true
		}
	}
	for _, i := range g.out {
		v.Identity = worse(v.Identity, l[i].Identity)
	}
	v.Join = len(upstream) > 1
	v.Arrival, v.Ready, v.Start, v.Finish, v.Departure =
		unknown("input not seen"), unknown("input not seen"), unknown("input not seen"), unknown("no output seen"), unknown("no output seen")
	if needed >= 0 {
		v.Arrival = v.Inputs[0].At
	}
	if n := len(g.out); n > 0 {
		v.Departure = l[g.out[n-1]].Send
	}
	w := t.window(l, g, needed)
	v.LossNear = t.ledger.hit(cmp.Or(l[0].Send.lo(), w.arrived), max(w.arrived, w.anchor))
	w.place(&v, g.job(l, w, chunk != nil))
	w.pickUps(l, &v)
	w.split(&v)
	v.batches = batches(l, g, needed)
	return v
}

// needed is the last input that the stage needs, an index into g.in; −1 none.
func (g *group) needed(l []hop) int {
	if g.fires > 0 || len(g.in) == 0 {
		return min(g.fires, len(g.in)) - 1
	}
	if len(g.out) == 0 || l[g.out[0]].sentNS() == 0 {
		return len(g.in) - 1
	}
	n := 1
	for n < len(g.in) && l[g.in[n]].arrivedNS() <= l[g.out[0]].sentNS() {
		n++
	}
	return n - 1
}

// inHand is when the payload of a message had been read by its receiver.
func (h *hop) inHand() Point {
	if h.Recv.NS == nil || h.ShmRead == nil || h.ShmRead[1] <= *h.Recv.NS {
		return h.Recv
	}
	return seen(h.ShmRead[1], "segment read")
}

func worse(a, b Identity) Identity {
	rank := map[Identity]int{IdentityExact: 0, IdentityPaired: 1, IdentityOrdered: 2, IdentityUnknown: 3}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// entryVisits cuts the work of the entry process into runs of inputs followed by outputs: from the
// client's request to the first submit, and from each return to what it sets off, the last one to
// the end of the reply.
func (t *Timeline) entryVisits(r *request, l []hop, g *group) []Visit {
	type step struct {
		ns  int64
		hop int // -1: the client's request
		out bool
	}
	var steps []step
	for _, i := range g.in {
		steps = append(steps, step{l[i].arrivedNS(), i, false})
	}
	for _, i := range g.out {
		steps = append(steps, step{l[i].sentNS(), i, true})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.ns, b.ns) })
	if r.entryNS != 0 {
		steps = slices.Insert(steps, 0, step{r.entryNS, -1, false})
	}
	var out []Visit
	for len(steps) > 0 {
		v := Visit{Stage: g.key.stage, TGID: g.key.tgid, Identity: IdentityExact, Activation: -1, Departure: unknown("no output seen")}
		i := 0
		from := map[string]bool{}
		for ; i < len(steps) && !steps[i].out; i++ {
			in := Input{From: "client", At: r.entryPoint(), InHand: r.entryPoint(), Hop: -1}
			if h := steps[i].hop; h >= 0 {
				in = Input{From: l[h].From, Chunk: l[h].Chunk, At: l[h].Recv, InHand: l[h].inHand(), Hop: h}
				v.Identity = worse(v.Identity, l[h].Identity)
			}
			from[in.From] = true
			v.Inputs = append(v.Inputs, in)
		}
		for ; i < len(steps) && steps[i].out; i++ {
			v.Outputs = append(v.Outputs, steps[i].hop)
			v.Departure = l[steps[i].hop].Send
			v.Identity = worse(v.Identity, l[steps[i].hop].Identity)
		}
		if i == len(steps) && v.Departure.NS == nil && r.lastWriteNS != 0 {
			v.Departure = seen(r.lastWriteNS, "last reply write entered")
		}
		steps = steps[i:]
		v.Join = len(from) > 1
		if len(v.Inputs) > 0 {
			v.Arrival, v.Ready = v.Inputs[0].At, v.Inputs[len(v.Inputs)-1].At
		} else {
			v.Arrival, v.Ready = unknown("input not seen"), unknown("input not seen")
		}
		v.Start, v.Finish = between(v.Ready, v.Departure), between(v.Ready, v.Departure)
		if v.Finish.NS != nil {
			v.Finish.NS = v.Finish.HiNS
		}
		out = append(out, v)
	}
	return out
}

// between bounds a moment by two others; the estimate is the first.
func between(a, b Point) Point {
	if a.LoNS == nil || b.HiNS == nil || *b.HiNS < *a.LoNS {
		return unknown("no bound on both sides")
	}
	return bounded(*a.LoNS, a.at(), *b.HiNS, "arrival to departure")
}
