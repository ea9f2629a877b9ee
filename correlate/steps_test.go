package correlate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// stepTrace is a process whose compute thread 22 sleeps once in the middle of each job (call 230), and
// whose loop 20 reads its channel itself. Fourteen rounds to learn from, then what the text says.
func stepTrace(text string) string {
	out := twoProcs
	for i := range 14 {
		a := 1000 + i*2000
		out += arrives(a, i, fmt.Sprintf("warm-%04d", i)) + fmt.Sprintf(`
			off 20.20 %d-%d-%d by=10.11 call=7
			off 20.22 %d-%d-%d by=20.20 call=202 arg=%d
			off 20.22 %d-%d-%d call=230
			off 20.20 %d-%d-%d by=20.22 call=7`,
			a-300, a+16, a+17, a-400, a+34, a+38, 1000+i*8, a+60, a+300, a+310, a+40, a+500, a+510) +
			leaves(a+520, i, fmt.Sprintf("warm-%04d", i))
	}
	return out + text
}

func arrives(a, i int, id string) string {
	return fmt.Sprintf(`
			recv 1 10 %d-%d %d+300 POST_/v1/x x=%d id=%s flags=first,last
			send 2 10.11 %d-%d %d+50 submit id=%s
			recv 3 20.20 %d-%d %d+50 submit id=%s`, a, a+5, i*300, i+1, id, a+10, a+15, i*50, id, a+18, a+24, i*50, id)
}

func leaves(a, i int, id string) string {
	return fmt.Sprintf(`
			send 3 20.20 %d-%d %d+40 complete id=%s
			recv 2 10.11 %d-%d %d+40 complete id=%s`, a, a+5, i*40, id, a+2, a+8, i*40, id)
}

// Three jobs come in together and the loop, busy with something else, sends all results at the end:
// only the sleeps of the compute thread tell them apart.
func TestStepsTellQueuedJobsApart(t *testing.T) {
	const steps = `
			off 20.20 29510-40016-40017 by=10.11 call=7
			off 20.22 29400-40034-40038 by=20.20 call=202 arg=2000
			off 20.22 40100-40500-40510 call=230%s
			off 20.22 41100-41500-41510 call=230
			off 20.22 41600-49000-49010 by=20.20 call=202 arg=2008`
	for _, c := range []struct{ name, second, want string }{
		{"each has its own", `
			off 20.22 40600-41000-41010 call=230`,
			`ready=40224..40600@40234 start=40510..40600@40550 finish=41010..41100@41060`},
		{"the second did not sleep: the third's step is not its own", "",
			`ready=40224..42030@40234 start=40224..42030@40234 finish=40224..42030@42030`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := fmt.Sprintf(steps, c.second)
			for i := range 3 {
				text += arrives(40000+i*200, 14+i, fmt.Sprintf("req-%d", i))
			}
			for i := range 3 {
				text += leaves(42000+i*30, 14+i, fmt.Sprintf("req-%d", i))
			}
			tl := New(Options{StageOf: byComm})
			feed(t, tl, stepTrace(text))
			sameRows(t, boundaries(t, tl, "req-1", "encoder"), c.want)
		})
	}
}

// sleepsAt are steps of 50 µs each.
func sleepsAt(us ...int64) []run.OffCPU {
	var out []run.OffCPU
	for _, u := range us {
		out = append(out, run.OffCPU{OutNS: u * 1000, InNS: (u + 50) * 1000, Call: 230, State: run.OffSleep})
	}
	return out
}

