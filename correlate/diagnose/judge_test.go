package diagnose

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
)

const ms = int64(1e6)

// times gives the milliseconds of request i.
type times func(i int) int64

func flat(v int64) times { return func(int) int64 { return v } }

// tenth is slow in every tenth request, else fast.
func tenth(fast, slow int64) times {
	return func(i int) int64 {
		if i%10 == 3 {
			return slow
		}
		return fast
	}
}

// turn changes from the first to the second half of 200 requests.
func turn(first, second int64) times {
	return func(i int) int64 {
		if i < 100 {
			return first
		}
		return second
	}
}

// step is a stage and the hop that brings its input; nil is 0 ms. A join has the named other branch,
// which holds its request for that long since the fan-out.
type step struct {
	stage                              string
	sender, crossing, payload, q, work times
	width                              int64 // of [lo, hi] of its finish, ms
	noStart                            bool
	replicas                           uint32
}

func (s *step) at(f times, i int) int64 {
	if f == nil {
		return 0
	}
	return f(i) * ms
}

// line makes n requests, `gap` ms apart, through steps one after another. The first is the entry.
func line(n int, gap int64, lag times, steps ...step) *correlate.Result {
	r := &correlate.Result{}
	for i := range n {
		planned := int64(1+i) * gap * ms
		sent := planned
		if lag != nil {
			sent += lag(i) * ms
		}
		q := correlate.RequestTimeline{Client: &run.Request{PlannedNS: &planned, SentNS: ptr(sent)}, Entry: seen(sent)}
		now := sent
		for k := range steps {
			now = add(&q, steps, k, i, now)
		}
		q.Exit = seen(now)
		q.Client.EndNS = ptr(now)
		r.Requests = append(r.Requests, q)
	}
	return r
}

// add appends the visit of a step whose sender finished at now, and gives its finish.
func add(q *correlate.RequestTimeline, steps []step, k, i int, now int64) int64 {
	s := &steps[k]
	v := correlate.Visit{Stage: s.stage, TGID: tgid(k, i, s), Activation: -1}
	in := correlate.Input{From: "client", At: seen(now), InHand: seen(now), Hop: -1}
	if k > 0 {
		send := now + s.at(s.sender, i)
		recv := send + s.at(s.crossing, i)
		hand := recv + s.at(s.payload, i)
		from := &q.Visits[k-1]
		from.Outputs, from.Departure = []int{len(q.Hops)}, seen(send)
		in = correlate.Input{From: from.Stage, At: seen(recv), InHand: seen(hand), Hop: len(q.Hops)}
		q.Hops = append(q.Hops, correlate.Hop{From: from.Stage, To: s.stage, FromTGID: from.TGID, ToTGID: v.TGID, Type: "data", Send: seen(send), Recv: seen(recv)})
		now = hand
	}
	v.Inputs, v.Arrival, v.Ready = []correlate.Input{in}, in.At, seen(now)
	v.Start = seen(now + s.at(s.q, i))
	now += s.at(s.q, i) + s.at(s.work, i)
	if s.noStart {
		v.Start = unknown()
	}
	v.Finish, v.Departure = bounded(now-s.width*ms/2, now, now+s.width*ms/2), seen(now)
	q.Visits = append(q.Visits, v)
	return now
}

func tgid(k, i int, s *step) uint32 {
	id := uint32(100 * (k + 1))
	if s.replicas > 1 {
		id += uint32(i) % s.replicas
	}
	return id
}

