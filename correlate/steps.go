package correlate

import (
	"sort"

	"github.com/stageline/stageline/collector/run"
)

// Steps: a compute thread that sleeps in the middle of its work (for a device, a timer, a file) shows
// each piece of work as one such sleep, whether or not the loop or a courier has time to take the
// result. The jobs of a stage are its visits; a job begins before its step's sleep begins and hands
// over after it ends. A stage works serially (a step a job, in order) or serves several jobs with one
// step, and a job that makes several numbered results takes as many steps in a row.

// job is a visit of a stage as far as its messages tell, kept to put jobs and steps in one order.
type job struct {
	arrived, first int64  // as in window
	pos            uint64 // of the first result in its stream: results that left in one call are in order
	numbered       bool   // the visit is for one chunk
	results        int    // numbered results it makes
}

// stepKind says how the jobs of a stage use the steps of its compute thread.
type stepKind int

const (
	stepsUnknown stepKind = iota
	stepsSerial           // a step a job, in the order of the results
	stepsShared           // a step serves the jobs that are there when it begins
)

// stepModel is what was learned of the steps of a process.
type stepModel struct {
	kind            stepKind
	numbered, whole bool // which visits take a step
	decidedAt       int  // jobs known then
}

// stepStats keeps jobs and steps of a process.
type stepStats struct {
	jobs  []job // by first and pos
	noted int   // jobs ever noted
	calls map[tidCall]int
	model stepModel
	list  []run.OffCPU // working sleeps of the lone compute thread, by time; valid for key
	key   [3]int64
}

type tidCall struct {
	tid  uint32
	call int32
}

const (
	// minJobs is how many jobs must be known before a model of the steps is made.
	minJobs = 12
	// minAgree is the share of jobs whose place must agree with those of their neighbours.
	minAgree = 0.8
	// stepReach is how many jobs to both sides are asked for the place of one among the steps, and
	// stepCheck how many of them must agree.
	stepReach = 96
	stepCheck = 3
	// handNS places the estimate of a hand-over after the last sleep of its work, and that of a begin
	// before the first.
	handNS = 50_000
)

// worked counts a sleep in the middle of work.
func (s *stepStats) worked(o *run.OffCPU) {
	if !working(*o) {
		return
	}
	if s.calls == nil {
		s.calls = map[tidCall]int{}
	}
	s.calls[tidCall{o.TID, o.Call}]++
}

// noteJobs keeps the visits of a request that has ended.
func (t *Timeline) noteJobs(l []hop) {
	for _, g := range groups(l) {
		if g.p.entry {
			continue
		}
		for _, p := range t.parts(l, g) {
			w := t.window(l, p.group, p.needed(l))
			if w.arrived != 0 && w.first != 0 {
				g.p.steps.note(p.job(l, w, p.chunk != nil))
			}
		}
	}
}

func (s *stepStats) note(j job) {
	i := sort.Search(len(s.jobs), func(i int) bool {
		return s.jobs[i].first > j.first || s.jobs[i].first == j.first && s.jobs[i].pos > j.pos
	})
	s.jobs = append(s.jobs, job{})
	copy(s.jobs[i+1:], s.jobs[i:])
	s.jobs[i] = j
	s.noted++
}

func (s *stepStats) sweep(ns int64) {
	i := sort.Search(len(s.jobs), func(i int) bool { return s.jobs[i].first >= ns })
	if i*2 > len(s.jobs) {
		s.jobs = append([]job(nil), s.jobs[i:]...)
	}
}

// job is the visit of a group; numbered: it is for one chunk. One that is not makes as many results
// as its outputs have numbers, or one.
func (g *group) job(l []hop, w *window, numbered bool) job {
	j := job{arrived: w.arrived, first: w.first, numbered: numbered, results: 1}
	if w.one != nil && w.one.c != nil && w.one.c.send != nil {
		j.pos = w.one.c.send.Pos
	}
	if !numbered {
		_, out := g.chunkSets(l)
		j.results = max(1, len(out))
	}
	return j
}

// stepsOf lists the sleeps in the work of a lone compute thread: those in the call it sleeps in most.
func (x *process) stepsOf(tid uint32) []run.OffCPU {
	s, off := &x.steps, x.thread(tid).off
	if len(off) == 0 {
		return nil
	}
	key := [3]int64{int64(tid), int64(len(off)) + off[0].OutNS, off[len(off)-1].OutNS}
	if s.key == key {
		return s.list
	}
	var call int32 = -1
	for k, n := range s.calls {
		if best := s.calls[tidCall{tid, call}]; k.tid == tid && (n > best || n == best && k.call < call) {
			call = k.call
		}
	}
	s.key, s.list = key, s.list[:0]
	for _, o := range off {
		if o.Call == call && working(o) {
			s.list = append(s.list, o)
		}
	}
	return s.list
}

