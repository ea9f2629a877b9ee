package correlate

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

const noBase = `
	proc 10 api
	proc 20 encoder
	client 1
	unix 2 3
	recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
`

func TestAttachMidStream(t *testing.T) {
	for _, c := range []struct{ name, trace, want string }{
		{"base stated after the messages", noBase + `
			send 2 10 150-160 0+50 submit id=req-1
			recv 3 20 155-170 900+50 submit id=req-1
			base 2 3 -900`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>170 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact`},
		{"no base: two messages known by content align the rest", noBase + `
			send 2 10 150-160 0+50 a id=req-1
			send 2 10 250-260 50+70 b id=req-1
			send 2 10 350-360 120+5000 c id=req-1
			recv 3 20 155-170 900+50 a id=req-1
			recv 3 20 255-270 950+70 b id=req-1
			recv 3 20 355-370 1020+5000 c flags=trunc`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] a unix 150>170 exact
			hop api[10]>encoder[20] b unix 250>270 exact
			hop api[10]>encoder[20] c unix 350>370 paired (id not in the bytes captured at the receiver)
			visit encoder[20] in=api@170,api@270,api@370 ready=? start=? finish=? dep=? paired`},
		{"no base, one message: its content is the only candidate", noBase + `
			send 2 10 150-160 40+50 a id=req-1
			recv 3 20 155-170 900+50 a id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] a unix 150>170 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact`},
		{"no base, equal messages twice at each end: left apart", noBase + `
			send 2 10 150-160 0+50 a id=req-1
			send 2 10 250-260 50+50 a id=req-1
			recv 3 20 255-270 900+50 a id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] a unix 150>? paired (receive not seen)
			hop api[10]>encoder[20] a unix 250>? paired (receive not seen)
			visit encoder[20] in=api@?,api@? ready=? start=? finish=? dep=? paired`},
		{"queued at attach: received, never sent while watched", `
			proc 10 api
			proc 20 encoder
			client 1
			unix 2 3
			base 2 3 -50
			send 2 10 150-160 0+50 submit id=req-1
			recv 3 20 120-130 0+50 submit id=req-0
			recv 3 20 155-170 50+50 submit id=req-1
			send 1 10 300-310 0+99 200 x=1 status=200 id=chatcmpl-req-0 flags=first,last
			recv 1 10 400-410 0+99 POST_/v1/x x=2 id=req-1 flags=first,last`, `
			request chatcmpl-req-0 success entry=? exit=310 req-0(contains) in-flight
			hop api[10]>encoder[20] submit unix ?>130 paired (send not seen)
			visit encoder[20] in=api@130 ready=? start=? finish=? dep=? paired
			request req-1 unknown entry=410 exit=?
			hop api[10]>encoder[20] submit unix 150>170 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, c.trace)
			sameRows(t, rows(tl.Finish()), c.want)
		})
	}
}

func TestCancellation(t *testing.T) {
	tl := New(Options{StageOf: byComm})
	feed(t, tl, twoProcs+`
		recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
		send 2 10 150-160 0+50 submit id=req-1
		recv 3 20 155-170 0+50 submit id=req-1
		send 1 10 200-210 0+90 200 x=1 status=200 flags=first
		io recv 1 10 500-505 300+0
		send 2 10 510-520 50+20 abort id=req-1
		recv 3 20 515-530 50+20 abort id=req-1`)
	sameRows(t, rows(tl.Finish()), `
		request req-1 client-cancelled entry=110 exit=210
		hop api[10]>encoder[20] submit unix 150>170 exact
		hop api[10]>encoder[20] abort unix 510>530 exact
		visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact`)
}

func TestSegments(t *testing.T) {
	entry := `
		recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
		send 2 10 150-160 0+50 submit id=req-1
		recv 3 20 155-170 0+50 submit id=req-1
	`
	head := `
		request req-1 unknown entry=110 exit=?
		hop api[10]>encoder[20] submit unix 150>170 exact
	`
	more := `
		proc 30 decoder
		unix 4 5
		base 4 5 0
	`
	for _, c := range []struct{ name, trace, want string }{
		{"id in the name, reader polled before it was there", twoProcs + more + entry + `
			shm 30 open 200-201 req-1_encoder_2 ret=-2
			shm 30 open 210-211 req-1_encoder_2 ret=-2
			shm 20 open 220-222 shm_req-1_encoder_2_lockfile.lock ino=8 creat
			shm 20 open 223-225 req-1_encoder_2 ino=7 creat
			shm 20 trunc 226-227 req-1_encoder_2 ino=7 size=4096
			shm 20 map 228-230 req-1_encoder_2 ino=7 size=4096
			shm 20 unmap 240-241 req-1_encoder_2 ino=7
			shm 30 open 250-251 req-1_encoder_2 ino=7
			shm 30 map 252-253 req-1_encoder_2 ino=7 size=4096
			shm 30 unmap 260-261 req-1_encoder_2 ino=7
			shm 30 unlink 262-263 req-1_encoder_2`, head + `
			hop encoder[20]>decoder[30] segment#2 shm 223>260 exact
			visit encoder[20] in=api@170 ready=170..223 start=170..223 finish=170..223 dep=223 exact
			visit decoder[30] in=encoder#2@260 ready=? start=? finish=? dep=? exact`},
		{"named in a message: one hop, with its phases", twoProcs + more + entry + `
			shm 20 open 200-201 psm_ab ino=7 creat
			shm 20 trunc 202-203 psm_ab ino=7 size=4096
			shm 20 map 204-205 psm_ab ino=7 size=4096
			shm 20 unmap 210-211 psm_ab ino=7
			send 4 20 220-225 0+50 data_ready id=req-1 shm=psm_ab:4096
			recv 5 30 222-230 0+50 data_ready id=req-1 shm=psm_ab:4096
			shm 30 open 240-241 psm_ab ino=7
			shm 30 map 242-243 psm_ab ino=7 size=4096
			shm 30 unmap 250-251 psm_ab ino=7
			shm 30 unlink 252-253 psm_ab`, head + `
			hop encoder[20]>decoder[30] data_ready unix+shm 220>230 exact
			visit encoder[20] in=api@170 ready=170..200 start=170..200 finish=170..200 dep=220 exact
			visit decoder[30] in=encoder@230 ready=? start=? finish=? dep=? exact`},
		{"writer only: the reader is not made up", twoProcs + more + entry + `
			shm 20 open 223-225 req-1_encoder_2 ino=7 creat
			shm 20 trunc 226-227 req-1_encoder_2 ino=7 size=4096`, head + `
			hop encoder[20]>[0] segment#2 shm 223>? paired (reader not seen)
			visit encoder[20] in=api@170 ready=170..223 start=170..223 finish=170..223 dep=223 paired`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, c.trace)
			sameRows(t, rows(tl.Finish()), c.want)
		})
	}
}

