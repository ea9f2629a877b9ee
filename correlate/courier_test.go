package correlate

import (
	"fmt"
	"testing"
)

// courierTrace is a process whose compute thread 22 hands results to a thread 23 that signals them
// to the loop 20 over a socketpair (11 written, 12 read); I/O thread 21. Four rounds to learn the
// roles from. Futexes: compute waits for work at 2000, the courier at 3000, a lock at 40 and 44.
func courierTrace(text string) string {
	out := twoProcs + `
		unix 11 12`
	for i := range 4 {
		a := 1000 + i*1000
		out += received(i, a, a+28) + fmt.Sprintf(`
			off 20.20 %d-%d-%d by=20.22 call=202 arg=44
			off 20.22 %d-%d-%d by=20.20 call=202 arg=2000`,
			a+29, a+30, a+31, a-400, a+34, a+38)
		out += fmt.Sprintf(`
			off 20.23 %d-%d-%d by=20.22 call=202 arg=3000
			io send 11 20.23 %d-%d %d+1
			off 20.20 %d-%d-%d by=20.23 call=7
			io recv 12 20.20 %d-%d %d+1
			off 20.21 %d-%d-%d by=20.20 call=232
			send 3 20.21 %d-%d %d+40 complete id=warm-000%d
			recv 2 10.11 %d-%d %d+40 complete id=warm-000%d
			send 1 10 %d-%d %d+99 200 x=%d status=200 flags=first,last`,
			a-300, a+200, a+210, a+220, a+222, i, a+50, a+221, a+225, a+226, a+227, i, a+40, a+230, a+232,
			a+300, a+305, i*40, i, a+302, a+308, i*40, i, a+320, a+325, i*99, i+1)
	}
	return out + text
}

// twoRequests come in one after the other and are read from the socket one after the other.
const twoRequests = `
	recv 1 10 9000-9005 1200+300 POST_/v1/x x=5 id=req-0 flags=first,last
	recv 1 10 9006-9007 1500+300 POST_/v1/x x=6 id=req-1 flags=first,last
	send 2 10.11 9010-9015 200+50 submit id=req-0
	off 20.21 5000-9016-9020 by=10.11 call=232
	recv 3 20.21 9018-9024 200+50 submit id=req-0
	off 20.20 5100-9026-9030 by=20.21 call=7
	off 20.22 5200-9035-9040 by=20.20 call=202 arg=2000
	off 20.21 9025-9100-9101 by=10.11 call=232
	send 2 10.11 9095-9099 250+50 submit id=req-1
	recv 3 20.21 9102-9104 250+50 submit id=req-1
	off 20.20 9045-9106-9108 by=20.21 call=7`

