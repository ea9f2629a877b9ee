package correlate

import (
	"fmt"
	"regexp"
	"testing"
)

// received is round i of those from which roles are learned, up to where the loop is woken for it: its
// request comes in at a, and I/O thread 21 has it at a+24 and wakes loop 20, which runs from run on.
func received(i, a, run int) string {
	return fmt.Sprintf(`
			recv 1 10 %d-%d %d+300 POST_/v1/x x=%d id=warm-000%d flags=first,last
			send 2 10.11 %d-%d %d+50 submit id=warm-000%d
			off 20.21 %d-%d-%d by=10.11 call=232
			recv 3 20.21 %d-%d %d+50 submit id=warm-000%d
			off 20.20 %d-%d-%d by=20.21 call=7`,
		a, a+5, i*300, i+1, i, a+10, a+15, i*50, i, a-900, a+16, a+20, a+18, a+24, i*50, i, a-500, a+26, run)
}

// One process: I/O thread 21, loop thread 20, compute thread 22. Calls: 232 epoll_wait, 7 poll,
// 202 futex. Every trace is preceded by three rounds from which the roles are learned.
func threadsTrace(text string) string {
	out := twoProcs
	for i := range 3 {
		a := 1000 + i*1000
		out += received(i, a, a+30) + fmt.Sprintf(`
			off 20.22 %d-%d-%d by=20.20 call=202 arg=%d
			send 3 20.21 %d-%d %d+40 complete id=warm-000%d
			recv 2 10.11 %d-%d %d+40 complete id=warm-000%d
			send 1 10 %d-%d %d+99 200 x=%d status=200 flags=first,last`,
			a-400, a+34, a+38, 1000+i, a+300, a+305, i*40, i, a+302, a+308, i*40, i, a+320, a+325, i*99, i+1)
	}
	return out + text
}

func TestBoundaries(t *testing.T) {
	for _, c := range []struct{ name, trace, want string }{
		{"idle loop and compute: woken one by the other, result signalled", `
			recv 1 10 9000-9005 900+300 POST_/v1/x x=4 id=req-1 flags=first,last
			send 2 10.11 9010-9015 150+50 submit id=req-1
			off 20.21 5000-9016-9020 by=10.11 call=232
			recv 3 20.21 9018-9024 150+50 submit id=req-1
			off 20.20 5100-9026-9030 by=20.21 call=7
			off 20.22 5200-9035-9040 by=20.20 call=202 arg=77
			off 20.20 9045-9500-9510 by=20.22 call=7
			off 20.21 9050-9515-9520 by=20.20 call=232
			off 20.22 9505-9900-9905 by=20.20 call=202 arg=77
			send 3 20.21 9525-9530 120+40 complete id=req-1
			recv 2 10.11 9526-9540 120+40 complete id=req-1`,
			`ready=9030..9035 start=9040..9090 finish=9475..9500`},
		{"compute busy: start after the result before it", `
			recv 1 10 9000-9005 900+300 POST_/v1/x x=4 id=req-1 flags=first,last
			send 2 10.11 9010-9015 150+50 submit id=req-1
			off 20.21 5000-9016-9020 by=10.11 call=232
			recv 3 20.21 9018-9024 150+50 submit id=req-1
			off 20.20 5100-9026-9030 by=20.21 call=7
			off 20.20 9045-9200-9210 by=20.22 call=7
			off 20.20 9220-9500-9510 by=20.22 call=7
			off 20.21 9050-9515-9520 by=20.20 call=232
			send 3 20.21 9525-9530 120+40 complete id=req-1
			recv 2 10.11 9526-9540 120+40 complete id=req-1`,
			`ready=9030..9045 start=9200..9525 finish=9300..9525`},
		{"two inputs in one read: the wake-up is for the first", `
			recv 1 10 9000-9005 900+300 POST_/v1/x x=4 id=req-0 flags=first,last
			recv 1 10 9006-9008 1200+300 POST_/v1/x x=5 id=req-1 flags=first,last
			send 2 10.11 9010-9015 150+50 submit id=req-0
			send 2 10.11 9010-9015 200+50 submit id=req-1
			off 20.21 5000-9016-9020 by=10.11 call=232
			recv 3 20.21 9018-9024 150+50 submit id=req-0
			recv 3 20.21 9018-9024 200+50 submit id=req-1
			off 20.20 5100-9026-9030 by=20.21 call=7
			off 20.22 5200-9035-9040 by=20.20 call=202 arg=77
			off 20.20 9045-9500-9510 by=20.22 call=7
			off 20.21 9050-9515-9520 by=20.20 call=232
			send 3 20.21 9525-9530 120+40 complete id=req-1
			recv 2 10.11 9526-9540 120+40 complete id=req-1`,
			`ready=9030..9045 start=9030..9525 finish=9300..9525`},
		{"payload in shared memory: ready after the copy", `
			recv 1 10 9000-9005 900+300 POST_/v1/x x=4 id=req-1 flags=first,last
			send 2 10.11 9010-9015 150+50 submit id=req-1 shm=psm_1:64
			off 20.21 5000-9016-9020 by=10.11 call=232
			recv 3 20.21 9018-9024 150+50 submit id=req-1 shm=psm_1:64
			off 20.20 5100-9026-9030 by=20.21 call=7
			shm 20 open 9031-9033 psm_1 ino=5
			shm 20 map 9034-9036 psm_1 ino=5 size=64
			shm 20 unmap 9080-9082 psm_1 ino=5
			shm 20 unlink 9083-9085 psm_1
			off 20.22 5200-9090-9095 by=20.20 call=202 arg=77
			off 20.20 9100-9500-9510 by=20.22 call=7
			off 20.21 9050-9515-9520 by=20.20 call=232
			send 3 20.21 9525-9530 120+40 complete id=req-1
			recv 2 10.11 9526-9540 120+40 complete id=req-1`,
			`ready=9036..9090 start=9095..9495 finish=9300..9500`},
		{"records lost meanwhile: only arrival and departure bound it", `
			recv 1 10 9000-9005 900+300 POST_/v1/x x=4 id=req-1 flags=first,last
			send 2 10.11 9010-9015 150+50 submit id=req-1
			recv 3 20.21 9018-9024 150+50 submit id=req-1
			loss 9100-9110 ring-full offcpu 3
			send 3 20.21 9525-9530 120+40 complete id=req-1
			recv 2 10.11 9526-9540 120+40 complete id=req-1`,
			`ready=9024..9525 start=9024..9525 finish=9024..9525`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, threadsTrace(c.trace))
			got := boundaries(t, tl, "req-1", "encoder")
			sameRows(t, estimates.ReplaceAllString(got, ""), c.want)
		})
	}
}

var estimates = regexp.MustCompile(`@\d+`)

// boundaries renders the boundaries of the only visit of a request at a stage: lo..hi@estimate.
func boundaries(t *testing.T, tl *Timeline, id, stage string) string {
	t.Helper()
	for _, q := range tl.Finish().Requests {
		if q.ID != id {
			continue
		}
		for _, v := range q.Visits {
			if v.Stage != stage {
				continue
			}
			out := ""
			for i, p := range []Point{v.Ready, v.Start, v.Finish} {
				if *p.NS < *p.LoNS || *p.NS > *p.HiNS {
					t.Errorf("estimate outside its interval: %s", pt(p))
				}
				out += fmt.Sprintf(" %s=%s@%d", [...]string{"ready", "start", "finish"}[i], pt(p), (*p.NS-baseNS)/1000)
			}
			return out[1:]
		}
	}
	t.Fatalf("no visit of %s at %s", id, stage)
	return ""
}