// recording writes n requests through two processes, each with a shared-memory payload, wake-ups
// and a connection that stays; one every stepUS.
func recording(n, stepUS int) []string {
	out := strings.Split(twoProcs, "\n")
	for i := range n {
		a := 1000 + i*stepUS
		at := func(d int) string { return fmt.Sprintf("%d-%d", a+d, a+d+5) }
		out = append(out,
			fmt.Sprintf("recv 1 10 %s %d+300 POST_/v1/x x=%d id=load-%06d flags=first,last", at(0), i*300, i+1, i),
			fmt.Sprintf("send 2 10.11 %s %d+50 submit id=load-%06d shm=psm_%d:64", at(20), i*50, i, i),
			fmt.Sprintf("io send 2 10.11 %s %d+50", at(20), i*50),
			fmt.Sprintf("shm 10 open %s psm_%d ino=%d creat", at(10), i, i+100),
			fmt.Sprintf("shm 20 unlink %s psm_%d", at(50), i),
			fmt.Sprintf("recv 3 20.21 %s %d+50 submit id=load-%06d shm=psm_%d:64", at(30), i*50, i, i),
			fmt.Sprintf("off 20.20 %d-%d-%d by=20.21 call=232", a+10, a+36, a+40),
			fmt.Sprintf("off 20.22 %d-%d-%d by=20.20 call=202 arg=%d", a+5, a+60, a+64, 7),
			fmt.Sprintf("send 3 20.21 %s %d+40 complete id=load-%06d", at(900), i*40, i),
			fmt.Sprintf("recv 2 10.11 %s %d+40 complete id=load-%06d", at(910), i*40, i),
			fmt.Sprintf("send 1 10 %s %d+99 200 x=%d status=200 flags=first,last", at(950), i*99, i+1))
	}
	return out
}

