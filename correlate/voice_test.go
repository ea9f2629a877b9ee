package correlate

import (
	"fmt"
	"testing"
)

type locking int

const (
	bothLock locking = iota
	loopLocksOnce
	unlocked
)

// voiceTrace is a process whose loop 20 hands work to thread 22, which works for 900 µs a round and
// signals nothing, and asks thread 23 for results, which are there already: it never waits for 22 and
// signals to the loop at once (11 written, 12 read) after it has worked for so many µs. I/O thread 21.
// Thread 22 and the loop wait for a lock at 40: in each round, the loop in the first alone, or neither.
// So many rounds of 2 ms.
func voiceTrace(rounds, work int, l locking, more string) string {
	out := twoProcs + `
		unix 11 12
		unix 13 14`
	for i := range rounds {
		a := 1000 + i*2000
		out += received(i, a, a+28) + fmt.Sprintf(`
			off 20.22 %d-%d-%d by=20.20 call=202 arg=2000
			off 20.22 %d-%d-%d call=230`,
			a-900, a+30, a+31, a+100, a+1000, a+1001)
		if l != unlocked {
			out += fmt.Sprintf(`
			off 20.22 %d-%d-%d by=20.20 call=202 arg=40`, a+32, a+33, a+34)
		}
		if l == bothLock || l == loopLocksOnce && i == 0 {
			out += fmt.Sprintf(`
			off 20.20 %d-%d-%d by=20.22 call=202 arg=40`, a+1010, a+1020, a+1021)
		}
		out += fmt.Sprintf(`
			off 20.23 %d-%d-%d by=20.20 call=202 arg=3000
			off 20.23 %d-%d-%d call=230
			io send 11 20.23 %d-%d %d+1
			io recv 12 20.20 %d-%d %d+1
			off 20.21 %d-%d-%d by=20.20 call=232
			send 3 20.21 %d-%d %d+40 complete id=warm-000%d
			recv 2 10.11 %d-%d %d+40 complete id=warm-000%d
			send 1 10 %d-%d %d+99 200 x=%d status=200 flags=first,last`,
			a-950+work, a+1030, a+1031, a+1032, a+1032+work, a+1033+work, a+1040+work, a+1041+work, i, a+1050+work, a+1051+work, i,
			a+40, a+1060+work, a+1062+work, a+1070+work, a+1075+work, i*40, i, a+1072+work, a+1078+work, i*40, i,
			a+1090+work, a+1095+work, i*99, i+1)
		out += fmt.Sprintf(more, a+1100, a+1101, i, a+1102, a+1103, i)
	}
	return out
}

func TestRolesWhereResultsAreThereBefore(t *testing.T) {
	const other = `
		io send 13 20.24 %d-%d %d+1
		io recv 14 20.20 %d-%d %d+1`
	const none = `
		io send 15 20.24 %d-%d %d+1
		io recv 16 20.24 %d-%d %d+1`
	for _, c := range []struct {
		name         string
		rounds, work int
		locking      locking
		more, want   string
	}{
		{"the only one that signals does no work, the one that works is silent", 4, 1, bothLock, none, `{io:21 loop:20 compute:[22] courier:23 unheard:false}`},
		{"the silent one hardly tells the loop anything, but waits for its lock", 12, 1, loopLocksOnce, none, `{io:21 loop:20 compute:[22] courier:23 unheard:false}`},
		{"a silent one that shares nothing with the loop helps it", 4, 1, unlocked, none, `{io:21 loop:20 compute:[23] courier:0 unheard:false}`},
		{"two signals are too few", 2, 1, bothLock, none, `{io:21 loop:20 compute:[22 23] courier:0 unheard:true}`},
		{"the one that signals works itself", 4, 200, bothLock, none, `{io:21 loop:20 compute:[22 23] courier:0 unheard:true}`},
		{"another signals, too", 4, 1, bothLock, other, `{io:21 loop:20 compute:[22 23 24] courier:0 unheard:true}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, voiceTrace(c.rounds, c.work, c.locking, c.more))
			tl.Finish()
			sameRows(t, fmt.Sprintf("%+v", tl.procs.at(20, baseNS+9e6).decideRoles()), c.want)
		})
	}
}

// The loop sleeps after thread 22 has handed its result over and is told by 23, which is not known to
// be a courier yet: the result may have come at any time since the input.
func TestFinishUnheard(t *testing.T) {
	tl := New(Options{StageOf: byComm})
	feed(t, tl, voiceTrace(2, 1, bothLock, `
		io send 15 20.24 %d-%d %d+1
		io recv 16 20.24 %d-%d %d+1`)+`
		off 20.20 4022-4034-4040 by=20.23 call=7`)
	sameRows(t, boundaries(t, tl, "warm-0001", "encoder"), `ready=3028..3030@3030 start=3028..3100@3034 finish=3028..4071@4041`)
}
