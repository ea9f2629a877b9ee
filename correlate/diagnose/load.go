package diagnose

import (
	"iter"
	"sort"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

// StageLoad is what stood and ran at a stage over the time under load (Summary.Window), all its
// processes together. Visits without known times are in none of it.
type StageLoad struct {
	QueueMean    stat.Num `json:"queue_mean"` // visits that wait, weighted by time
	QueueMax     int      `json:"queue_max"`
	OldestMeanUS stat.Num `json:"oldest_wait_mean_us"` // age of the longest-waiting visit, weighted by time while any waits
	OldestMaxUS  stat.Num `json:"oldest_wait_max_us"`
	ActiveMean   stat.Num `json:"active_mean"` // visits that are served, weighted by time
	Utilisation  stat.Num `json:"utilisation"` // share of the time in which at least one is served

	Activations  int      `json:"activations"`
	NoActivation int      `json:"visits_without_activation"` // it is not known whether they were served alone
	BatchMean    stat.Num `json:"batch_mean"`                // visits served at once, weighted by time over all activations
	BatchMax     int      `json:"batch_max"`                 // visits that were certainly served at once
}

// windowGather is from the first request's entry to the last one's exit; where those are not known,
// from the first arrival at a stage to the last departure.
type windowGather struct{ from, to int64 }

func (w *windowGather) see(p *correlate.Point) {
	if p.NS == nil {
		return
	}
	if w.from == 0 || *p.NS < w.from {
		w.from = *p.NS
	}
	w.to = max(w.to, *p.NS)
}

func (w *windowGather) request(q *correlate.RequestTimeline) {
	w.see(&q.Entry)
	w.see(&q.Exit)
	for j := range q.Visits {
		w.see(&q.Visits[j].Arrival)
		w.see(&q.Visits[j].Departure)
	}
}

// span is null when nothing was seen.
func (w *windowGather) span() *[2]int64 {
	if w.to <= w.from {
		return nil
	}
	return &[2]int64{w.from, w.to}
}

// overTime integrates the series of a stage over the window.
func (l *StageLoad) overTime(points iter.Seq[SeriesPoint], w *[2]int64) {
	l.QueueMean, l.OldestMeanUS, l.OldestMaxUS, l.ActiveMean, l.Utilisation =
		stat.Unknown(), stat.Unknown(), stat.Unknown(), stat.Unknown(), stat.Unknown()
	if w == nil {
		return
	}
	var queue, active, busy, waiting, age, oldest float64 // ns, except age in ns²
	var p SeriesPoint
	n := 0
	for next := range points {
		if n++; n > 1 {
			l.QueueMax = max(l.QueueMax, p.Queue)
		}
		if from, to := max(p.NS, w[0]), min(next.NS, w[1]); n > 1 && to > from {
			d := float64(to - from)
			queue += d * float64(p.Queue)
			active += d * float64(p.Active)
			if p.Active > 0 {
				busy += d
			}
			if p.OldestNS != nil {
				a, z := float64(from-*p.OldestNS), float64(to-*p.OldestNS)
				waiting += d
				age += d * (a + z) / 2
				oldest = max(oldest, z)
			}
		}
		p = next
	}
	if n == 0 {
		return
	}
	whole := float64(w[1] - w[0])
	l.QueueMean, l.ActiveMean, l.Utilisation = stat.Num(queue/whole), stat.Num(active/whole), stat.Num(busy/whole)
	if waiting > 0 {
		l.OldestMeanUS, l.OldestMaxUS = stat.Num(age/waiting/1e3), stat.Num(oldest/1e3)
	}
}

// batches sums up the activations of each stage.
func batches(r *correlate.Result) map[string]*StageLoad {
	type sums struct{ served, span float64 }
	out, total := map[string]*StageLoad{}, map[string]*sums{}
	for a := range r.Batches() {
		l, t := out[a.Stage], total[a.Stage]
		if l == nil {
			l, t = &StageLoad{}, &sums{}
			out[a.Stage], total[a.Stage] = l, t
		}
		l.Activations++
		l.BatchMax = max(l.BatchMax, a.AtOnce)
		t.span += float64(*a.Finish - *a.Start)
		t.served += float64(a.ServedNS)
	}
	for stage, t := range total {
		out[stage].BatchMean = stat.Unknown()
		if t.span > 0 {
			out[stage].BatchMean = stat.Num(t.served / t.span)
		}
	}
	return out
}

// ServiceSplit is what the threads of a stage did while it served: shares of the service time of the
// visits for which that is known. What several visits had of one thread at once is in each of them.
type ServiceSplit struct {
	N        int            `json:"n"`
	Unknown  int            `json:"unknown"`
	OnCPU    stat.Num       `json:"on_cpu"`
	RunQueue stat.Num       `json:"run_queue"` // ready to run, without a CPU
	Blocked  []BlockedShare `json:"blocked"`   // largest first
}

// BlockedShare is the part of the service in which the thread slept for one reason.
type BlockedShare struct {
	Reason string   `json:"reason"`
	Share  stat.Num `json:"share"`
	N      int      `json:"n"` // visits in which it occurred
}

type splitGather struct {
	n, unknown  int
	on, queue   float64
	blocked     map[string]float64
	blockedN    map[string]int
	serviceOver float64
}

func (g *splitGather) visit(v *correlate.Visit) {
	if v.OnCPUUS == nil || v.RunQueueUS == nil || v.Blocked == nil {
		g.unknown++
		return
	}
	if g.blocked == nil {
		g.blocked, g.blockedN = map[string]float64{}, map[string]int{}
	}
	g.n++
	g.on += *v.OnCPUUS
	g.queue += *v.RunQueueUS
	g.serviceOver += *v.OnCPUUS + *v.RunQueueUS
	for _, b := range v.Blocked {
		g.blocked[b.Reason] += b.US
		g.blockedN[b.Reason]++
		g.serviceOver += b.US
	}
}

func (g *splitGather) split() ServiceSplit {
	s := ServiceSplit{N: g.n, Unknown: g.unknown, OnCPU: stat.Unknown(), RunQueue: stat.Unknown(), Blocked: []BlockedShare{}}
	if g.serviceOver <= 0 {
		return s
	}
	s.OnCPU, s.RunQueue = stat.Num(g.on/g.serviceOver), stat.Num(g.queue/g.serviceOver)
	for reason, us := range g.blocked {
		s.Blocked = append(s.Blocked, BlockedShare{reason, stat.Num(us / g.serviceOver), g.blockedN[reason]})
	}
	sort.Slice(s.Blocked, func(a, b int) bool {
		if s.Blocked[a].Share != s.Blocked[b].Share {
			return s.Blocked[a].Share > s.Blocked[b].Share
		}
		return s.Blocked[a].Reason < s.Blocked[b].Reason
	})
	return s
}
