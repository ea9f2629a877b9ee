package main

import (
	"maps"
	"math"
	"slices"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/export"
)

// matching pairs the visits and hops of a report with those of a truth log.
type matching struct {
	*judgement
	truth    *truth
	requests map[string][]*correlate.RequestTimeline // by id and alias

	visits map[*truthVisit]*foundVisit
	hops   map[*truthHop]*foundHop // memory hops too
	taken  map[any]bool            // visits and hops of the report that are paired

	visitsInvented []*foundVisit
	hopsInvented   []*foundHop
	hopsOutside    int // an end is no process of the truth (clients)
	segments       int // of the report: payload in shared memory beside a message of the truth
	carries        map[*truthHop]bool
	counted        int                                // of the report: messages that the truth only counts
	uncounted      int                                // that the truth counts and the report lacks, beyond hops missed
	partial        map[string]bool                    // requests that are not wholly inside the recording
	left           map[string]map[string]int          // by request and type: counted by the truth, not found yet
	untyped        int                                // paired although the report's type is not one of the truth's
	requestsMissed []int                              // by number
	number         map[*correlate.RequestTimeline]int // of a request in the report
}

type foundVisit struct {
	request *correlate.RequestTimeline
	*correlate.Visit
}

type foundHop struct {
	request *correlate.RequestTimeline
	*correlate.Hop
}

// judgement is what holds for all requests of a report and a truth log.
type judgement struct {
	byPID   map[uint32][]string // truth stages of a process
	names   map[string]bool     // truth stages
	types   map[string]bool     // message types of the truth
	byStage map[string][]uint32 // processes of a report's stage
}

func newJudgement(stages []export.StageDocument, truth []truthStage, types map[string]bool) *judgement {
	j := &judgement{byPID: map[uint32][]string{}, names: map[string]bool{}, types: types, byStage: map[string][]uint32{}}
	for _, s := range truth {
		j.names[s.Name] = true
		for _, p := range s.PIDs {
			j.byPID[p] = append(j.byPID[p], s.Name)
		}
	}
	for _, s := range stages {
		j.byStage[s.Name] = s.TGIDs
	}
	return j
}

// match pairs a whole report with a whole truth.
func match(d *export.Document, t *truth) *matching {
	types := map[string]bool{}
	for _, hops := range t.hops {
		for _, h := range hops {
			types[h.Type] = true
		}
	}
	requests, numbers := make([]*correlate.RequestTimeline, len(d.Requests)), make([]int, len(d.Requests))
	for i := range d.Requests {
		requests[i], numbers[i] = &d.Requests[i], i
	}
	return newJudgement(d.Stages, t.stages, types).match(requests, numbers, t)
}

// match pairs requests of a report, of which the numbers are given, with those of a truth. All that
// have a name in common are to be among them.
func (j *judgement) match(requests []*correlate.RequestTimeline, numbers []int, t *truth) *matching {
	m := &matching{
		judgement: j, truth: t, requests: map[string][]*correlate.RequestTimeline{}, number: map[*correlate.RequestTimeline]int{},
		visits: map[*truthVisit]*foundVisit{}, hops: map[*truthHop]*foundHop{}, taken: map[any]bool{},
		carries: map[*truthHop]bool{}, left: map[string]map[string]int{}, partial: map[string]bool{},
	}
	for i, q := range requests {
		m.number[q] = numbers[i]
		m.index(q)
	}
	for i, id := range t.requests {
		if len(m.requests[id]) == 0 && m.judged(id) {
			m.requestsMissed = append(m.requestsMissed, t.number(i))
		}
		m.matchVisits(id)
		m.matchHops(id)
		m.budget(id)
	}
	for _, q := range requests {
		m.leftOver(q)
	}
	for id, byType := range m.left {
		if m.partial[id] {
			continue // what was counted may lie before or after the recording
		}
		for _, n := range byType {
			m.uncounted += n
		}
	}
	return m
}

// judged: some of the request lies inside the recording.
func (m *matching) judged(id string) bool {
	return len(m.truth.visits[id])+len(m.truth.hops[id]) == 0 ||
		slices.ContainsFunc(m.truth.visits[id], func(v *truthVisit) bool { return !v.outside }) ||
		slices.ContainsFunc(m.truth.hops[id], func(h *truthHop) bool { return !h.outside })
}

