package correlate

import (
	"slices"
)

// chunkVotes decide whether a stage fires once a chunk: its outputs then carry the numbers of its
// inputs.
type chunkVotes struct{ perChunk, whole int }

// chunkSets are the chunk numbers on the inputs and outputs of a stage.
func (g *group) chunkSets(l []hop) (in, out map[int64]bool) {
	a, b := g.chunks(l)
	set := func(l []int64) map[int64]bool {
		m := map[int64]bool{}
		for _, c := range l {
			if c >= 0 {
				m[c] = true
			}
		}
		return m
	}
	return set(a), set(b)
}

// chunks are the chunk numbers of the inputs and outputs of a group, both in order of time; −1
// none. A side whose messages carry no numbers is numbered by the other one, when it has one
// message for each number and each output follows its input.
func (g *group) chunks(l []hop) (in, out []int64) {
	in, out = chunksOf(l, g.in), chunksOf(l, g.out)
	numbered := func(c []int64) bool { return slices.ContainsFunc(c, func(k int64) bool { return k >= 0 }) }
	byIn, byOut := numbered(in), numbered(out)
	a, b := largestClass(l, g.in), largestClass(l, g.out)
	if len(g.in) == 0 && !byOut && len(b) > 1 && !g.feedsStages(l) {
		for n := range b { // fed inside its process
			out[b[n]] = int64(n)
		}
		return in, out
	}
	if byIn && byOut || len(a) != len(b) || len(a) < 2 && !byIn {
		return in, out
	}
	for n := range a {
		if l[g.out[b[n]]].sentNS() < l[g.in[a[n]]].arrivedNS() {
			return in, out
		}
	}
	for n := range a {
		k := int64(n)
		if byIn {
			k = in[a[n]]
		} else if byOut {
			k = out[b[n]]
		}
		in[a[n]], out[b[n]] = k, k
	}
	return in, out
}

// largestClass are the positions, within order, of the most frequent messages of one type between
// the same two stages.
func largestClass(l []hop, order []int) []int {
	type class struct{ from, to, typ string }
	by := map[class][]int{}
	var best class
	for n, i := range order {
		k := class{l[i].From, l[i].To, l[i].Type}
		by[k] = append(by[k], n)
		if len(by[k]) > len(by[best]) {
			best = k
		}
	}
	return by[best]
}

// learnChunks lets a request vote on which of its stages fire per chunk.
func (t *Timeline) learnChunks(l []hop) {
	for _, g := range groups(l) {
		if g.p.entry {
			continue
		}
		in, out := g.chunkSets(l)
		if len(in) == 0 && len(out) == 0 {
			continue
		}
		v := t.chunky[g.key.stage]
		if v == nil {
			v = &chunkVotes{}
			t.chunky[g.key.stage] = v
		}
		switch {
		case len(g.in) == 0 && len(out) > 1 && !g.feedsStages(l):
			v.perChunk++ // fed inside its process; all it sends is numbered
		case len(in) == 0 || len(out) == 0:
			v.whole++
		case equalSets(in, out):
			if len(in) > 1 {
				v.perChunk++
			}
		default:
			v.whole++
		}
	}
}

// feedsStages reports that a stage sends data to another stage than the entry beside its most
// frequent messages: those are then a stream beside its result.
func (g *group) feedsStages(l []hop) bool {
	most := largestClass(l, g.out)
	for n, i := range g.out {
		if l[i].to != nil && !l[i].to.entry && !slices.Contains(most, n) {
			return true
		}
	}
	return false
}

// equalSets allows for a lost message in every eight.
func equalSets(a, b map[int64]bool) bool {
	miss := 0
	for k := range a {
		if !b[k] {
			miss++
		}
	}
	for k := range b {
		if !a[k] {
			miss++
		}
	}
	return miss*8 <= max(len(a), len(b))
}

// part is what one visit of a stage is made of.
type part struct {
	*group
	chunk *int64 // nil: the visit is for the whole request, or for what closes its stream
}

// parts splits a group into its visits: one for each chunk where the stage fires per chunk.
func (t *Timeline) parts(l []hop, g *group) []part {
	v := t.chunky[g.key.stage]
	in, outs := g.chunkSets(l)
	if v != nil && v.perChunk > v.whole && len(outs) > 0 && (len(in) > 0 || len(g.in) == 0) {
		return g.chunkParts(l)
	}
	return []part{{g, nil}}
}

// chunkParts splits a group by chunk number: one visit a chunk, which needs the input of its number
// alone, and one for what closes the stream where that makes outputs of its own.
func (g *group) chunkParts(l []hop) []part {
	parts := map[int64]*group{}
	var order []int64
	get := func(k int64) *group {
		if parts[k] == nil {
			parts[k] = &group{key: g.key, p: g.p, control: g.control}
			order = append(order, k)
		}
		return parts[k]
	}
	inAt, outAt := g.chunks(l)
	for n, i := range g.in {
		if inAt[n] >= 0 {
			p := get(inAt[n])
			p.in = append(p.in, i)
			p.fires = len(p.in)
		}
	}
	for n, i := range g.out {
		if outAt[n] >= 0 {
			p := get(outAt[n])
			p.out = append(p.out, i)
		}
	}
	slices.Sort(order)
	first, last := parts[order[0]], parts[order[len(order)-1]]
	before, end := g.unnumbered(l, inAt, outAt)
	first.in = append(before, first.in...)
	if first.fires > 0 {
		first.fires += len(before)
	}
	var out []part
	if len(end.in) == 0 || len(end.out) == 0 {
		first.in = append(first.in, end.in...)
		last.out = append(last.out, end.out...)
	} else {
		out = append(out, part{end, nil})
	}
	for _, k := range order {
		out = append(out, part{parts[k], ptr(k)})
	}
	return out
}

// unnumbered sorts the messages without a number of a stage that fires per chunk: inputs that came
// before the stream, and what closes it. Something closes it when an input comes behind the last
// chunk and outputs follow that input.
func (g *group) unnumbered(l []hop, inAt, outAt []int64) (before []int, end *group) {
	end = &group{key: g.key, p: g.p, control: g.control}
	firstChunk := slices.IndexFunc(inAt, func(k int64) bool { return k >= 0 })
	closing := false
	for n, i := range g.in {
		switch {
		case inAt[n] >= 0:
			closing = false
		case n < firstChunk:
			before = append(before, i)
		default:
			end.in = append(end.in, i)
			closing = true
		}
	}
	for n, i := range g.out {
		if outAt[n] < 0 {
			end.out = append(end.out, i)
		}
	}
	if firstChunk < 0 || !closing || len(end.out) > 0 && l[end.out[0]].sentNS() < l[end.in[len(end.in)-1]].arrivedNS() {
		before, end.in = append(before, end.in...), nil
	}
	return before, end
}

// chunksOf are the chunk numbers of hops in order of time, −1 none. Messages whose numbers were not
// captured take those that are missing between their neighbours of the same kind, or before the
// first of them, where it is as many.
func chunksOf(l []hop, order []int) []int64 {
	type class struct{ from, to, typ string }
	out := make([]int64, len(order))
	open := map[class][]int{} // without a number since the last one with one
	next := map[class]int64{}
	for n, i := range order {
		h := &l[i]
		k := class{h.From, h.To, h.Type}
		out[n] = -1
		if h.Chunk == nil {
			open[k] = append(open[k], n)
			continue
		}
		out[n] = *h.Chunk
		if out[n]-next[k] == int64(len(open[k])) {
			for j, m := range open[k] {
				out[m] = next[k] + int64(j)
			}
		}
		next[k], open[k] = out[n]+1, nil
	}
	return out
}
