package export

import (
	"cmp"
	"slices"

	"github.com/stageline/stageline/correlate"
)

// Fields of TrackDescriptor, ProcessDescriptor and CounterDescriptor.
const (
	trackUUID            = 1
	trackName            = 2
	trackProcess         = 3
	trackParent          = 5
	trackCounter         = 8
	trackChildOrdering   = 11
	trackRank            = 12
	trackDescription     = 14
	trackProcessOrdering = 19

	processPID   = 1
	processName  = 6
	processLabel = 8

	counterUnit  = 6
	counterShare = 7

	orderExplicit     = 3 // of child tracks
	processesExplicit = 1
)

// laneKind is what the slices of a lane are; its value is the place of the lane in its process.
type laneKind int

const (
	laneRequests laneKind = iota
	laneActivations
	laneHops
	laneMemory
	laneReceived
	laneEngine
	laneClient
	laneRecording
	laneLoss
	laneKinds
)

var laneNames = [laneKinds]string{
	laneRequests: "requests", laneActivations: "activations", laneHops: "hops out", laneMemory: "shared memory",
	laneReceived: "other messages in", laneEngine: "engine: entry to exit", laneClient: "client", laneRecording: "recording", laneLoss: "loss ledger",
}

// counterKind is a counter of a process; its value is its place below the lanes.
type counterKind int

const (
	counterQueue counterKind = iota
	counterOldest
	counterActive
	counterBatch
	counterInFlight
	counterKinds
)

var counters = [counterKinds]struct{ name, unit, share string }{
	counterQueue:    {"queue depth", "visits", "visits"},
	counterOldest:   {"oldest wait", "ms", ""},
	counterActive:   {"active", "visits", "visits"},
	counterBatch:    {"batch", "requests", ""},
	counterInFlight: {"requests in flight", "requests", ""},
}

// lane is one Perfetto track. Slices of a lane do not overlap: the next may begin at untilNS.
type lane struct {
	uuid    uint64
	untilNS int64
}

// processTrack groups the lanes and counters of one stage, or of what belongs to none.
type processTrack struct {
	uuid      uint64
	lanes     [laneKinds][]lane
	templates [laneKinds][]byte // descriptor without uuid
	counters  [counterKinds]uint64
}

// process writes a process track. Perfetto identifies processes by pid, and one process can be
// several stages or the other way round: it gets a number of its own, the real ones are labels.
func (t *timeline) process(name string, pids []uint32, description string) *processTrack {
	t.processes++
	p := &processTrack{uuid: t.uuid()}
	d := appendUint(nil, processPID, uint64(t.processes))
	d = appendText(d, processName, printable(name))
	for _, pid := range pids {
		d = appendText(d, processLabel, "pid "+unsignedText(pid))
	}
	rest := appendMessage(nil, trackProcess, d)
	rest = appendUint(rest, trackChildOrdering, orderExplicit)
	rest = appendUint(rest, trackRank, uint64(t.processes))
	if description != "" {
		rest = appendText(rest, trackDescription, printable(description))
	}
	t.w.track(p.uuid, rest)
	return p
}

func (t *timeline) uuid() uint64 {
	t.lastUUID++
	return t.lastUUID
}

// lane returns a track of p for something that begins at beginNS and reserves it until endNS. Tracks
// are written in time order, so that whatever was put on one has ended by the reserved time.
func (t *timeline) lane(p *processTrack, kind laneKind, beginNS, endNS int64) uint64 {
	for i := range p.lanes[kind] {
		if l := &p.lanes[kind][i]; l.untilNS <= beginNS {
			l.untilNS = endNS
			return l.uuid
		}
	}
	if p.templates[kind] == nil {
		rest := appendUint(nil, trackParent, p.uuid)
		rest = appendText(rest, trackName, laneNames[kind])
		p.templates[kind] = appendUint(rest, trackRank, uint64(kind)+1)
	}
	l := lane{uuid: t.uuid(), untilNS: endNS}
	t.w.track(l.uuid, p.templates[kind])
	p.lanes[kind] = append(p.lanes[kind], l)
	return l.uuid
}

// counter returns a counter track of p.
func (t *timeline) counter(p *processTrack, kind counterKind) uint64 {
	if p.counters[kind] == 0 {
		c := &counters[kind]
		d := appendText(nil, counterUnit, c.unit)
		if c.share != "" {
			d = appendText(d, counterShare, c.share)
		}
		rest := appendUint(nil, trackParent, p.uuid)
		rest = appendText(rest, trackName, c.name)
		rest = appendUint(rest, trackRank, uint64(laneKinds)+uint64(kind)+1)
		p.counters[kind] = t.uuid()
		t.w.track(p.counters[kind], appendMessage(rest, trackCounter, d))
	}
	return p.counters[kind]
}

// root makes the UI keep the order of the processes.
func (t *timeline) root() {
	t.w.track(0, appendUint(nil, trackProcessOrdering, processesExplicit))
}

// stageTracks writes a process track for every stage, in the order of stageOrder.
func (t *timeline) stageTracks() {
	known := map[string]*correlate.Stage{}
	for i := range t.r.Result.Stages {
		known[t.r.Result.Stages[i].Name] = &t.r.Result.Stages[i]
	}
	for _, name := range stageOrder(t.r.Result) {
		var pids []uint32
		rule := ""
		if s := known[name]; s != nil {
			pids, rule = s.TGIDs, "named by: "+s.Rule
		}
		shown := name
		if shown == "" {
			shown = "unknown"
		}
		t.stages[name] = t.process(shown, pids, rule)
	}
}

// stageOrder lists all stages that are named anywhere, along the graph: the entry, then by the
// median of the first arrival after the request's first known time, then those without arrivals.
func stageOrder(res *correlate.Result) []string {
	entry := map[string]bool{}
	first := map[string][]int64{}
	mention := func(name string) {
		if _, ok := first[name]; !ok {
			first[name] = nil
		}
	}
	for i := range res.Stages {
		mention(res.Stages[i].Name)
		entry[res.Stages[i].Name] = res.Stages[i].Entry
	}
	for _, q := range res.All() {
		for name, ns := range firstArrivals(q) {
			first[name] = append(first[name], ns)
		}
		for j := range q.Visits {
			mention(q.Visits[j].Stage)
		}
		for j := range q.Hops {
			mention(q.Hops[j].From)
			mention(q.Hops[j].To)
		}
	}
	names := sortedKeys(first)
	rank := map[string]int64{}
	for _, name := range names {
		slices.Sort(first[name])
		switch n := len(first[name]); {
		case entry[name]:
			rank[name] = -1
		case n == 0:
			rank[name] = 1<<63 - 1
		default:
			rank[name] = first[name][n/2]
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank[a], rank[b]) })
	return names
}

func firstArrivals(q *correlate.RequestTimeline) map[string]int64 {
	begin, _, ok := extent(q)
	if !ok {
		return nil
	}
	out := map[string]int64{}
	for i := range q.Visits {
		v := &q.Visits[i]
		if v.Arrival.NS == nil {
			continue
		}
		if at, ok := out[v.Stage]; !ok || *v.Arrival.NS-begin < at {
			out[v.Stage] = *v.Arrival.NS - begin
		}
	}
	return out
}
