package diagnose

import (
	"sort"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

// Upstream is one stage that a join takes inputs from.
type Upstream struct {
	From string `json:"from"`
	// Joins that it has an input in; Inputs is the number of these: where it is larger, several inputs
	// of one request (companions, chunks) come from there.
	Joins  int `json:"joins"`
	Inputs int `json:"inputs"`
	Last   int `json:"last"` // joins in which its input came last; those in which that is not known count nowhere
	// Offset is from the first input of the join to the last one from here.
	Offset stat.Dist `json:"offset_us"`
}

type upstreamGather struct {
	sum    Upstream
	offset gather
}

// inputs notes when the inputs of a join came.
func (g *stageGather) inputs(v *correlate.Visit) {
	first, known := int64(0), true
	latest := map[string]int64{}
	for i := range v.Inputs {
		in := &v.Inputs[i]
		u := g.upstreams[in.From]
		if u == nil {
			u = &upstreamGather{sum: Upstream{From: in.From}}
			g.upstreams[in.From] = u
		}
		if _, more := latest[in.From]; !more {
			u.sum.Joins++
			latest[in.From] = 0
		}
		u.sum.Inputs++
		at := in.Held().NS
		if at == nil {
			known = false
			continue
		}
		if first == 0 || *at < first {
			first = *at
		}
		latest[in.From] = max(latest[in.From], *at)
	}
	for from, at := range latest {
		g.upstreams[from].offset.add(float64(at-first)/1e3, known)
	}
}

func (g *stageGather) upstreamList() []Upstream {
	var out []Upstream
	for from, u := range g.upstreams {
		u.sum.Last, u.sum.Offset = g.sum.LastInput[from], u.offset.dist()
		out = append(out, u.sum)
	}
	sort.Slice(out, func(a, b int) bool { return out[a].From < out[b].From })
	return out
}

// FanOut is what a stage handed on.
type FanOut struct {
	Visits  int      `json:"visits"` // with an output
	Outputs int      `json:"outputs"`
	Mean    stat.Num `json:"mean"` // outputs for each of these visits
	// Bytes handed on, of messages and of the segments they refer to. What goes to several receivers
	// counts for each.
	Bytes        int64    `json:"bytes"`
	BytesUnknown int      `json:"bytes_unknown"` // outputs of which a size is not known
	To           []OutTo  `json:"to"`            // by name
	Targets      stat.Num `json:"targets_mean"`  // distinct receivers for each of these visits
}

// OutTo is the part of it that one stage received.
type OutTo struct {
	To      string `json:"to"`
	Outputs int    `json:"outputs"`
	Bytes   int64  `json:"bytes"`
}

type fanOutGather struct {
	sum     FanOut
	targets int
	to      map[string]*OutTo
}

func (g *fanOutGather) visit(v *correlate.Visit, hops []correlate.Hop) {
	if len(v.Outputs) == 0 {
		return
	}
	if g.to == nil {
		g.to = map[string]*OutTo{}
	}
	g.sum.Visits++
	targets := map[string]bool{}
	for _, i := range v.Outputs {
		h := &hops[i]
		n, ok := handed(h)
		if !ok {
			g.sum.BytesUnknown++
		}
		t := g.to[h.To]
		if t == nil {
			t = &OutTo{To: h.To}
			g.to[h.To] = t
		}
		targets[h.To] = true
		g.sum.Outputs++
		g.sum.Bytes += n
		t.Outputs++
		t.Bytes += n
	}
	g.targets += len(targets)
}

func (g *fanOutGather) fanOut() FanOut {
	f := g.sum
	f.Mean, f.Targets, f.To = stat.Unknown(), stat.Unknown(), []OutTo{}
	if f.Visits > 0 {
		f.Mean = stat.Num(float64(f.Outputs) / float64(f.Visits))
		f.Targets = stat.Num(float64(g.targets) / float64(f.Visits))
	}
	for _, t := range g.to {
		f.To = append(f.To, *t)
	}
	sort.Slice(f.To, func(a, b int) bool { return f.To[a].To < f.To[b].To })
	return f
}

// Chunks describes a stage that fires once for each chunk of a stream.
type Chunks struct {
	N        int `json:"n"` // chunks
	Requests int `json:"requests"`
	// Gap is from the finish of one chunk of a request to that of the next; unknown where one of the
	// two is, or where a number is missing between them.
	Gap stat.Dist `json:"gap_us"`
}

type chunkGather struct {
	n, requests int
	request     int
	chunks      []chunkDone // of that request
	gaps        gather
}

type chunkDone struct {
	number int64
	finish *int64
}

func (g *chunkGather) visit(request int, v *correlate.Visit) {
	if v.Chunk == nil {
		return
	}
	if g.n > 0 && g.request != request {
		g.close()
	}
	g.request = request
	g.n++
	d := chunkDone{number: *v.Chunk}
	if v.Finish.NS != nil {
		ns := *v.Finish.NS
		d.finish = &ns
	}
	g.chunks = append(g.chunks, d)
}

// close takes the gaps of a request whose chunks have all come.
func (g *chunkGather) close() {
	l := g.chunks
	sort.SliceStable(l, func(a, b int) bool { return l[a].number < l[b].number })
	for i := 1; i < len(l); i++ {
		us, ok := betweenNS(l[i-1].finish, l[i].finish)
		g.gaps.add(us, ok && l[i].number == l[i-1].number+1)
	}
	g.requests++
	g.chunks = l[:0]
}

func (g *chunkGather) figures() *Chunks {
	if g.n == 0 {
		return nil
	}
	g.close()
	return &Chunks{N: g.n, Requests: g.requests, Gap: g.gaps.dist()}
}
