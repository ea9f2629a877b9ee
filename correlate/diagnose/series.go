package diagnose

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"

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
// visit of known times has no points. Only the points of one stage are in memory at a time.
func Series(r *correlate.Result) iter.Seq[StageSeries] {
	return func(yield func(StageSeries) bool) {
		for name, points := range eachSeries(r) {
			s := StageSeries{Stage: name, Points: slices.Collect(points)}
			if !yield(s) {
				return
			}
		}
	}
}

// eachSeries gives the stages by name, each with its points, which must be read before the next.
func eachSeries(r *correlate.Result) iter.Seq2[string, iter.Seq[SeriesPoint]] {
	byName := map[string]*standing{}
	of := func(name string) *standing {
		if byName[name] == nil {
			byName[name] = &standing{}
		}
		return byName[name]
	}
	for i := range r.Stages {
		of(r.Stages[i].Name)
	}
	for _, q := range r.All() {
		for j := range q.Visits {
			of(q.Visits[j].Stage).visit(&q.Visits[j])
		}
	}
	return func(yield func(string, iter.Seq[SeriesPoint]) bool) {
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			points := byName[name].points()
			delete(byName, name)
			if !yield(name, points) {
				return
			}
		}
	}
}

// stood is how long one visit waited: [ready, start).
type stood struct{ from, to int64 }

// standing is when the visits of a stage waited and were served. One that neither waited nor was
// served for any time changes nothing.
type standing struct {
	waits          []stood
	started, ended []int64 // service
}

func (s *standing) visit(v *correlate.Visit) {
	if v.Ready.NS != nil && v.Start.NS != nil && *v.Start.NS > *v.Ready.NS {
		s.waits = append(s.waits, stood{*v.Ready.NS, *v.Start.NS})
	}
	if v.Start.NS != nil && v.Finish.NS != nil && *v.Finish.NS > *v.Start.NS {
		s.started, s.ended = append(s.started, *v.Start.NS), append(s.ended, *v.Finish.NS)
	}
}

// points counts the visits.
func (s *standing) points() iter.Seq[SeriesPoint] {
	left := make([]int64, len(s.waits)) // when each stopped waiting
	for i, w := range s.waits {
		left[i] = w.to
	}
	slices.Sort(left)
	slices.Sort(s.started)
	slices.Sort(s.ended)
	slices.SortFunc(s.waits, func(a, b stood) int { return cmp.Compare(a.from, b.from) })
	came := func(i int) int64 { return s.waits[i].from }
	return func(yield func(SeriesPoint) bool) {
		var now, last SeriesPoint
		first := true
		oldest := 0 // the first of waits that has not ended
		for ready, start, begin, end := 0, 0, 0, 0; start < len(left) || end < len(s.ended); {
			now.NS = int64(math.MaxInt64)
			for _, l := range [...]struct {
				l []int64
				i int
			}{{left, start}, {s.started, begin}, {s.ended, end}} {
				if l.i < len(l.l) {
					now.NS = min(now.NS, l.l[l.i])
				}
			}
			if ready < len(s.waits) {
				now.NS = min(now.NS, came(ready))
			}
			for ; ready < len(s.waits) && came(ready) == now.NS; ready++ {
				now.Queue++
			}
			for ; start < len(left) && left[start] == now.NS; start++ {
				now.Queue--
			}
			for ; begin < len(s.started) && s.started[begin] == now.NS; begin++ {
				now.Active++
			}
			for ; end < len(s.ended) && s.ended[end] == now.NS; end++ {
				now.Active--
			}
			for oldest < len(s.waits) && s.waits[oldest].to <= now.NS {
				oldest++
			}
			now.OldestNS = nil
			if now.Queue > 0 {
				now.OldestNS = &s.waits[oldest].from
			}
			if (first || !last.same(&now)) && !yield(now) {
				return
			} else if first || !last.same(&now) {
				first, last = false, now
			}
		}
	}
}

// same says that nothing has changed but the time.
func (p *SeriesPoint) same(o *SeriesPoint) bool {
	if p.Queue != o.Queue || p.Active != o.Active || (p.OldestNS == nil) != (o.OldestNS == nil) {
		return false
	}
	return p.OldestNS == nil || *p.OldestNS == *o.OldestNS
}
