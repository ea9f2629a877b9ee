package main

import (
	"fmt"
	"testing"
)

// With --within, what a report lacks of a request that it marks as in flight at attach is not
// judged; of any other request, and whatever the report claims, it is.
func TestAccuracyWithin(t *testing.T) {
	for _, c := range []struct {
		name           string
		within, flying bool
		invent         bool
		missed, extra  int
	}{
		{"plain", false, true, false, 1, 0},
		{"not in flight", true, false, false, 1, 0},
		{"in flight", true, true, false, 0, 0},
		{"in flight, with an invention", true, true, true, 0, 1},
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
				tr.within(0, 1<<62)
			}
			a := score(match(d, tr), "", false)
			if got, want := fmt.Sprint(a.Figures.HopsMissed, a.Figures.HopsInvented), fmt.Sprint(c.missed, c.extra); got != want {
				t.Errorf("missed and invented %s, want %s: %v", got, want, a.Examples)
			}
		})
	}
}
