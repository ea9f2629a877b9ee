package correlate

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// servedTrace is one request whose compute thread does what the test says between 9040 and 9500; the
// roles are those of threadsTrace.
func servedTrace(between string) string {
	return threadsTrace(`
		recv 1 10 9000-9005 900+300 POST_/v1/x x=4 id=req-1 flags=first,last
		send 2 10.11 9010-9015 150+50 submit id=req-1
		off 20.21 5000-9016-9020 by=10.11 call=232
		recv 3 20.21 9018-9024 150+50 submit id=req-1
		off 20.20 5100-9026-9030 by=20.21 call=7
		off 20.22 5200-9035-9040 by=20.20 call=202 arg=77` + between + `
		off 20.20 9045-9500-9510 by=20.22 call=7
		off 20.21 9050-9515-9520 by=20.20 call=232
		off 20.22 9505-9900-9905 by=20.20 call=202 arg=77
		send 3 20.21 9525-9530 120+40 complete id=req-1
		recv 2 10.11 9526-9540 120+40 complete id=req-1`)
}

func TestServiceSplit(t *testing.T) {
	for _, c := range []struct{ name, trace, want string }{
		{"it ran all the time", "", "service 460 on 460 queue 0"},
		{"a timer, then 6 µs for a CPU", `
			off 20.22 9100-9150-9156 by=0.0 call=230`, "service 460 on 404 queue 6 timer 50/1"},
		{"preempted: all of it is the run queue", `
			off 20.22 9100-9100-9111 call=-1 state=preempted
			off 20.22 9200-?-9213 call=230 state=preempted`, "service 460 on 436 queue 24"},
		{"it gave the CPU away", `
			off 20.22 9100-?-9107 call=24 state=preempted`, "service 460 on 453 queue 0 yield 7/1"},
		{"a page fault, twice", `
			off 20.22 9100-9120-9121 call=-1
			off 20.22 9200-9203-9203 call=-1`, "service 460 on 436 queue 1 fault 23/2"},
		{"a futex of its own, and one that the thread that wakes it waits on too", `
			off 20.30 4000-4001-4002 by=20.22 call=202 arg=500
			off 20.22 9100-9105-9106 by=20.30 call=202 arg=500
			off 20.22 9200-9209-9210 by=20.30 call=202 arg=600`, "service 460 on 444 queue 2 futex 9/1 lock 5/1"},
		{"a lock of which the waker is not known", `
			off 20.30 4000-4001-4002 by=20.22 call=202 arg=500
			off 20.22 9100-9105-9105 call=202 arg=500`, "service 460 on 455 queue 0 lock 5/1"},
		{"its wake-up was lost: nobody says how much of it was the run queue", `
			off 20.22 9100-?-9120 call=0`, "service 460 on 440 queue 0 unseen 20/1"},
		{"reads, mappings, a driver, and a call in no row", `
			off 20.22 9100-9120-9120 call=0
			off 20.22 9130-9134-9134 call=9
			off 20.22 9140-9142-9142 call=16
			off 20.22 9150-9151-9151 call=333`, "service 460 on 433 queue 0 io 20/1 memory 4/1 ioctl 2/1 other 1/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, servedTrace(c.trace))
			v := visitOf(t, tl.Finish(), "req-1", "encoder")
			if got := splitText(t, v); got != c.want {
				t.Errorf("got  %s\nwant %s (start %s finish %s)", got, c.want, pt(v.Start), pt(v.Finish))
			}
		})
	}
}

// Only what lies inside counts, and what began before it or ends behind it counts in part.
func TestSplitIsClipped(t *testing.T) {
	x := newProcess(0)
	th := &thread{off: []run.OffCPU{
		{OutNS: 10, WakeNS: 20, InNS: 30, State: run.OffSleep, Call: 230},
		{OutNS: 90, WakeNS: 130, InNS: 150, State: run.OffSleep, Call: 230},
		{OutNS: 180, WakeNS: 250, InNS: 260, State: run.OffSleep, Call: 0},
	}}
	for _, c := range []struct {
		a, z, on, queue int64
		blocked         string
	}{
		{25, 100, 60, 5, "[{timer 0.01 1}]"},
		{100, 200, 30, 20, "[{timer 0.03 1} {io 0.02 1}]"},
		{140, 160, 10, 10, "[]"},
		{40, 80, 40, 0, "[]"},
		{50, 50, 0, 0, "[]"},
	} {
		on, queue, blocked := x.part(th, c.a, c.z)
		if on != c.on || queue != c.queue || fmt.Sprint(blocked) != c.blocked {
			t.Errorf("[%d, %d]: on %d, queue %d, blocked %v; want %+v", c.a, c.z, on, queue, blocked, c)
		}
	}
}

func visitOf(t *testing.T, r *Result, id, stage string) *Visit {
	t.Helper()
	for i := range r.Requests {
		for j := range r.Requests[i].Visits {
			if v := &r.Requests[i].Visits[j]; r.Requests[i].ID == id && v.Stage == stage {
				return v
			}
		}
	}
	t.Fatalf("no visit of %s at %s", id, stage)
	return nil
}