// span is the range of steps that can be the first one of a job: not begun before it came, and ended
// before its result was sent. It is empty when to < from.
func span(steps []run.OffCPU, j job) (from, to int) {
	from = sort.Search(len(steps), func(i int) bool { return steps[i].OutNS >= j.arrived })
	to = sort.Search(len(steps), func(i int) bool { return steps[i].InNS > j.first }) - 1
	return from, to
}

// learnSteps decides how the jobs of a process use its steps. The answer is kept until a tenth more
// jobs are known.
func (x *process) learnSteps(tid uint32) stepModel {
	s := &x.steps
	if s.model.decidedAt == 0 || s.noted > s.model.decidedAt+s.model.decidedAt/10 {
		s.model = s.decide(x.stepsOf(tid))
		s.model.decidedAt = s.noted
	}
	return s.model
}

// decide tries which visits take a step (all, those for a chunk, the others): a step a job when their
// numbers agree and the places of nearly all jobs agree with those of their neighbours; else steps
// that jobs share, when there are clearly fewer of them or jobs that take several, and nearly all jobs
// have one between their input and their result.
func (s *stepStats) decide(steps []run.OffCPU) (best stepModel) {
	if len(s.jobs) < minJobs || len(steps) < minJobs {
		return best
	}
	most := minAgree
	for _, m := range [...]stepModel{{numbered: true, whole: true}, {numbered: true}, {whole: true}} {
		jobs, without, several := s.among(steps, m)
		if jobs < minJobs || without*20 > jobs {
			continue
		}
		from, _ := span(steps, s.jobs[0])
		_, to := span(steps, s.jobs[len(s.jobs)-1])
		extra := to - from + 1 - jobs
		if m.kind = stepsShared; best.kind == stepsUnknown && (several || extra*10 < -jobs-20) {
			best = m
		}
		m.kind = stepsSerial
		if several || max(extra, -extra)*10 > jobs+40 {
			continue
		}
		if agree := s.agreement(steps, m); agree > most {
			best, most = m, agree
		}
	}
	return best
}

// among counts the jobs that take a step by m, those of them that have none between input and result,
// and says whether some make several results.
func (s *stepStats) among(steps []run.OffCPU, m stepModel) (jobs, without int, several bool) {
	for _, j := range s.jobs {
		if !m.takes(j) {
			continue
		}
		jobs++
		several = several || j.results > 1
		if from, to := span(steps, j); to < from {
			without++
		}
	}
	return jobs, without, several
}

// agreement is the share of jobs whose place agrees with those of their neighbours, of a sample.
func (s *stepStats) agreement(steps []run.OffCPU, m stepModel) float64 {
	n, agree := 0, 0
	for i := 0; i < len(s.jobs); i += 1 + len(s.jobs)/64 {
		if !m.takes(s.jobs[i]) {
			continue
		}
		n++
		if _, _, ok := s.around(steps, m, i); ok {
			agree++
		}
	}
	return float64(agree) / float64(max(n, 1))
}

// takes reports that a job takes a step.
func (m stepModel) takes(j job) bool { return j.numbered && m.numbered || !j.numbered && m.whole }

// place is the range of steps one of which is the first of a job.
func (s *stepStats) place(steps []run.OffCPU, m stepModel, j job) (from, to int) {
	from, to = span(steps, j)
	if m.kind != stepsSerial || from >= to {
		return from, to
	}
	i := sort.Search(len(s.jobs), func(i int) bool { return s.jobs[i].first >= j.first })
	for ; i < len(s.jobs) && s.jobs[i].first == j.first; i++ {
		if s.jobs[i] == j {
			from, to, _ = s.around(steps, m, i)
			break
		}
	}
	return from, to
}

// around is the range of steps of a job in a serial stage by the jobs before it and by those behind
// it, each of which takes the step before or behind. Where the two sides disagree a job without a step,
// or a step without a job, lies near: the range then holds what either says, and agree is false. It is
// empty where the very next jobs leave none for this one.
func (s *stepStats) around(steps []run.OffCPU, m stepModel, i int) (from, to int, agree bool) {
	a, b, left := s.beside(steps, m, i, -1)
	c, d, right := s.beside(steps, m, i, 1)
	switch {
	case !left || !right:
		return 1, 0, false
	case max(a, c) <= min(b, d):
		return max(a, c), min(b, d), true
	}
	return min(a, c), max(b, d), false
}

// beside is the range of steps of a job by its neighbours on one side, asked until one step is left and
// stepCheck of them agree, or until one contradicts those before it; not ok: one of the first does.
func (s *stepStats) beside(steps []run.OffCPU, m stepModel, i, way int) (from, to int, ok bool) {
	from, to = span(steps, s.jobs[i])
	n := 0
	for k := i + way; k >= 0 && k < len(s.jobs) && n < stepReach && (n < stepCheck || from < to); k += way {
		if !m.takes(s.jobs[k]) {
			continue
		}
		n++
		a, b := span(steps, s.jobs[k])
		a, b = max(from, a-way*n), min(to, b-way*n)
		if a > b {
			return from, to, n > stepCheck
		}
		from, to = a, b
	}
	return from, to, true
}