func TestCourier(t *testing.T) {
	for _, c := range []struct{ name, trace, want string }{
		{"its sleep ends with the hand-over; waits for a lock are none", `
			recv 1 10 9000-9005 1200+300 POST_/v1/x x=5 id=req-1 flags=first,last
			send 2 10.11 9010-9015 200+50 submit id=req-1
			off 20.21 5000-9016-9020 by=10.11 call=232
			recv 3 20.21 9018-9024 200+50 submit id=req-1
			off 20.20 5100-9026-9030 by=20.21 call=7
			off 20.22 5200-9035-9040 by=20.20 call=202 arg=2000
			off 20.22 9050-9400-9410 by=10.11 call=35
			off 20.22 9411-9420-9421 by=20.20 call=202 arg=40
			off 20.23 5300-9430-9450 by=20.22 call=202 arg=3000
			off 20.22 9440-9990-9991 by=20.20 call=202 arg=2000
			io send 11 20.23 9470-9472 4+1
			off 20.20 9045-9471-9480 by=20.23 call=7
			io recv 12 20.20 9481-9482 4+1
			off 20.21 9050-9515-9520 by=20.20 call=232
			send 3 20.21 9525-9530 160+40 complete id=req-1
			recv 2 10.11 9526-9540 160+40 complete id=req-1`,
			`ready=9030..9035@9035 start=9040..9050@9040 finish=9400..9430@9430`},
		{"handed over before it waited: by its signal at the latest", `
			recv 1 10 9000-9005 1200+300 POST_/v1/x x=5 id=req-1 flags=first,last
			send 2 10.11 9010-9015 200+50 submit id=req-1
			off 20.21 5000-9016-9020 by=10.11 call=232
			recv 3 20.21 9018-9024 200+50 submit id=req-1
			off 20.20 5100-9026-9030 by=20.21 call=7
			off 20.22 5200-9035-9040 by=20.20 call=202 arg=2000
			io send 11 20.23 9470-9472 4+1
			off 20.20 9045-9471-9480 by=20.23 call=7
			io recv 12 20.20 9481-9482 4+1
			off 20.21 9050-9515-9520 by=20.20 call=232
			send 3 20.21 9525-9530 160+40 complete id=req-1
			recv 2 10.11 9526-9540 160+40 complete id=req-1`,
			`ready=9030..9035@9035 start=9040..9090@9040 finish=9040..9470@9470`},
		{"fetched with the one before it: between that one and its own send, where compute went idle", twoRequests + `
			off 20.23 5300-9430-9450 by=20.22 call=202 arg=3000
			io send 11 20.23 9470-9472 4+1
			off 20.20 9140-9471-9480 by=20.23 call=7
			io recv 12 20.20 9481-9482 4+1
			off 20.22 9800-9990-9991 by=20.20 call=202 arg=2000
			off 20.21 9130-9515-9520 by=20.20 call=232
			send 3 20.21 9525-9530 160+40 complete id=req-0
			recv 2 10.11 9526-9540 160+40 complete id=req-0
			send 3 20.21 9825-9830 200+40 complete id=req-1
			recv 2 10.11 9826-9840 200+40 complete id=req-1`,
			`ready=9108..9140@9112 start=9108..9800@9430 finish=9108..9800@9800`},
		{"two inputs and one wake-up: it is likely, but only likely, for the second, too", `
			recv 1 10 9000-9005 1200+300 POST_/v1/x x=5 id=req-0 flags=first,last
			recv 1 10 9006-9007 1500+300 POST_/v1/x x=6 id=req-1 flags=first,last
			send 2 10.11 9010-9015 200+50 submit id=req-0
			send 2 10.11 9010-9015 250+50 submit id=req-1
			off 20.21 5000-9016-9020 by=10.11 call=232
			recv 3 20.21 9018-9024 200+50 submit id=req-0
			recv 3 20.21 9018-9024 250+50 submit id=req-1
			off 20.20 5100-9026-9030 by=20.21 call=7
			off 20.22 5200-9035-9040 by=20.20 call=202 arg=2000
			off 20.23 5300-9430-9450 by=20.22 call=202 arg=3000
			io send 11 20.23 9470-9472 4+1
			off 20.20 9045-9471-9480 by=20.23 call=7
			io recv 12 20.20 9481-9482 4+1
			off 20.21 9050-9515-9520 by=20.20 call=232
			send 3 20.21 9525-9530 160+40 complete id=req-1
			recv 2 10.11 9526-9540 160+40 complete id=req-1`,
			`ready=9030..9045@9035 start=9030..9430@9040 finish=9035..9430@9430`},
		{"compute idle only later than the input came: the wake-up may be for another", twoRequests + `
			off 20.23 5300-9110-9112 by=20.22 call=202 arg=3000
			off 20.22 9115-9130-9132 by=20.20 call=202 arg=2000
			io send 11 20.23 9150-9151 4+1
			off 20.20 9200-9202-9205 by=20.23 call=7
			off 20.23 9160-9600-9610 by=20.22 call=202 arg=3000
			io send 11 20.23 9620-9621 5+1
			off 20.20 9300-9621-9625 by=20.23 call=7
			off 20.21 9130-9630-9632 by=20.20 call=232
			send 3 20.21 9640-9642 160+40 complete id=req-1
			recv 2 10.11 9641-9644 160+40 complete id=req-1`,
			`ready=9108..9200@9112 start=9108..9600@9132 finish=9130..9600@9600`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, courierTrace(c.trace))
			sameRows(t, boundaries(t, tl, "req-1", "encoder"), c.want)
		})
	}
}

// Compute is busy: only what the loop does with the input shows when it is ready. Thread 21 signals
// to the loop over 13 and 14, and the loop to it over 15 and 16.
func TestReadyByTheLoopsCalls(t *testing.T) {
	const began = `
		unix 13 14
		unix 15 16
		recv 1 10 9000-9005 1200+300 POST_/v1/x x=5 id=req-1 flags=first,last`
	const sent = `
		off 20.21 9290-9515-9520 by=20.20 call=232
		send 3 20.21 9525-9530 160+40 complete id=req-1
		recv 2 10.11 9526-9540 160+40 complete id=req-1`
	for _, c := range []struct{ name, trace, want string }{
		{"it reads the signal late: about then", began + `
			send 2 10.11 9010-9015 200+50 submit id=req-1
			off 20.21 5000-9016-9020 by=10.11 call=232
			recv 3 20.21 9018-9024 200+50 submit id=req-1
			io send 13 20.21 9025-9026 0+1
			io recv 14 20.20 9160-9161 0+1
			off 20.20 9300-9500-9510 by=20.23 call=7` + sent,
			`ready=9024..9300@9181 start=9024..9525@9181 finish=9024..9525@9525`},
		{"it answers for the segment that it has read: then", began + `
			send 2 10.11 9010-9015 200+50 submit id=req-1 shm=psm_1:64
			off 20.21 5000-9016-9020 by=10.11 call=232
			recv 3 20.21 9018-9024 200+50 submit id=req-1 shm=psm_1:64
			shm 20 open 9041-9043 psm_1 ino=5
			shm 20 map 9044-9046 psm_1 ino=5 size=64
			shm 20 unmap 9080-9082 psm_1 ino=5
			shm 20 unlink 9083-9085 psm_1
			io send 15 20.20 9150-9152 0+1
			io recv 16 20.21 9160-9161 0+1
			off 20.20 9300-9500-9510 by=20.23 call=7` + sent,
			`ready=9046..9300@9172 start=9046..9525@9172 finish=9046..9525@9525`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, courierTrace(c.trace))
			sameRows(t, boundaries(t, tl, "req-1", "encoder"), c.want)
		})
	}
}

