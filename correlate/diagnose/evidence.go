package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

// Causes of a verdict: what the time at the place is.
const (
	CauseQueue     = "queue"     // stage: requests wait for it
	CauseService   = "service"   // stage: it takes longer than the wait for it
	CauseUndivided = "undivided" // stage: when it starts is not known
	CauseReader    = "reader"    // stage: it does not read what has arrived
	CauseSender    = "sender"    // hop: the output is finished and not sent
	CauseCrossing  = "crossing"  // hop: sent and not received
	CausePayload   = "payload"   // hop: received, and the payload takes long to read
	CauseLag       = "lag"       // client
)

// Figure is one piece of evidence: a mean or a share over N visits, hops, processes or requests.
type Figure struct {
	What    string   `json:"what"`
	Value   stat.Num `json:"value"`
	Unit    string   `json:"unit"` // "ms", "%", "MB"
	N       int      `json:"n"`
	Unknown int      `json:"unknown"` // of which it could not be told
}

// mean gathers one figure.
type mean struct {
	sum        float64
	n, unknown int
}

func (m *mean) add(us float64, ok bool) {
	if !ok {
		m.unknown++
		return
	}
	m.sum += us
	m.n++
}

func (m *mean) figure(what, unit string, scale float64) Figure {
	f := Figure{What: what, Unit: unit, N: m.n, Unknown: m.unknown, Value: stat.Unknown()}
	if m.n > 0 {
		f.Value = stat.Num(m.sum / float64(m.n) * scale)
	}
	return f
}

// activity is what a stage did over the time of the recording: shares averaged over its processes.
func activity(r *correlate.Result, stage string) []Figure {
	type process struct{ busy, queue []interval }
	by := map[uint32]*process{}
	lack := 0
	for _, q := range r.All() {
		for k := range q.Visits {
			v := &q.Visits[k]
			if v.Stage != stage {
				continue
			}
			if v.Ready.NS == nil || v.Start.NS == nil || v.Finish.NS == nil {
				lack++
				continue
			}
			p := by[v.TGID]
			if p == nil {
				p = &process{}
				by[v.TGID] = p
			}
			p.busy = append(p.busy, interval{*v.Start.NS, *v.Finish.NS})
			p.queue = append(p.queue, interval{*v.Ready.NS, *v.Start.NS})
		}
	}
	whole := span(r)
	var busy, queue mean
	ids := make([]uint32, 0, len(by))
	for id := range by {
		ids = append(ids, id)
	}
	slices.Sort(ids) // the sum must not depend on a map's order
	for _, id := range ids {
		p := by[id]
		busy.add(float64(length(union(p.busy)))/float64(whole.to-whole.from), true)
		queue.add(float64(length(union(p.queue)))/float64(whole.to-whole.from), true)
	}
	busy.unknown, queue.unknown = lack, lack
	return []Figure{
		busy.figure(stage+": time in which a process of it serves", "%", 100),
		queue.figure(stage+": time in which something waits for a process of it", "%", 100),
	}
}

func stageFigures(r *correlate.Result, stage string) []Figure {
	var queue, service, residency, cpu, runq, blocked mean
	var bounded, unknown int
	for _, q := range r.All() {
		for k := range q.Visits {
			v := &q.Visits[k]
			if v.Stage != stage {
				continue
			}
			queue.add(between(v.Ready, v.Start))
			service.add(between(v.Start, v.Finish))
			residency.add(between(v.Arrival, v.Departure))
			cpu.add(deref(v.OnCPUUS))
			runq.add(deref(v.RunQueueUS))
			us := 0.0
			for _, b := range v.Blocked {
				us += b.US
			}
			blocked.add(us, v.Blocked != nil)
			for _, p := range []correlate.Point{v.Ready, v.Start, v.Finish} {
				switch {
				case p.NS == nil:
					unknown++
				case p.Timing == correlate.TimingBounded:
					bounded++
				}
			}
		}
	}
	points := 3 * (queue.n + queue.unknown)
	out := []Figure{
		queue.figure(stage+": queue wait of a visit", "ms", 1e-3),
		service.figure(stage+": service of a visit", "ms", 1e-3),
		residency.figure(stage+": residency of a visit", "ms", 1e-3),
	}
	for _, f := range []Figure{cpu.figure(stage+": of the service, on a CPU", "ms", 1e-3), runq.figure(stage+": of the service, waiting for a CPU", "ms", 1e-3),
		blocked.figure(stage+": of the service, asleep", "ms", 1e-3)} {
		if f.N > 0 {
			out = append(out, f)
		}
	}
	return append(append(out, activity(r, stage)...), Figure{What: stage + ": ready, start and finish that are estimates with an interval", Unit: "%",
		Value: 100 * stat.Share(bounded, points), N: points - unknown, Unknown: unknown})
}

