package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/engine"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/export"
)

const (
	matchEvery = int64(1e9) // ns between two looks for new processes
	matchLooks = 15         // at a new process: it may say late what it is
)

// matcher finds the processes of an engine, also those that are started later.
type matcher struct {
	engine string
	looks  map[uint32]int // at processes that are none, or are known
	lastNS int64
}

// newMatcher refuses a name that no profile has.
func newMatcher(name string) (*matcher, error) {
	var names []string
	for _, p := range engine.Profiles() {
		if p.Name == name && p.Matches != nil && name != "generic" {
			return &matcher{engine: name, looks: map[uint32]int{}}, nil
		}
		if p.Name != "generic" {
			names = append(names, p.Name)
		}
	}
	return nil, usagef("--match %q: no such engine; known are %s", name, strings.Join(names, ", "))
}

// find returns processes of the engine that it has not returned before.
func (m *matcher) find() ([]uint32, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []uint32
	now := map[uint32]int{}
	for _, name := range names {
		n, err := strconv.ParseUint(name, 10, 32)
		if err != nil || n == uint64(os.Getpid()) {
			continue
		}
		pid := uint32(n)
		looks := m.looks[pid] + 1
		if looks <= matchLooks && m.is(pid) {
			out = append(out, pid)
			looks = matchLooks
		}
		now[pid] = min(looks, matchLooks)
	}
	m.looks = now // without those that ended: their PIDs may come again
	slices.Sort(out)
	return out, nil
}

func (m *matcher) is(pid uint32) bool {
	p, err := attach.Describe(pid)
	if err != nil {
		return false
	}
	v := engine.ProcView{TGID: p.TGID, PPID: p.PPID, Comm: p.Comm, Exe: p.Exe, Cmdline: p.Cmdline, Bound: p.Bound}
	return engine.Of(&v).Name == m.engine
}

// first is find before anything is recorded.
func (m *matcher) first() ([]uint32, error) {
	pids, err := m.find()
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("no process of %s runs here: start it first, or name its processes with -p (stageline ps PID says what is known of one)", m.engine)
	}
	return pids, err
}

// matchNew adds processes of the engine that were started since, as after a restart. It runs in the
// drain's goroutine.
func (r *recorder) matchNew(now int64) error {
	m := r.opts.Match
	if m == nil || now-m.lastNS < matchEvery {
		return nil
	}
	m.lastNS = now
	pids, err := m.find()
	for _, pid := range pids {
		if p := r.procs[pid]; p != nil && sameStart(p) {
			continue
		}
		if e := r.add(pid); e != nil {
			err = errors.Join(err, e)
			m.looks[pid] = 0 // tried again, as when another recorder holds it
		}
	}
	return err
}

// add makes one more process a target while recording goes on.
func (r *recorder) add(pid uint32) error {
	var busy *attach.Busy
	err := r.locks.Add(pid)
	if errors.As(err, &busy) && busy.Holder == os.Getpid() {
		err = nil // of an earlier process of this PID
	}
	if err != nil {
		return err
	}
	err = r.watch([]uint32{pid})
	if r.procs[pid] == nil {
		r.locks.Free(pid) // it is gone
	}
	if err != nil {
		return fmt.Errorf("record process %d, too: %w", pid, err)
	}
	if p := r.procs[pid]; p != nil {
		r.note(pid, run.Note{AtNS: run.Mono(), Level: "info", Code: "target-added", Text: fmt.Sprintf("process %d (%s) was started while recording and is recorded from here on", pid, export.Printable(p.Comm))})
	}
	return nil
}

// sameStart tells whether a PID still names the process that was described.
func sameStart(p *run.Proc) bool {
	d, err := attach.Describe(p.TGID)
	return err == nil && near(d.StartNS, p.StartNS)
}

// near compares start times: /proc counts them in steps of 10 ms.
func near(a, b int64) bool { return max(a-b, b-a) <= 20e6 }