func TestJudge(t *testing.T) {
	even := func(change func(s []step)) []step {
		s := []step{{stage: "entry", work: flat(1)}, {stage: "a", work: flat(40)}, {stage: "b", work: flat(40)}, {stage: "c", work: flat(40)}, {stage: "d", work: flat(40)}}
		if change != nil {
			change(s)
		}
		return s
	}
	for _, c := range []struct {
		name               string
		n                  int
		lag                times
		change             func(s []step)
		kind, where, cause string
		says               string
	}{
		{"nothing slow", 200, nil, nil, KindInconclusive, "", "", "nothing stands out"},
		{"queue behind a longer service", 200, nil, func(s []step) {
			s[1].work, s[1].replicas = flat(120), 4
			s[2].q = flat(300)
		}, KindStage, "b", CauseQueue, "300.0 ms waiting and 40.0 ms of service"},
		{"replicas with a queue", 200, nil, func(s []step) { s[3].q, s[3].replicas = flat(300), 2 }, KindStage, "c", CauseQueue, "takes 74 % of the time of 200 requests"},
		{"long service", 200, nil, func(s []step) { s[3].work = flat(200) }, KindStage, "c", CauseService, "200.0 ms of service"},
		{"start unknown", 200, nil, func(s []step) { s[3].work, s[3].noStart = flat(300), true }, KindStage, "c", CauseUndivided, "300.0 ms a request that cannot be divided"},
		{"crossing", 200, nil, func(s []step) { s[3].crossing = flat(40) }, KindHop, "b:c", CauseCrossing, "40.0 ms from send to receive"},
		{"late send", 200, nil, func(s []step) { s[3].sender, s[3].payload = flat(270), flat(40) }, KindHop, "b:c", CauseSender, "270.0 ms a request between the finished output and its send"},
		{"payload", 200, nil, func(s []step) { s[3].payload = flat(90) }, KindHop, "b:c", CausePayload, "90.0 ms until the payload is read"},
		{"all hops", 200, nil, func(s []step) {
			for i := range s {
				s[i].crossing = flat(40)
			}
		}, KindInconclusive, "", "", "nothing stands out"},
		{"two close", 200, nil, func(s []step) { s[1].q, s[3].q = flat(200), flat(260) }, KindInconclusive, "", "", "two are close: stage c"},
		{"moves", 200, nil, func(s []step) { s[1].q, s[3].q = turn(150, 0), turn(0, 500) }, KindInconclusive, "", "", "not stable over time: stage a in the earlier half"},
		{"slow ones", 200, nil, func(s []step) { s[2].q = tenth(0, 190) }, KindStage, "b", CauseQueue, "of what the 20 slowest requests"},
		{"slow ones at two places", 200, nil, func(s []step) { s[2].q, s[3].work = tenth(0, 400), tenth(40, 390) }, KindInconclusive, "", "", ""},
		{"a few wild requests", 200, nil, func(s []step) {
			s[2].work = func(i int) int64 {
				if i == 50 || i == 51 {
					return 40000
				}
				return 40
			}
		}, KindInconclusive, "", "", "not stable"},
		{"late client", 200, flat(400), nil, KindClient, "sending late", CauseLag, "the engine is not to blame"},
		{"late client in the slow ones", 200, tenth(0, 400), nil, KindClient, "sending late", CauseLag, "slowest"},
		{"wide borders", 200, nil, func(s []step) { s[3].q, s[3].width = flat(200), 600 }, KindInconclusive, "", "", "not sure enough: stage c"},
		{"few requests", 19, nil, func(s []step) { s[3].q = flat(300) }, KindInconclusive, "", "", "only 19 complete requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Judge(line(c.n, 1000, c.lag, even(c.change)...), nil)
			if v.Kind != c.kind || v.Where != c.where || v.Cause != c.cause || !strings.Contains(v.Reason, c.says) {
				t.Fatalf("got %s %q (%s): %s\n%+v", v.Kind, v.Where, v.Cause, v.Reason, v.Numbers)
			}
			if v.Advice == "" || v.Kind == KindStage && len(v.Evidence) == 0 {
				t.Errorf("no advice or evidence: %+v", v)
			}
		})
	}
}

// The parts of a request on its critical path add up to its time, also where the timeline has holes.
func TestCriticalPathAddsUp(t *testing.T) {
	r := line(1, 1000, flat(3), step{stage: "entry", work: flat(1)}, step{stage: "a", sender: flat(5), crossing: flat(7), payload: flat(11), q: flat(13), work: flat(17)},
		step{stage: "b", crossing: flat(19), work: flat(23)})
	q := &r.Requests[0]
	*q.Client.EndNS += 29 * ms
	for _, c := range []struct {
		name   string
		break_ func()
		want   string
	}{
		{"whole", func() {}, "client reading the reply 29, stage b 23, hop a:b 19, stage a 17, stage a 13, hop entry:a 11, hop entry:a 7, hop entry:a 5, stage entry 1, client sending late 3"},
		{"receive unknown", func() { q.Hops[1].Recv = unknown() }, "client reading the reply 29, stage b 23, hop a:b 19, stage a 17, stage a 13, hop entry:a 11, hop entry:a 7, hop entry:a 5, stage entry 1, client sending late 3"},
		{"sender unknown", func() { q.Visits[0].Outputs, q.Visits[0].Start = nil, unknown() }, "client reading the reply 29, stage b 23, hop a:b 19, stage a 17, stage a 13, hop entry:a 11, hop entry:a 7, unexplained 6, client sending late 3"},
		{"input unknown", func() { q.Visits[1].Inputs = nil }, "client reading the reply 29, stage b 23, hop a:b 19, stage a 17, stage a 13, unexplained 24, client sending late 3"},
	} {
		c.break_()
		path, ok := criticalPath(q)
		var got []string
		var sum int64
		for _, s := range path {
			got = append(got, s.label()+" "+strconv.FormatInt((s.to-s.from)/ms, 10))
			sum += s.to - s.from
		}
		if !ok || strings.Join(got, ", ") != c.want || sum != 128*ms {
			t.Errorf("%s: %v, %d ms\n got %s\nwant %s", c.name, ok, sum/ms, strings.Join(got, ", "), c.want)
		}
	}
	q.Exit = unknown()
	if _, ok := criticalPath(q); ok {
		t.Error("a request without an exit has no path")
	}
}

