package diagnose

import (
	"sort"

	"github.com/stageline/stageline/correlate"
)

// StageSeries is what stood and ran at one stage over time: one point at each change.
type StageSeries struct {
	Stage  string        `json:"stage"`
	Points []SeriesPoint `json:"points"` // by time
}

// SeriesPoint holds from NS to the next point. Visits without known times are in no count.
type SeriesPoint struct {
	NS       int64  `json:"ns"`              // CLOCK_MONOTONIC
	Queue    int    `json:"queue"`           // visits that are ready and have not started
	OldestNS *int64 `json:"oldest_ready_ns"` // ready of the one that waits longest; null: none waits
	Active   int    `json:"active"`          // visits that have started and not finished
}

// Series gives, for each stage that the timeline names, what stood and ran there over time, from
// the estimates of ready, start and finish. The stages are sorted by name, and a stage without a
// visit of known times has no points.
func Series(r *correlate.Result) []StageSeries {
	byName := map[string][]*correlate.Visit{}
	for _, s := range r.Stages {
		byName[s.Name] = nil
	}
	for i := range r.Requests {
		for j := range r.Requests[i].Visits {
			v := &r.Requests[i].Visits[j]
			byName[v.Stage] = append(byName[v.Stage], v)
		}
	}
	out := make([]StageSeries, 0, len(byName))
	for name, visits := range byName {
		out = append(out, StageSeries{Stage: name, Points: seriesOf(visits)})
	}
	sort.Slice(out, func(a, b int) bool { return out[a].Stage < out[b].Stage })
	return out
}

// change is what one visit adds to the counts at a moment.
type change struct {
	ns            int64
	queue, active int
}

// stood is how long one visit waited: [ready, start).
type stood struct{ from, to int64 }

// seriesOf counts the visits of one stage. One that neither waited nor was served for any time
// changes nothing.
func seriesOf(visits []*correlate.Visit) []SeriesPoint {
	var changes []change
	var waits []stood
	add := func(from, to int64, queue, active int) {
		changes = append(changes, change{from, queue, active}, change{to, -queue, -active})
	}
	for _, v := range visits {
		if v.Ready.NS != nil && v.Start.NS != nil && *v.Start.NS > *v.Ready.NS {
			add(*v.Ready.NS, *v.Start.NS, 1, 0)
			waits = append(waits, stood{*v.Ready.NS, *v.Start.NS})
		}
		if v.Start.NS != nil && v.Finish.NS != nil && *v.Finish.NS > *v.Start.NS {
			add(*v.Start.NS, *v.Finish.NS, 0, 1)
		}
	}
	sort.Slice(changes, func(a, b int) bool { return changes[a].ns < changes[b].ns })
	sort.Slice(waits, func(a, b int) bool { return waits[a].from < waits[b].from })
	points := []SeriesPoint{}
	var now SeriesPoint
	oldest := 0 // the first of waits that has not ended
	for i := 0; i < len(changes); {
		now.NS = changes[i].ns
		for ; i < len(changes) && changes[i].ns == now.NS; i++ {
			now.Queue += changes[i].queue
			now.Active += changes[i].active
		}
		for oldest < len(waits) && waits[oldest].to <= now.NS {
			oldest++
		}
		now.OldestNS = nil
		if now.Queue > 0 {
			now.OldestNS = &waits[oldest].from
		}
		if n := len(points); n == 0 || !points[n-1].same(&now) {
			points = append(points, now)
		}
	}
	return points
}

// same says that nothing has changed but the time.
func (p *SeriesPoint) same(o *SeriesPoint) bool {
	if p.Queue != o.Queue || p.Active != o.Active || (p.OldestNS == nil) != (o.OldestNS == nil) {
		return false
	}
	return p.OldestNS == nil || *p.OldestNS == *o.OldestNS
}
