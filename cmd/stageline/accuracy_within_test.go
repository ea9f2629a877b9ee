package main

import (
	"fmt"
	"testing"

	"github.com/stageline/stageline/correlate"
)

// With --within, what a report lacks of a request that it marks as in flight at attach is not
// judged; of any other request, of one that the truth says began later, and whatever the report
// claims, it is.
func TestAccuracyWithin(t *testing.T) {
	for _, c := range []struct {
		name           string
		within, flying bool
		beginNS        int64 // of the recording; the request's first stamp is 1 ms
		invent         bool
		missed, extra  int
	}{
		{"plain", false, true, 0, false, 1, 0},
		{"not in flight", true, false, 0, false, 1, 0},
		{"in flight", true, true, 0, false, 0, 0},
		{"in flight, with an invention", true, true, 0, true, 0, 1},
		{"in flight, and the log late", true, true, 2e6 - logLateNS, false, 0, 0},
		{"marked as in flight, but it began later", true, true, -logLateNS, false, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, d := truthFrom(t, truthOne), perfect()
			q := &d.Requests[0]
			q.InFlight = c.flying
			q.Hops = q.Hops[1:]
			if c.invent {
				h := q.Hops[0]
				h.Type, h.From, h.To, h.FromTGID, h.ToTGID = "stream", h.To, h.From, h.ToTGID, h.FromTGID
				q.Hops = append(q.Hops, h)
			}
			if c.within {
				tr.within(c.beginNS, 1<<62)
			}
			a := score(match(d, tr), "", false)
			if got, want := fmt.Sprint(a.Figures.HopsMissed, a.Figures.HopsInvented), fmt.Sprint(c.missed, c.extra); got != want {
				t.Errorf("missed and invented %s, want %s: %v", got, want, a.Examples)
			}
		})
	}
}

// One rule for all that a report can lack: of a request in flight at attach it is not judged with
// --within, and it is otherwise.
func TestAccuracyWithinLacks(t *testing.T) {
	for _, c := range []struct {
		name string
		lack func(q *correlate.RequestTimeline)
		want string // visits and hops missed, joins wrong and unknown; times missing: hops, ready, start, finish, arrivals, departures
	}{
		{"a visit", func(q *correlate.RequestTimeline) { q.Visits = append(q.Visits[:1:1], q.Visits[2]) }, "1 0 0 0; 0 1 1 1 1 1"},
		{"a hop's receive", func(q *correlate.RequestTimeline) { q.Hops[0].Recv = correlate.Point{} }, "0 0 0 0; 1 0 0 0 0 0"},
		{"ready, start and finish", func(q *correlate.RequestTimeline) {
			v := &q.Visits[1]
			v.Ready, v.Start, v.Finish = correlate.Point{}, correlate.Point{}, correlate.Point{}
		}, "0 0 0 0; 0 1 1 1 0 0"},
		{"a departure", func(q *correlate.RequestTimeline) { q.Visits[2].Departure = correlate.Point{} }, "0 0 0 0; 0 0 0 0 0 1"},
		{"an arrival", func(q *correlate.RequestTimeline) { q.Visits[1].Inputs[0].At = correlate.Point{} }, "0 0 0 0; 0 0 0 0 1 0"},
		{"an input of a join", func(q *correlate.RequestTimeline) { q.Visits[2].Inputs = q.Visits[2].Inputs[:1] }, "0 0 0 1; 0 0 0 0 1 0"},
	} {
		for _, within := range []bool{false, true} {
			tr, d := truthFrom(t, truthOne), perfect()
			d.Requests[0].InFlight = true
			c.lack(&d.Requests[0])
			want := c.want
			if within {
				tr.within(0, 1<<62)
				want = "0 0 0 0; 0 0 0 0 0 0"
			}
			a := score(match(d, tr), "", false)
			if told := a.Counts.Excused != (Excused{}); told != within {
				t.Errorf("%s, within %v: not judged, as it is told: %+v", c.name, within, a.Counts.Excused)
			}
			f, arrivals, departures := &a.Figures, 0, 0
			for _, s := range a.Stages {
				arrivals, departures = arrivals+s.Arrivals.Missing, departures+s.Departure.Missing
			}
			got := fmt.Sprintf("%d %d %d %d; %d %d %d %d %d %d", a.Counts.VisitsMissed, f.HopsMissed, f.JoinsWrong, f.JoinsUnknown,
				f.Hop.Missing, f.Ready.Missing, f.Start.Missing, f.Finish.Missing, arrivals, departures)
			if got != want {
				t.Errorf("%s, within %v: %s, want %s: %v", c.name, within, got, want, a.Examples)
			}
		}
	}
}

// A join that has fewer inputs than the truth claims nothing where its visit says that records were
// lost near it; one input that is not the truth's is wrong all the same.
func TestAccuracyOfLossNear(t *testing.T) {
	for _, c := range []struct {
		name           string
		near           bool
		lack           func(v *correlate.Visit)
		wrong, unknown int
	}{
		{"lost near it", true, func(v *correlate.Visit) { v.Inputs = v.Inputs[:1] }, 0, 1},
		{"nothing lost", false, func(v *correlate.Visit) { v.Inputs = v.Inputs[:1] }, 1, 0},
		{"lost near it, another input", true, func(v *correlate.Visit) { v.Inputs[1].From, v.Inputs[1].Hop = "nobody", -1 }, 1, 0},
		{"lost near it, all there", true, func(*correlate.Visit) {}, 0, 0},
	} {
		tr, d := truthFrom(t, truthOne), perfect()
		v := &d.Requests[0].Visits[2]
		v.LossNear = c.near
		c.lack(v)
		if f := score(match(d, tr), "", false).Figures; f.JoinsWrong != c.wrong || f.JoinsUnknown != c.unknown {
			t.Errorf("%s: %d wrong, %d unknown, want %d and %d", c.name, f.JoinsWrong, f.JoinsUnknown, c.wrong, c.unknown)
		}
	}
}
