package correlate

import "testing"

// What is estimated each on its own comes out in order, and inside its bounds.
func TestInOrder(t *testing.T) {
	span := func(lo, ns, hi int64) interval { return interval{lo: lo, ns: ns, hi: hi, rule: "as estimated"} }
	for _, c := range []struct {
		name                    string
		anchor                  int64
		ready, start, finish    interval
		ready2, start2, finish2 interval
	}{
		{"in order already", 90, span(10, 12, 20), span(12, 30, 40), span(40, 50, 60), span(10, 12, 20), span(12, 30, 40), span(40, 50, 60)},
		{"ready is known to be later than the estimate of start", 90, span(25, 28, 30), span(10, 12, 40), span(40, 50, 60), span(25, 25, 30), span(25, 25, 40), span(40, 50, 60)},
		{"finish may be after the send, and is not", 55, span(10, 12, 20), span(12, 30, 40), span(40, 58, 60), span(10, 12, 20), span(12, 30, 40), span(40, 55, 55)},
		{"finish was another's", 35, span(10, 12, 20), span(12, 30, 40), span(40, 50, 60), span(10, 12, 20), span(12, 30, 40),
			interval{lo: 12, ns: 35, hi: 35, rule: "output sent"}},
		{"no output seen", 0, span(10, 12, 20), span(12, 30, 40), span(40, 50, 60), span(10, 12, 20), span(12, 30, 40), span(40, 50, 60)},
		{"start is known to be later than finish", 90, span(10, 12, 20), span(50, 55, 60), span(20, 30, 40), span(10, 12, 20), span(40, 40, 60), span(40, 40, 40)},
		{"start is estimated after finish", 90, span(10, 45, 48), span(12, 70, 80), span(40, 50, 60), span(10, 45, 48), span(12, 50, 80), span(40, 50, 60)},
	} {
		w := window{anchor: c.anchor}
		w.inOrder(&c.ready, &c.start, &c.finish)
		for _, p := range [][2]interval{{c.ready, c.ready2}, {c.start, c.start2}, {c.finish, c.finish2}} {
			if got, want := p[0], p[1]; got.lo != want.lo || got.ns != want.ns || got.hi != want.hi || got.rule != want.rule {
				t.Errorf("%s: %+v, want %+v", c.name, got, want)
			}
		}
	}
}