func TestSameRecordsSameResult(t *testing.T) {
	text := strings.Join(recording(60, 2000), "\n")
	var first *Result
	for range 4 {
		tl := New(Options{StageOf: byComm})
		feed(t, tl, text)
		r := tl.Finish()
		if first == nil {
			first = r
		} else if !reflect.DeepEqual(first, r) {
			t.Fatal("two runs over the same records differ")
		}
	}
	if len(first.Requests) != 60 || first.Counts.MessagesPaired != 240 || first.Counts.MessagesOneEnded != 0 {
		t.Errorf("%d requests, counts %+v", len(first.Requests), first.Counts)
	}
}

// State must follow the requests in flight, not the length of the run.
func TestStateIsFlat(t *testing.T) {
	held := func(n int) int {
		tl := New(Options{StageOf: byComm})
		feed(t, tl, strings.Join(recording(n, 20000), "\n"))
		k := tl.queue.len() + len(tl.open) + len(tl.ids.active) + len(tl.ids.orphans) + len(tl.shm.all) + len(tl.shm.byInode)
		for _, e := range tl.endpoints {
			k += len(e.sent.waiting) + len(e.received.waiting) + len(e.sent.marks) + len(e.received.marks) + len(e.sent.byPos) + len(e.sent.byKey)
		}
		for _, l := range tl.procs.byTGID {
			for _, p := range l {
				k += len(p.arrivals)
				for _, th := range p.threads {
					k += len(th.off) + len(th.gave)
				}
			}
		}
		if got := len(tl.Finish().Requests); got != n {
			t.Errorf("%d of %d requests", got, n)
		}
		return k
	}
	a, b := held(1000), held(4000)
	t.Logf("state held after 1000 requests %d, after 4000 %d", a, b)
	if b > a+a/4 {
		t.Errorf("state grew from %d to %d", a, b)
	}
}

// With one record in a hundred lost, what is left must not become hops that never were.
func TestLossInventsNothing(t *testing.T) {
	whole := recording(1500, 2000)
	full := New(Options{StageOf: byComm})
	feed(t, full, strings.Join(whole, "\n"))
	type crossing struct{ id, from, to, typ string }
	count := func(r *Result) map[crossing]int {
		n := map[crossing]int{}
		for _, q := range r.Requests {
			for _, h := range q.Hops {
				n[crossing{q.ID, h.From, h.To, h.Type}]++
			}
		}
		return n
	}
	near := func(r *Result) (n, of int) {
		entry := r.Stages[slices.IndexFunc(r.Stages, func(s Stage) bool { return s.Entry })].Name
		for _, q := range r.Requests {
			for _, v := range q.Visits {
				if v.Stage == entry { // its inputs are the client's
					continue
				}
				of++
				if v.LossNear {
					n++
				}
			}
		}
		return n, of
	}
	sure := full.Finish()
	if n, of := near(sure); n != 0 || of == 0 {
		t.Errorf("nothing is lost, and near %d of %d visits something is", n, of)
	}
	truth := count(sure)
	rng := rand.New(rand.NewPCG(1, 2))
	var lines []string
	lost := 0
	for i, l := range whole {
		if i > 10 && rng.IntN(100) == 0 {
			lost++
			continue
		}
		lines = append(lines, l)
	}
	tl := New(Options{StageOf: byComm})
	tl.Loss(&run.Loss{FromNS: baseNS, ToNS: baseNS + 1e10, Reason: "debug-drop", What: "io", N: uint64(lost)})
	feed(t, tl, strings.Join(lines, "\n"))
	r := tl.Finish()
	if n, of := near(r); n != of {
		t.Errorf("the loss is near %d of %d visits", n, of)
	}
	got := count(r)
	for k, n := range got {
		if n > truth[k] {
			t.Errorf("invented: %v %d times, truth %d", k, n, truth[k])
		}
	}
	missed := 0
	for k := range truth {
		if got[k] == 0 {
			missed++
		}
	}
	t.Logf("%d records lost of %d, %d hops of %d seen at neither end", lost, len(whole), missed, len(truth))
	if missed > len(truth)/50 {
		t.Errorf("%d hops missed of %d", missed, len(truth))
	}
	if len(r.Loss) == 0 || r.Loss[0].N != uint64(lost) || r.Loss[0].Severity != "data-loss" || r.Loss[0].Meaning == "" {
		t.Errorf("ledger: %+v", r.Loss)
	}
}
