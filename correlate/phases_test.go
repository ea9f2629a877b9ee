package correlate

import (
	"fmt"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

func TestPhasesOfAHop(t *testing.T) {
	type data struct{ us, bytes int64 }
	for _, c := range []struct {
		name string
		recv string // of the second message
		data []data
		want string // visible picked-up
	}{
		{"arrives whole, then its reader calls", "180-190", []data{{170, 50}}, "170 180"},
		{"arrives in two parts: the second makes it whole", "180-190", []data{{160, 20}, {170, 50}}, "170 180"},
		{"what was there before it does not count", "180-190", []data{{140, 60}, {170, 50}}, "170 180"},
		{"its reader already waits", "130-190", []data{{170, 50}}, "170 130"},
		{"no arrival was recorded", "180-190", nil, "? 180"},
		{"an arrival that is too small to be it", "180-190", []data{{170, 49}}, "? 180"},
		{"the call was in flight at attach", "?-190", []data{{170, 50}}, "170 ?"},
	} {
		tl := New(Options{StageOf: byComm})
		feed(t, tl, `
			proc 10 api
			proc 20 encoder
			client 1
			tcp 2 3
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			io send 2 10 120-121 1000+50
			send 2 10 120-121 1000+50 submit id=req-1
			io recv 3 20 122-123 1000+50
			recv 3 20 122-123 1000+50 submit id=req-1
			io send 2 10 150-160 1050+50
			send 2 10 150-160 1050+50 submit id=req-1
			io recv 3 20 `+c.recv+` 1050+50
			recv 3 20 `+c.recv+` 1050+50 submit id=req-1`)
		for _, d := range c.data {
			tl.Net(&run.Net{Event: run.NetData, EP: 3, AtNS: baseNS + d.us*1000, Bytes: d.bytes})
		}
		q := tl.Finish().Requests[0]
		if len(q.Hops) != 2 {
			t.Fatalf("%s: %d hops", c.name, len(q.Hops))
		}
		us := func(v *int64) string {
			if v == nil {
				return "?"
			}
			return fmt.Sprint((*v - baseNS) / 1000)
		}
		if got := us(q.Hops[1].VisibleNS) + " " + us(q.Hops[1].PickedUpNS); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