// underWay: with --within, the report says itself that the request was in flight at attach, and the
// truth does not say otherwise. A log that stamps late then dates after the attach what happened
// before it: what is claimed of such a request is judged, what is absent is not.
func (m *matching) underWay(id string) bool {
	q := m.requests[id]
	return m.truth.early[id] && len(q) > 0 && !slices.ContainsFunc(q, func(r *correlate.RequestTimeline) bool { return !r.InFlight })
}

// budget is what the truth counts of a request beyond the hops it has stamps for.
func (m *matching) budget(id string) {
	if m.truth.messages[id] == nil {
		return
	}
	left := maps.Clone(m.truth.messages[id])
	whole := true
	for _, h := range m.truth.hops[id] {
		left[h.Type]--
		whole = whole && !h.outside
	}
	m.partial[id] = !whole
	for typ, n := range left {
		if n <= 0 {
			delete(left, typ)
		}
	}
	m.left[id] = left
}

// byCount: the hop is one of those that the truth only counts.
func (m *matching) byCount(q *correlate.RequestTimeline, h *correlate.Hop) bool {
	for _, id := range m.truth.names(q) {
		if left := m.left[id]; left[h.Type] > 0 {
			left[h.Type]--
			return true
		}
	}
	return false
}

func (m *matching) index(q *correlate.RequestTimeline) {
	for _, n := range m.truth.names(q) {
		if !slices.Contains(m.requests[n], q) {
			m.requests[n] = append(m.requests[n], q)
		}
	}
}

// truthNames says which truth stages a report's stage in a process can be. Several when one process
// holds several stages and the report's name is none of them; none for a process the truth does not
// know. Without a process (tgid 0) the name decides, then the processes of that stage.
func (m *matching) truthNames(name string, tgid uint32) []string {
	if in := m.byPID[tgid]; len(in) > 0 {
		if slices.Contains(in, name) {
			return []string{name}
		}
		return in
	}
	if tgid != 0 {
		return nil
	}
	if m.names[name] {
		return []string{name}
	}
	var all []string
	for _, p := range m.byStage[name] {
		for _, n := range m.byPID[p] {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	return all
}

func sameChunk(a, b *int64) bool { return a != nil && b != nil && *a == *b || a == nil && b == nil }

// oneUnstated: a chunk number that only one side states may be the other's.
func oneUnstated(a, b *int64) bool { return (a == nil) != (b == nil) }

func (m *matching) matchVisits(id string) {
	for _, fits := range []func(a, b *int64) bool{sameChunk, oneUnstated} {
		for _, tv := range m.truth.visits[id] {
			if m.visits[tv] != nil {
				continue
			}
			if found := m.findVisit(id, tv, fits); found != nil {
				m.visits[tv] = found
				m.taken[found.Visit] = true
			}
		}
	}
}

// findVisit returns the earliest free visit of the report that can be tv.
func (m *matching) findVisit(id string, tv *truthVisit, fits func(a, b *int64) bool) *foundVisit {
	var best *foundVisit
	for _, q := range m.requests[id] {
		for i := range q.Visits {
			v := &q.Visits[i]
			if m.taken[v] || !fits(v.Chunk, tv.Chunk) || !slices.Contains(m.truthNames(v.Stage, v.TGID), tv.Stage) {
				continue
			}
			if best == nil || compareNS(firstOf(v.Ready.NS, v.Start.NS, v.Finish.NS), firstOf(best.Ready.NS, best.Start.NS, best.Finish.NS)) < 0 {
				best = &foundVisit{q, v}
			}
		}
	}
	return best
}

// hopPass is one round of pairing hops. Its groups are aligned in order of time: a group must hold
// all that the pass cannot tell apart, or the first of several would take the only one found.
type hopPass struct {
	byType, byChunk bool // what tells groups apart, beside the ends
	fits            func(m *matching, p *correlate.Hop, t *truthHop) bool
}

// A type outside the truth's vocabulary is a decoder without that word, not another message.
var hopPasses = []hopPass{
	{true, true, func(_ *matching, p *correlate.Hop, t *truthHop) bool {
		return p.Type == t.Type && sameChunk(p.Chunk, t.Chunk)
	}},
	{true, false, func(_ *matching, p *correlate.Hop, t *truthHop) bool {
		return p.Type == t.Type && oneUnstated(p.Chunk, t.Chunk)
	}},
	{false, true, func(m *matching, p *correlate.Hop, t *truthHop) bool {
		return !m.types[p.Type] && sameChunk(p.Chunk, t.Chunk)
	}},
	{false, false, func(m *matching, p *correlate.Hop, t *truthHop) bool {
		return !m.types[p.Type] && oneUnstated(p.Chunk, t.Chunk)
	}},
}

func (m *matching) matchHops(id string) {
	for _, memory := range []bool{false, true} {
		for _, pass := range hopPasses {
			for _, group := range m.openGroups(id, memory, pass) {
				free := m.freeHops(id, group[0], pass)
				for i, j := range align(hopTimes(group), foundTimes(free)) {
					if j < 0 {
						continue
					}
					m.hops[group[i]] = free[j]
					m.taken[free[j].Hop] = true
					if !pass.byType {
						m.untyped++
					}
				}
			}
		}
	}
}

// openGroups are the unpaired hops of a request by what the pass tells apart.
func (m *matching) openGroups(id string, memory bool, pass hopPass) [][]*truthHop {
	type key struct {
		from, to, typ string
		chunk         int64
	}
	var order []key
	groups := map[key][]*truthHop{}
	for _, h := range m.truth.hops[id] {
		if h.memory() != memory || m.hops[h] != nil {
			continue
		}
		k := key{from: h.From, to: h.To, chunk: math.MinInt64}
		if pass.byType {
			k.typ = h.Type
		}
		switch {
		case h.Chunk != nil && pass.byChunk:
			k.chunk = *h.Chunk
		case h.Chunk != nil:
			k.chunk = 0 // whichever
		}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], h)
	}
	out := make([][]*truthHop, 0, len(order))
	for _, k := range order {
		out = append(out, groups[k])
	}
	return out
}

