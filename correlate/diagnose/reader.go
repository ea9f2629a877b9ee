package diagnose

import (
	"sort"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

const (
	longWaitNS  = int64(5e6) // a message that lies so long unread is remarkable at all
	longWaitBy  = 10         // and so many times its connector's median
	burstNS     = int64(2e6) // receives so close to one another end the same pause
	streamBytes = 1 << 20    // a larger message may arrive all the time that it is under way
	// A stalled reader: part of the recording, pauses, part of the unread time that each half of the
	// recording has, part of the messages' wait in which nothing at all was read, part of the pauses
	// in which the stage worked on nothing, and part in which no other process paused: when all do,
	// the machine had no time for them.
	minUnread    = 0.05
	minPauses    = 3
	minHalf      = 0.25
	minExclusive = 0.8
	minIdle      = 0.5
	minAlone     = 0.5
)

// Reader is a process in whose channels messages lay long while it read from none of them.
type Reader struct {
	Stage     string   `json:"stage"`
	TGID      uint32   `json:"tgid"`
	Unread    stat.Num `json:"unread"`    // share of the time from the first entry to the last exit
	Exclusive stat.Num `json:"exclusive"` // of the long waits, the share in which it read nothing else
	Idle      stat.Num `json:"idle"`      // of the pauses, the share in which it worked on no request
	Alone     stat.Num `json:"alone"`     // of the pauses, the share in which no other process paused
	Messages  int      `json:"messages"`  // that waited long
	Of        int      `json:"of"`        // received by it
	Pauses    int      `json:"pauses"`
	LongestUS stat.Num `json:"longest_us"` // pause

	halves [2]int64 // ns unread in each half of the time
	unread []interval
}

type interval struct{ from, to int64 } // ns

// union merges intervals into disjoint ones in order of time.
func union(iv []interval) []interval {
	sort.Slice(iv, func(a, b int) bool { return iv[a].from < iv[b].from })
	out := []interval{}
	for _, v := range iv {
		switch n := len(out); {
		case v.to <= v.from:
		case n > 0 && v.from <= out[n-1].to:
			out[n-1].to = max(out[n-1].to, v.to)
		default:
			out = append(out, v)
		}
	}
	return out
}

func length(iv []interval) (ns int64) {
	for _, v := range iv {
		ns += v.to - v.from
	}
	return ns
}

// overlap is how much of a lies in b; both are disjoint and in order of time.
func overlap(a, b []interval) (ns int64) {
	for i, k := 0, 0; i < len(a) && k < len(b); {
		ns += max(0, min(a[i].to, b[k].to)-max(a[i].from, b[k].from))
		if a[i].to < b[k].to {
			i++
		} else {
			k++
		}
	}
	return ns
}

// inbound is what a process received.
type inbound struct {
	stage string
	of    int        // messages
	waits []interval // send to receive of those that waited long
	recv  []int64    // in order of time
	busy  []interval
}

// span is from the first entry to the last exit.
func span(r *correlate.Result) (s interval) {
	for _, q := range r.All() {
		s.request(q)
	}
	return s
}

func (s *interval) request(q *correlate.RequestTimeline) {
	if q.Entry.NS == nil || q.Exit.NS == nil {
		return
	}
	if s.from == 0 || *q.Entry.NS < s.from {
		s.from = *q.Entry.NS
	}
	s.to = max(s.to, *q.Exit.NS)
}

// unreadTimes gives each process with long waits in its channels, by unread share.
func unreadTimes(r *correlate.Result) []Reader {
	usual, whole := usualTransits(r)
	out := []Reader{}
	for tgid, in := range receivers(r, usual) {
		if x, ok := in.reader(tgid, whole); ok {
			out = append(out, x)
		}
	}
	for i := range out {
		others := []interval{}
		for k := range out {
			if k != i {
				others = append(others, out[k].unread...)
			}
		}
		x := &out[i]
		x.Alone = stat.Num(1 - float64(overlap(x.unread, union(others)))/float64(length(x.unread)))
	}
	sort.Slice(out, func(a, b int) bool {
		if out[a].Unread != out[b].Unread {
			return out[a].Unread > out[b].Unread
		}
		return out[a].TGID < out[b].TGID
	})
	return out
}

type connectorKey struct{ from, to, via, typ string }

func keyOf(h *correlate.Hop) connectorKey { return connectorKey{h.From, h.To, h.Via, h.Type} }

// usualTransits are the medians of the connectors, ns, and the span of all requests.
func usualTransits(r *correlate.Result) (map[connectorKey]int64, interval) {
	var whole interval
	values := map[connectorKey]*stat.Column{}
	for _, q := range r.All() {
		whole.request(q)
		for k := range q.Hops {
			h := &q.Hops[k]
			us, ok := between(h.Send, h.Recv)
			if !ok {
				continue
			}
			c := values[keyOf(h)]
			if c == nil {
				c = &stat.Column{}
				values[keyOf(h)] = c
			}
			c.Add(us)
		}
	}
	usual := map[connectorKey]int64{}
	for k, v := range values {
		usual[k] = int64(1e3 * stat.Of(v.Take(), 0).P50)
	}
	return usual, whole
}

// long reports that a message lay unread for much longer than others of its connector.
func long(h *correlate.Hop, usual map[connectorKey]int64) bool {
	return *h.Recv.NS-*h.Send.NS >= max(longWaitNS, longWaitBy*usual[keyOf(h)]) && (h.Bytes == nil || *h.Bytes < streamBytes)
}

// receivers are the processes in whose channels a message lay long.
func receivers(r *correlate.Result, usual map[connectorKey]int64) map[uint32]*inbound {
	by := map[uint32]*inbound{}
	for _, q := range r.All() {
		for k := range q.Hops {
			h := &q.Hops[k]
			if h.ToTGID != 0 && h.Send.NS != nil && h.Recv.NS != nil && long(h, usual) && by[h.ToTGID] == nil {
				by[h.ToTGID] = &inbound{}
			}
		}
	}
	if len(by) == 0 {
		return by
	}
	for _, q := range r.All() {
		for k := range q.Hops {
			h := &q.Hops[k]
			if in := by[h.ToTGID]; in != nil && h.Send.NS != nil && h.Recv.NS != nil {
				in.hop(h, usual)
			}
		}
		for k := range q.Visits {
			v := &q.Visits[k]
			if in := by[v.TGID]; in != nil && v.Start.NS != nil && v.Finish.NS != nil {
				in.seenAt(v.Stage)
				in.busy = append(in.busy, interval{*v.Start.NS, *v.Finish.NS})
			}
		}
	}
	for _, in := range by {
		sort.Slice(in.recv, func(a, b int) bool { return in.recv[a] < in.recv[b] })
		in.busy = union(in.busy)
	}
	return by
}

// seenAt names the stage of the process: the first that a message or a visit of it names.
func (in *inbound) seenAt(stage string) {
	if in.of == 0 && len(in.busy) == 0 {
		in.stage = stage
	}
}

func (in *inbound) hop(h *correlate.Hop, usual map[connectorKey]int64) {
	in.seenAt(h.To)
	in.of++
	in.recv = append(in.recv, *h.Recv.NS)
	if long(h, usual) {
		in.waits = append(in.waits, interval{*h.Send.NS, *h.Recv.NS})
	}
}

func (in *inbound) reader(tgid uint32, whole interval) (Reader, bool) {
	x := Reader{Stage: in.stage, TGID: tgid, Of: in.of, Messages: len(in.waits)}
	waits := in.waits
	var unread []interval
	for _, w := range waits {
		send, recv := w.from, w.to
		// What was read last before the pause that this receive ended.
		if i := sort.Search(len(in.recv), func(i int) bool { return in.recv[i] > recv-burstNS }); i > 0 {
			send = max(send, in.recv[i-1])
		}
		unread = append(unread, interval{send, recv})
	}
	if x.Messages == 0 || whole.to <= whole.from {
		return x, false
	}
	waits, unread = union(waits), union(unread)
	for _, v := range unread {
		if v.to-v.from < longWaitNS {
			continue
		}
		x.Pauses++
		x.LongestUS = max(x.LongestUS, stat.Num(v.to-v.from)/1e3)
	}
	middle := whole.from + (whole.to-whole.from)/2
	x.halves[0] = overlap(unread, []interval{{whole.from, middle}})
	x.halves[1] = overlap(unread, []interval{{middle, whole.to}})
	x.unread = unread
	total := float64(length(unread))
	x.Unread = stat.Num(total / float64(whole.to-whole.from))
	x.Exclusive = stat.Num(total / float64(length(waits)))
	x.Idle = stat.Num(1 - float64(overlap(unread, in.busy))/total)
	return x, true
}

func (x *Reader) stalled() bool {
	half := float64(min(x.halves[0], x.halves[1])) / float64(length(x.unread))
	return x.Unread >= minUnread && x.Pauses >= minPauses && half >= minHalf && x.Exclusive >= minExclusive && x.Idle >= minIdle && x.Alone >= minAlone
}
