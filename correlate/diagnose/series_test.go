package diagnose

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stageline/stageline/correlate"
)

// visit of stage "s"; a negative time is unknown.
func visitOf(ready, start, finish int64) correlate.Visit {
	p := func(ns int64) correlate.Point {
		if ns < 0 {
			return unknown()
		}
		return seen(ns)
	}
	return correlate.Visit{Stage: "s", Ready: p(ready), Start: p(start), Finish: p(finish), Activation: -1}
}

func resultOf(visits ...correlate.Visit) *correlate.Result {
	r := &correlate.Result{Stages: []correlate.Stage{{Name: "idle"}, {Name: "s"}}}
	for _, v := range visits {
		r.Requests = append(r.Requests, correlate.RequestTimeline{Visits: []correlate.Visit{v}})
	}
	return r
}

func TestSeries(t *testing.T) {
	for _, c := range []struct {
		name   string
		visits []correlate.Visit
		want   string // ns:queue/active@oldest
	}{
		{"none", nil, ""},
		{"one", []correlate.Visit{visitOf(10, 20, 50)}, "10:1/0@10 20:0/1 50:0/0"},
		{"it did not wait", []correlate.Visit{visitOf(10, 10, 50)}, "10:0/1 50:0/0"},
		{"no duration at all", []correlate.Visit{visitOf(10, 10, 10)}, ""},
		{"one takes over from another at the same moment", []correlate.Visit{visitOf(10, 10, 50), visitOf(50, 50, 60)}, "10:0/1 60:0/0"},
		{"the oldest leaves, the next is the oldest", []correlate.Visit{visitOf(10, 40, 80), visitOf(20, 80, 90), visitOf(30, 35, 60)},
			"10:1/0@10 20:2/0@10 30:3/0@10 35:2/1@10 40:1/2@20 60:1/1@20 80:0/1 90:0/0"},
		{"as one starts another becomes ready: only the oldest changes", []correlate.Visit{visitOf(10, 20, -1), visitOf(20, 30, -1)}, "10:1/0@10 20:1/0@20 30:0/0"},
		{"unknown times are in no count", []correlate.Visit{visitOf(-1, 20, 50), visitOf(10, -1, 60), visitOf(10, 30, -1)}, "10:1/0@10 20:1/1@10 30:0/1 50:0/0"},
		{"order of the requests does not matter", []correlate.Visit{visitOf(50, 60, 70), visitOf(10, 20, 30)}, "10:1/0@10 20:0/1 30:0/0 50:1/0@50 60:0/1 70:0/0"},
	} {
		s := slices.Collect(Series(resultOf(c.visits...)))
		if len(s) != 2 || s[0].Stage != "idle" || len(s[0].Points) != 0 || s[1].Stage != "s" {
			t.Fatalf("%s: stages %+v", c.name, s)
		}
		if got := seriesText(s[1].Points); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func seriesText(points []SeriesPoint) string {
	var out []string
	for _, p := range points {
		s := fmt.Sprintf("%d:%d/%d", p.NS, p.Queue, p.Active)
		if p.OldestNS != nil {
			s += fmt.Sprintf("@%d", *p.OldestNS)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// Each point must hold against a count by hand of the visits that wait and run at its moment.
func TestSeriesAgainstCounting(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	var visits []correlate.Visit
	for range 211 {
		ready := rng.Int64N(500)
		start := ready + rng.Int64N(40)
		visits = append(visits, visitOf(ready, start, start+rng.Int64N(40)))
	}
	points := slices.Collect(Series(resultOf(visits...)))[1].Points
	if len(points) < 100 {
		t.Fatalf("only %d points", len(points))
	}
	for _, p := range points {
		queue, active, oldest := 0, 0, int64(-1)
		for i := range visits {
			v := &visits[i]
			if *v.Ready.NS <= p.NS && p.NS < *v.Start.NS {
				queue++
				if oldest < 0 || *v.Ready.NS < oldest {
					oldest = *v.Ready.NS
				}
			}
			if *v.Start.NS <= p.NS && p.NS < *v.Finish.NS {
				active++
			}
		}
		if p.Queue != queue || p.Active != active || (oldest >= 0) != (p.OldestNS != nil) || oldest >= 0 && *p.OldestNS != oldest {
			t.Fatalf("at %d: %+v, by hand queue %d active %d oldest %d", p.NS, p, queue, active, oldest)
		}
	}
}