// hopMeans are of the data that went from one stage to another.
type hopMeans struct {
	from, to                               string
	sender, transit, payload, write, bytes mean
	ends, seen                             int // sends and receives, and those that were seen
}

func (m *hopMeans) sent(q *correlate.RequestTimeline, v *correlate.Visit) {
	for _, o := range v.Outputs {
		h := &q.Hops[o]
		if h.To != m.to || h.Send.NS == nil || v.Finish.NS == nil || *h.Send.NS < *v.Finish.NS {
			continue // a chunk: the visit went on after it
		}
		m.sender.add(between(v.Finish, h.Send))
	}
}

func (m *hopMeans) received(q *correlate.RequestTimeline, in *correlate.Input) {
	if in.Hop < 0 || q.Hops[in.Hop].From != m.from {
		return
	}
	h := &q.Hops[in.Hop]
	m.transit.add(between(h.Send, h.Recv))
	m.payload.add(between(h.Recv, in.InHand))
	for _, p := range []correlate.Point{h.Send, h.Recv} {
		m.ends++
		if p.Timing == correlate.TimingSeen {
			m.seen++
		}
	}
	if h.ShmWrite != nil {
		m.write.add(float64(h.ShmWrite[1]-h.ShmWrite[0])/1e3, true)
	}
	switch {
	case h.ShmBytes != nil:
		m.bytes.add(float64(*h.ShmBytes), true)
	case h.Bytes != nil:
		m.bytes.add(float64(*h.Bytes), true)
	}
}

func hopFigures(r *correlate.Result, where string) []Figure {
	from, to, _ := strings.Cut(where, ":")
	m := hopMeans{from: from, to: to}
	for _, q := range r.All() {
		for k := range q.Visits {
			v := &q.Visits[k]
			if v.Stage == from {
				m.sent(q, v)
			}
			for n := range v.Inputs {
				if v.Stage == to {
					m.received(q, &v.Inputs[n])
				}
			}
		}
	}
	out := []Figure{
		m.sender.figure("output finished → send", "ms", 1e-3),
		m.transit.figure("send → receive", "ms", 1e-3),
		m.payload.figure("receive → payload read", "ms", 1e-3),
		m.bytes.figure("payload", "MB", 1e-6),
	}
	if m.write.n > 0 {
		out = append(out, m.write.figure("payload being written into shared memory", "ms", 1e-3))
	}
	out = append(out, Figure{What: "sends and receives that were seen", Unit: "%", Value: 100 * stat.Share(m.seen, m.ends), N: m.ends})
	sender := stageFigures(r, from)
	return append(out, sender[1], sender[2], sender[len(sender)-1], activity(r, to)[0])
}

// found words a verdict on a place.
func (j *judge) found(s *Suspect, num Numbers) Verdict {
	v := Verdict{Kind: s.Kind, Where: s.Where, Numbers: num}
	of := fmt.Sprintf("of the time of %d requests (95 %%: %.0f to %.0f %%; mean %.1f ms)", num.Requests, 100*s.ShareLo, 100*s.ShareHi, num.MeanUS/1e3)
	what := fmt.Sprintf("takes %.0f %% %s", 100*s.Share, of)
	if num.Basis == "slow" {
		what = fmt.Sprintf("takes %.0f %% of what the %d slowest requests (mean %.1f ms) need beyond the faster half (%.1f ms), and %.0f %% %s",
			100*s.SlowShare, num.Tail, num.TailUS/1e3, num.FastUS/1e3, 100*s.Share, of)
	}
	switch s.Kind {
	case KindStage:
		v.stage(s, what, num.Basis)
		v.Evidence = stageFigures(j.result, s.Where)
	case KindHop:
		v.hop(s, what, num.Basis)
		v.Evidence = hopFigures(j.result, s.Where)
	default:
		v.Cause, v.Evidence = CauseLag, []Figure{}
		v.Reason = fmt.Sprintf("the client's %s %s: the engine is not to blame", s.Where, what)
		v.Advice = "look at the load generator: its CPU, its connections, how fast it reads"
	}
	return v
}