func TestRolesWithCourier(t *testing.T) {
	tl := New(Options{StageOf: byComm})
	feed(t, tl, courierTrace(""))
	tl.Finish()
	sameRows(t, fmt.Sprintf("%+v", tl.procs.at(20, baseNS+9e6).decideRoles()), `{io:21 loop:20 compute:[22] courier:23 unheard:false}`)
}

// The loop reads one channel itself and is told of the others by thread 21.
func TestRolesOfTwoReceivers(t *testing.T) {
	text := twoProcs + `
		unix 4 5
		unix 11 12
		base 4 5 0`
	for i := range 6 {
		a := 1000 + i*1000
		if i%3 > 0 { // twice as often on the loop's own channel
			text += fmt.Sprintf(`
			send 4 10.11 %d-%d %d+50 submit id=own-000%d
			recv 5 20.20 %d-%d %d+50 submit id=own-000%d`, a-200, a-195, i*50, i, a-190, a-185, i*50, i)
		}
		text += fmt.Sprintf(`
			send 2 10.11 %d-%d %d+50 submit id=other-000%d
			recv 3 20.21 %d-%d %d+50 submit id=other-000%d
			io send 11 20.21 %d-%d %d+1
			io recv 12 20.20 %d-%d %d+1
			io send 12 20.20 %d-%d %d+1
			io recv 11 20.21 %d-%d %d+1
			off 20.22 %d-%d-%d by=20.20 call=202 arg=2000
			off 20.20 %d-%d-%d by=20.22 call=7`,
			a, a+5, i*50, i, a+2, a+8, i*50, i, a+10, a+11, i, a+12, a+13, i, a+300, a+301, i, a+302, a+303, i,
			a-100, a+20, a+25, a+30, a+100, a+105)
	}
	text += `
		send 4 10.11 9000-9005 500+50 submit id=own-0008
		recv 5 20.20 9006-9007 500+50 submit id=own-0008
		send 4 10.11 9010-9015 550+50 submit id=own-0009
		recv 5 20.20 9016-9017 550+50 submit id=own-0009
		send 4 10.11 9020-9025 600+50 submit id=own-0010
		recv 5 20.20 9026-9027 600+50 submit id=own-0010`
	tl := New(Options{StageOf: byComm})
	feed(t, tl, text)
	tl.Finish()
	sameRows(t, fmt.Sprintf("%+v", tl.procs.at(20, baseNS+9e6).decideRoles()), `{io:21 loop:20 compute:[22] courier:0 unheard:false}`)
}

// The loop 20 reads its channel itself and leaves sending to thread 21, which gets a CPU late: the
// loop has slept again since it passed the result on.
func TestFinishByTheThreadThatSends(t *testing.T) {
	text := twoProcs
	round := func(a, i int, id string, more string) string {
		return fmt.Sprintf(`
			recv 1 10 %d-%d %d+300 POST_/v1/x x=%d id=%s flags=first,last
			send 2 10.11 %d-%d %d+50 submit id=%s
			off 20.20 %d-%d-%d by=10.11 call=7
			recv 3 20.20 %d-%d %d+50 submit id=%s
			off 20.22 %d-%d-%d by=20.20 call=202 arg=%d
			off 20.20 %d-%d-%d by=20.22 call=7
			off 20.21 %d-%d-%d by=20.20 call=232%s
			send 3 20.21 %d-%d %d+40 complete id=%s
			recv 2 10.11 %d-%d %d+40 complete id=%s`,
			a, a+5, i*300, i+1, id, a+10, a+15, i*50, id, a-300, a+16, a+17, a+18, a+24, i*50, id,
			a-400, a+34, a+38, 1000+i, a+40, a+500, a+510, a+42, a+515, a+905, more,
			a+910, a+920, i*40, id, a+912, a+930, i*40, id)
	}
	for i := range 4 {
		text += round(1000+i*2000, i, fmt.Sprintf("warm-000%d", i), "")
	}
	text += round(9000, 4, "req-1", `
			off 20.20 9520-9800-9810 by=10.11 call=7`)
	tl := New(Options{StageOf: byComm})
	feed(t, tl, text)
	sameRows(t, boundaries(t, tl, "req-1", "encoder"), `ready=9024..9034@9034 start=9038..9088@9038 finish=9475..9500@9500`)
}