// freeHops are the unpaired hops of the report that may be t, in order of time.
func (m *matching) freeHops(id string, t *truthHop, pass hopPass) []*foundHop {
	var out []*foundHop
	for _, q := range m.requests[id] {
		for i := range q.Hops {
			h := &q.Hops[i]
			if !m.taken[h] && pass.fits(m, h, t) && slices.Contains(m.truthNames(h.From, h.FromTGID), t.From) && slices.Contains(m.truthNames(h.To, h.ToTGID), t.To) {
				out = append(out, &foundHop{q, h})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *foundHop) int {
		return compareNS(firstOf(a.Send.NS, a.Recv.NS), firstOf(b.Send.NS, b.Recv.NS))
	})
	return out
}

// leftOver files what the report has beyond the truth. A visit at the entry is no invention: the
// truth logs none there.
func (m *matching) leftOver(q *correlate.RequestTimeline) {
	for i := range q.Visits {
		v := &q.Visits[i]
		names := m.truthNames(v.Stage, v.TGID)
		if !m.taken[v] && len(names) > 0 && !slices.Contains(names, entryName) {
			m.visitsInvented = append(m.visitsInvented, &foundVisit{q, v})
		}
	}
	for i := range q.Hops {
		h := &q.Hops[i]
		switch {
		case m.taken[h]:
		case m.outside(h.From, h.FromTGID) || m.outside(h.To, h.ToTGID):
			m.hopsOutside++
		case m.byCount(q, h):
			m.counted++
		case m.besideMessage(q, h):
			m.segments++
		default:
			m.hopsInvented = append(m.hopsInvented, &foundHop{q, h})
		}
	}
}

// besideMessage: a shared-memory segment is not a message, and the truth logs messages only. Each
// message of the truth may have carried one segment between the same ends; a segment beyond those
// is an invention.
func (m *matching) besideMessage(q *correlate.RequestTimeline, h *correlate.Hop) bool {
	if h.Via != run.TransportShm.String() {
		return false
	}
	for _, id := range m.truth.names(q) {
		for _, t := range m.truth.hops[id] {
			if !m.carries[t] && !t.memory() && slices.Contains(m.truthNames(h.From, h.FromTGID), t.From) && slices.Contains(m.truthNames(h.To, h.ToTGID), t.To) {
				m.carries[t] = true
				return true
			}
		}
	}
	return false
}

// namesOf are the names of a report's request.
func namesOf(id string, aliases []correlate.Alias) []string {
	out := []string{id}
	for _, a := range aliases {
		out = append(out, a.Value)
	}
	return out
}

// names are those of a report's request, and the truth's own id where one of them belongs to it.
func (t *truth) names(q *correlate.RequestTimeline) []string {
	out := namesOf(q.ID, q.Aliases)
	for _, n := range slices.Clone(out) {
		if id := t.owner[n]; id != "" && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// outside: the end is a process that the truth does not speak of, or no process at all and a name
// that is no stage of the truth.
func (m *matching) outside(name string, tgid uint32) bool { return len(m.truthNames(name, tgid)) == 0 }