// A join is charged to the branch that came last, though the other is slow too.
func TestJudgeFollowsTheLastInput(t *testing.T) {
	r := &correlate.Result{}
	for i := range 50 {
		at := int64(1+i) * 1000 * ms
		visit := func(stage string, id uint32, from string, hop int, ready, finish int64, out ...int) correlate.Visit {
			in := correlate.Input{From: from, At: seen(at + ready*ms), InHand: seen(at + ready*ms), Hop: hop}
			return correlate.Visit{Stage: stage, TGID: id, Inputs: []correlate.Input{in}, Ready: seen(at + ready*ms), Start: seen(at + ready*ms),
				Finish: seen(at + finish*ms), Departure: seen(at + finish*ms), Outputs: out}
		}
		hop := func(from, to string, ns int64) correlate.Hop {
			return correlate.Hop{From: from, To: to, Send: seen(at + ns*ms), Recv: seen(at + ns*ms)}
		}
		join := visit("join", 4, "x", 2, 130, 150)
		join.Inputs = append(join.Inputs, correlate.Input{From: "y", At: seen(at + 200*ms), InHand: seen(at + 200*ms), Hop: 3})
		join.Ready, join.Start, join.Finish, join.Departure = seen(at+200*ms), seen(at+200*ms), seen(at+210*ms), seen(at+210*ms)
		r.Requests = append(r.Requests, correlate.RequestTimeline{Entry: seen(at), Exit: seen(at + 210*ms),
			Visits: []correlate.Visit{visit("entry", 1, "client", -1, 0, 1, 0, 1), visit("x", 2, "entry", 0, 1, 130, 2), visit("y", 3, "entry", 1, 1, 200, 3), join},
			Hops:   []correlate.Hop{hop("entry", "x", 1), hop("entry", "y", 1), hop("x", "join", 130), hop("y", "join", 200)}})
	}
	v := Judge(r, nil)
	if v.Kind != KindStage || v.Where != "y" || len(v.Numbers.Suspects) != 3 {
		t.Fatalf("%s %s: %s\n%+v", v.Kind, v.Where, v.Reason, v.Numbers.Suspects)
	}
	for _, s := range v.Numbers.Suspects {
		if s.Where == "x" {
			t.Errorf("x is on no critical path: %+v", s)
		}
	}
}

// stalled makes 200 requests. Of the first `until`, those sent to stage b in the first `pause` of every
// 1500 ms are read at the end of that time; busy keeps b at work meanwhile, other brings it messages
// meanwhile.
func stalled(until int, pause int64, busy, other bool) *correlate.Result {
	steps := []step{{stage: "entry", work: flat(1)}, {stage: "a", work: flat(40)}, {stage: "b", work: flat(40)}, {stage: "c", work: flat(40)}}
	send := func(i int) int64 { return int64(1+i)*70 + 41 }
	steps[2].crossing = func(i int) int64 {
		if in := send(i) % 1500; i < until && in < pause {
			return pause - in
		}
		return 0
	}
	r := line(200, 70, nil, steps...)
	for i := range r.Requests {
		q := &r.Requests[i]
		wait := q.Hops[1]
		if *wait.Recv.NS-*wait.Send.NS < 5*ms {
			continue
		}
		if busy {
			q.Visits = append(q.Visits, correlate.Visit{Stage: "b", TGID: wait.ToTGID, Start: wait.Send, Finish: wait.Recv})
		}
		for at := *wait.Send.NS; other && at < *wait.Recv.NS; at += 5 * ms {
			q.Hops = append(q.Hops, correlate.Hop{From: "z", To: "b", ToTGID: wait.ToTGID, Send: seen(at), Recv: seen(at)})
		}
	}
	return r
}