func TestStepModels(t *testing.T) {
	var serial, late, mixed, shared, several []job
	var each, half []int64
	for i := range int64(30) {
		each = append(each, 1000+i*100)
		arrived := (990 + i*100) * 1000
		serial = append(serial, job{arrived: arrived, first: arrived + 95_000, results: 1})
		late = append(late, job{arrived: arrived, first: 5_000_000 + i, results: 1})
		mixed = append(mixed, job{arrived: arrived, first: arrived + 95_000, numbered: true, results: 1},
			job{arrived: arrived + 70_000, first: arrived + 75_000, results: 1})
		if i%2 == 0 {
			half = append(half, 1000+i*100)
		}
		both := (990 + i/2*200) * 1000
		shared = append(shared, job{arrived: both - i, first: both + 95_000 + i, results: 1})
		if i < 14 {
			several = append(several, job{arrived: arrived, first: arrived + 95_000, results: 3})
		}
	}
	for _, c := range []struct {
		name  string
		jobs  []job
		steps []int64
		ask   int
		want  string
	}{
		{"a step a job", serial, each, 7, "kind 1 numbered true whole true: 7..7"},
		{"all results late: the order tells", late, each, 7, "kind 1 numbered true whole true: 7..7"},
		{"only visits for a chunk take one", mixed, each, 14, "kind 1 numbered true whole false: 7..7"},
		{"two jobs share one", shared, half, 7, "kind 2 numbered true whole true: 3..3"},
		{"one for each of several results", several, each, 7, "kind 2 numbered true whole true: 7..7"},
		{"steps that have nothing to do with the jobs", serial, []int64{10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120}, 7, "kind 0 numbered false whole false: 12..11"},
		{"too few to tell", serial[:8], each, 7, "kind 0 numbered false whole false: 7..7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s stepStats
			for _, j := range c.jobs {
				s.note(j)
			}
			steps := sleepsAt(c.steps...)
			m := s.decide(steps)
			from, to := s.place(steps, m, c.jobs[c.ask])
			if got := fmt.Sprintf("kind %d numbered %v whole %v: %d..%d", m.kind, m.numbered, m.whole, from, to); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// A step is missing in a row of jobs whose results were all sent late: jobs before it keep their step by
// what came before them, those behind it by what came after, and those between may be either's.
func TestStepMissing(t *testing.T) {
	const missing = 60
	var s stepStats
	var at []int64
	for i := range int64(400) {
		if i != missing {
			at = append(at, 1000+i*100)
		}
		j := job{arrived: (990 + i*100) * 1000, first: (1095 + i*100) * 1000, results: 1}
		if i > 50 && i < 70 {
			j.arrived, j.first = 5_980_000+i, 8_000_000+i
		}
		s.note(j)
	}
	steps := sleepsAt(at...)
	m := s.decide(steps)
	if m.kind != stepsSerial {
		t.Fatalf("one step missing of %d: kind %d", len(at), m.kind)
	}
	for _, c := range []struct {
		job  int64
		want string
	}{{40, "40..40"}, {80, "79..79"}, {55, "54..55"}, {65, "64..65"}} {
		i := slices.IndexFunc(s.jobs, func(j job) bool { return j.arrived == (990+c.job*100)*1000 || j.arrived == 5_980_000+c.job })
		from, to := s.place(steps, m, s.jobs[i])
		if got := fmt.Sprintf("%d..%d", from, to); got != c.want {
			t.Errorf("job %d: got %s, want %s", c.job, got, c.want)
		}
	}
}

// An input that comes while compute is busy is ready when the loop has run for as long as it takes to
// hand one on, as seen where that wakes compute: what it waits for a CPU does not count.
func TestReadyByMeasuredHandOver(t *testing.T) {
	var s inHandStats
	loop := &thread{}
	at := func(us int64) int64 { return baseNS + us*1000 }
	if got := s.after(loop, true, at(0)); got != at(0)+readyCPUNS {
		t.Errorf("nothing measured: %d ns after", got-at(0))
	}
	for i := range int64(minInHand) {
		s.note(loop, true, at(i*1000), at(i*1000+100+i))
	}
	s.note(loop, true, at(10_000), at(9_000)) // the wake-up was not for this
	loop.off = []run.OffCPU{
		{State: run.OffPreempted, OutNS: at(19_990), InNS: at(20_500)},
		{State: run.OffPreempted, OutNS: at(20_550), InNS: at(21_000)},
	}
	if got := s.after(loop, true, at(20_000)); got != at(21_000+52) {
		t.Errorf("102 µs of CPU time from 20500 on, 450 µs without: %d", (got-baseNS)/1000)
	}
	if got := s.after(loop, false, at(30_000)); got != at(30_000)+readyCPUNS {
		t.Errorf("a message without a segment is another matter: %d ns after", got-at(30_000))
	}
}