// splitText renders the split of a visit and checks that it adds up.
func splitText(t *testing.T, v *Visit) string {
	t.Helper()
	if v.OnCPUUS == nil || v.RunQueueUS == nil || v.Blocked == nil {
		return "unknown"
	}
	service := float64(v.Finish.at()-v.Start.at()) / 1e3
	sum := *v.OnCPUUS + *v.RunQueueUS
	var b strings.Builder
	fmt.Fprintf(&b, "service %v on %v queue %v", service, *v.OnCPUUS, *v.RunQueueUS)
	for _, x := range v.Blocked {
		sum += x.US
		fmt.Fprintf(&b, " %s %v/%d", x.Reason, x.US, x.N)
	}
	if math.Abs(sum-service) > 1e-6 {
		t.Errorf("%s adds up to %v", b.String(), sum)
	}
	return b.String()
}

func TestServiceSplitIsNotInvented(t *testing.T) {
	for _, c := range []struct{ name, trace string }{
		{"records lost meanwhile", servedTrace("\nloss 9100-9110 ring-full offcpu 3")},
		{"no record of any thread", twoProcs + `
			base 3 2 0
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			send 2 10 150-160 0+50 submit id=req-1
			recv 3 20 155-170 0+50 submit id=req-1
			send 3 20 300-310 0+40 complete id=req-1
			recv 2 10 305-320 0+40 complete id=req-1`},
	} {
		tl := New(Options{StageOf: byComm})
		feed(t, tl, c.trace)
		if got := splitText(t, visitOf(t, tl.Finish(), "req-1", "encoder")); got != "unknown" {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// at makes a bounded point in µs, give or take w; visitAt a visit of thread 7 that is served from a to z ± w.
func at(us, w int64) Point {
	return bounded(baseNS+(us-w)*1000, baseNS+us*1000, baseNS+(us+w)*1000, "")
}

func visitAt(a, z, w int64, batches ...uint64) Visit {
	return Visit{Stage: "s", TGID: 1, tid: 7, Activation: -1, Start: at(a, w), Finish: at(z, w), batches: batches}
}

func TestActivations(t *testing.T) {
	unknownThread := visitAt(100, 200, 1)
	unknownThread.tid = 0
	replica := visitAt(100, 200, 1)
	replica.TGID = 2
	for _, c := range []struct {
		name   string
		visits []Visit
		want   string
	}{
		{"one after the other", []Visit{visitAt(100, 200, 1), visitAt(200, 300, 1), visitAt(310, 400, 1)}, "[0] [1] [2]"},
		{"sequential, estimates overlap by less than they are sure of", []Visit{visitAt(100, 200, 10), visitAt(190, 300, 10)}, "[0] [1]"},
		{"overlap beyond both uncertainties", []Visit{visitAt(100, 200, 10), visitAt(179, 300, 10)}, "[0 1]"},
		{"members join and leave: one activation", []Visit{visitAt(100, 200, 1), visitAt(150, 400, 1), visitAt(350, 500, 1), visitAt(600, 700, 1)}, "[0 1 2] [3]"},
		{"one lasts longer than those behind it", []Visit{visitAt(100, 900, 1), visitAt(150, 200, 1), visitAt(300, 400, 1)}, "[0 1 2]"},
		{"too wide to say, beside another: none", []Visit{visitAt(100, 200, 1), visitAt(205, 210, 20)}, "[0]"},
		{"a start that may be anywhere before the finish, behind the visit before it", []Visit{visitAt(100, 200, 10), {Stage: "s", TGID: 1, tid: 7,
			Start: bounded(baseNS+195e3, baseNS+195e3, baseNS+300e3, ""), Finish: at(295, 5)}}, "[0] [1]"},
		{"by its estimate it joins the one before, by its interval it may come after", []Visit{visitAt(100, 200, 1), {Stage: "s", TGID: 1, tid: 7,
			Start: bounded(baseNS+150e3, baseNS+150e3, baseNS+202e3, ""), Finish: at(400, 1)}, visitAt(500, 600, 1)}, "[2]"},
		{"too wide, but nobody near", []Visit{visitAt(100, 200, 1), visitAt(305, 310, 20)}, "[0] [1]"},
		{"thread not known: none", []Visit{unknownThread}, ""},
		{"replicas work beside each other", []Visit{visitAt(100, 200, 1), replica}, "[0] [1]"},
		{"zero duration", []Visit{visitAt(100, 100, 0), visitAt(100, 200, 0)}, "[0] [1]"},
		{"one message carried both, though they do not overlap", []Visit{visitAt(100, 200, 1, 5), visitAt(200, 300, 1, 5, 6), visitAt(400, 500, 1, 7)}, "[0 1]exact [2]exact"},
		{"a chain of messages is not one message", []Visit{visitAt(100, 200, 1, 5), visitAt(200, 300, 1, 5, 6), visitAt(400, 500, 1, 6)}, "[0 1 2]"},
	} {
		requests := []RequestTimeline{}
		for _, v := range c.visits {
			requests = append(requests, RequestTimeline{Visits: []Visit{v}})
		}
		var got []string
		r := &Result{Requests: requests}
		f := newFirings(1)
		for i, q := range r.All() {
			f.request(i, q)
		}
		f.tell(r)
		for n, a := range r.AllActivations() {
			var m []int
			for _, x := range a.Members {
				m = append(m, x[0])
				if requests[x[0]].Visits[x[1]].Activation != n {
					t.Errorf("%s: visit %v does not name activation %d", c.name, x, n)
				}
			}
			mark := ""
			if a.Identity == IdentityExact {
				mark = "exact"
			}
			got = append(got, fmt.Sprint(m)+mark)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: got %s, want %s", c.name, s, c.want)
		}
	}
}