func ofWhich(basis string) string {
	if basis == "slow" {
		return " on the critical paths of the slow ones"
	}
	return " on the critical path"
}

func (v *Verdict) stage(s *Suspect, what, basis string) {
	v.Cause = CauseQueue
	v.Advice = "requests wait for it: look at its service time, its batch limit and its number of processes"
	if s.QueueUS < s.ServiceUS {
		v.Cause = CauseService
		v.Advice = "its service takes longer than the wait for it: look at what it does, on a CPU and asleep"
	}
	if s.UndividedUS > s.QueueUS+s.ServiceUS {
		v.Cause = CauseUndivided
		v.Advice = "when it starts on a request is not known: look at the grades of its visits and at the loss ledger"
		v.Reason = fmt.Sprintf("it %s: %.1f ms a request that cannot be divided into waiting and service", what, s.UndividedUS/1e3)
		return
	}
	v.Reason = fmt.Sprintf("it %s: %.1f ms waiting and %.1f ms of service a request%s", what, s.QueueUS/1e3, s.ServiceUS/1e3, ofWhich(basis))
}

func (v *Verdict) hop(s *Suspect, what, basis string) {
	from, to, _ := strings.Cut(s.Where, ":")
	switch {
	case s.SenderUS >= s.CrossingUS && s.SenderUS >= s.PayloadUS:
		v.Cause = CauseSender
		v.Advice = fmt.Sprintf("%s is done with the request and does not send it: look at how it serialises and copies the payload, and whether it waits for a credit or a writer", from)
	case s.PayloadUS >= s.CrossingUS:
		v.Cause = CausePayload
		v.Advice = fmt.Sprintf("%s takes long to read the payload: look at its size and how it is copied", to)
	default:
		v.Cause = CauseCrossing
		v.Advice = fmt.Sprintf("it lay in the channel, sent and not received: look at what the reading thread of %s waits for, and at the transport", to)
	}
	v.Reason = fmt.Sprintf("it %s: %.1f ms a request between the finished output and its send, %.1f ms from send to receive, %.1f ms until the payload is read%s",
		what, s.SenderUS/1e3, s.CrossingUS/1e3, s.PayloadUS/1e3, ofWhich(basis))
}

// reader is a process that leaves messages unread although it has nothing else to do.
func (j *judge) reader() (Verdict, string) {
	for i := range j.num.Readers {
		x := &j.num.Readers[i]
		if !x.stalled() {
			continue
		}
		if hop, not := j.hop(); not == "" && !strings.HasSuffix(hop.Where, ":"+x.Stage) {
			continue // a hop to elsewhere takes more than what its pauses add to those that lead to it
		}
		v := Verdict{Kind: KindStage, Where: x.Stage, Cause: CauseReader, Numbers: j.num, Evidence: stageFigures(j.result, x.Stage)}
		v.Reason = fmt.Sprintf("process %d of it does not read: %d of %d messages lay unread in its channels for long, in %d pauses (longest %.0f ms) that take %.0f %% of the time; "+
			"it read nothing else in %.0f %% of them and worked on no request in %.0f %% of them",
			x.TGID, x.Messages, x.Of, x.Pauses, x.LongestUS/1e3, 100*x.Unread, 100*x.Exclusive, 100*x.Idle)
		v.Advice = "look at what its reading thread waits for in those pauses"
		return v, ""
	}
	return Verdict{}, "no reader stalls"
}