func TestJudgeStalledReader(t *testing.T) {
	together := stalled(200, 300, false, false) // and what is sent to c waits at the same times
	for i := range together.Requests {
		q := &together.Requests[i]
		if h := q.Hops[1]; *h.Recv.NS-*h.Send.NS > 5*ms {
			q.Hops = append(q.Hops, correlate.Hop{From: "z", To: "c", ToTGID: 400, Send: h.Send, Recv: h.Recv})
			for at := *h.Send.NS - 1000*ms; at < *h.Send.NS; at += 100 * ms { // so that such a wait is not the usual one
				q.Hops = append(q.Hops, correlate.Hop{From: "z", To: "c", ToTGID: 400, Send: seen(at), Recv: seen(at)})
			}
		}
	}
	elsewhere := stalled(200, 120, false, false) // a hop to elsewhere takes more
	for i := range elsewhere.Requests {
		q := &elsewhere.Requests[i]
		d := 30 * ms
		*q.Entry.NS, *q.Client.SentNS, *q.Client.PlannedNS = *q.Entry.NS-d, *q.Client.SentNS-d, *q.Client.PlannedNS-d
		v := &q.Visits[0]
		v.Arrival, v.Ready, v.Start, v.Finish = seen(*q.Entry.NS), seen(*q.Entry.NS), seen(*q.Entry.NS), seen(*q.Entry.NS+ms)
	}
	for _, c := range []struct {
		name               string
		r                  *correlate.Result
		kind, where, cause string
	}{
		{"stalled", stalled(200, 300, false, false), KindStage, "b", CauseReader},
		{"in one half only", stalled(100, 300, false, false), KindInconclusive, "", ""},
		{"with another process", together, KindHop, "a:b", CauseCrossing},
		{"a slower hop elsewhere", elsewhere, KindHop, "entry:a", CauseSender},
		{"it was at work", stalled(200, 300, true, false), KindHop, "a:b", CauseCrossing},
		{"it read others", stalled(200, 300, false, true), KindHop, "a:b", CauseCrossing},
		{"every message waits", line(200, 70, nil, step{stage: "entry", work: flat(40)}, step{stage: "a", work: flat(40)}, step{stage: "b", crossing: flat(25), work: flat(40)},
			step{stage: "c", work: flat(40)}), KindHop, "a:b", CauseCrossing},
	} {
		v := Judge(c.r, nil)
		if v.Kind != c.kind || v.Where != c.where || v.Cause != c.cause {
			t.Errorf("%s: got %s %q (%s): %s\n%+v", c.name, v.Kind, v.Where, v.Cause, v.Reason, v.Numbers)
		}
	}
}

func TestInFlightRequestsAreNotJudged(t *testing.T) {
	r := line(40, 1000, nil, step{stage: "entry", q: flat(60), work: flat(20)})
	for i := range 25 {
		r.Requests[i].InFlight = true
	}
	v := Judge(r, nil)
	if v.Kind != KindInconclusive || v.Numbers.Requests != 15 || v.Numbers.LeftOut != 25 {
		t.Fatalf("%+v", v)
	}
}

func TestUnion(t *testing.T) {
	for _, c := range []struct {
		iv   []interval
		want int64
	}{
		{nil, 0},
		{[]interval{{1000, 1000}}, 0},
		{[]interval{{5000, 9000}, {1000, 6000}}, 8000},
		{[]interval{{0, 10000}, {2000, 3000}}, 10000},
		{[]interval{{0, 1000}, {4000, 5000}}, 2000},
		{[]interval{{3000, 1000}, {1000, 2000}}, 1000}, // a negative one counts nothing
	} {
		if got := length(union(c.iv)); got != c.want {
			t.Errorf("union: got %v, want %v", got, c.want)
		}
	}
	if got := overlap([]interval{{0, 10}, {20, 30}, {40, 50}}, []interval{{5, 25}, {45, 60}}); got != 15 {
		t.Errorf("overlap: got %d, want 15", got)
	}
}
