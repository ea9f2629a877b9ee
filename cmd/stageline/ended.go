package main

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/export"
)

// maxEnded bounds, each by itself, the ended targets that the metadata lists, the exits that are told at
// the end, and the warnings that wait to be: an engine may start processes for hours.
const maxEnded = 1000

// sweepEvery is how often targets are looked for that ended without a record of it. That is lost when
// the ring is full.
const sweepEvery = int64(1e9)

// remapEvery is how often the kernel's table of mappings is gone through although nothing is known to
// have ended.
const remapEvery = int64(60e9)

// endedTargets is what is kept of targets that ended: nothing else of them stays.
type endedTargets struct {
	listed   []run.Target
	unlisted int
	exits    []run.Proc // of named ones, in order
	untold   int        // exits beyond them
}

func (e *endedTargets) add(p *run.Proc) {
	if len(e.listed) < maxEnded {
		e.listed = append(e.listed, targetOf(p))
	} else {
		e.unlisted++
	}
}

// exit notes how a named process ended.
func (e *endedTargets) exit(p *run.Proc) {
	if len(e.exits) < maxEnded {
		e.exits = append(e.exits, *p)
	} else {
		e.untold++
	}
}

func (e *endedTargets) say(w io.Writer) {
	for _, p := range e.exits {
		how := fmt.Sprintf("exited with status %d", p.ExitCode>>8&0xff)
		if sig := p.ExitCode & 0x7f; sig != 0 {
			how = fmt.Sprintf("was killed by signal %d", sig)
		}
		fmt.Fprintf(w, "stageline: process %d (%s) %s while it was recorded\n", p.TGID, export.Printable(p.Comm), how)
	}
	if e.untold > 0 {
		fmt.Fprintf(w, "stageline: %d more processes ended while they were recorded\n", e.untold)
	}
}

func targetOf(p *run.Proc) run.Target {
	return run.Target{TGID: p.TGID, NSPID: p.NSPID, StartNS: p.StartNS, Comm: p.Comm, Exe: p.Exe, Cmdline: p.Cmdline, Named: p.Target}
}

// exited notes the end of a process and forgets it. Its PID may come again.
func (r *recorder) exited(x *run.Proc) {
	if d := r.procs[x.TGID]; d != nil && d.Target {
		r.ended.exit(x)
	}
	r.forget(x.TGID)
}

// forget drops what is kept of a process that ended.
func (r *recorder) forget(pid uint32) {
	if d := r.procs[pid]; d != nil {
		r.ended.add(d)
		if d.Target {
			r.locks.Free(pid)
		}
	}
	r.cost.exited(pid)
	delete(r.procs, pid)
	delete(r.fresh, pid)
	delete(r.said, pid)
	if r.mapped[pid] {
		delete(r.mapped, pid)
		r.stale[pid] = true
	}
}

// sweep forgets the processes whose exit was not recorded, here and in the kernel's tables: those that
// were gone at the last sweep already. The ring has been read since, and their exit was not in it.
func (r *recorder) sweep(now int64) error {
	if now-r.swept < sweepEvery {
		return nil
	}
	r.swept = now
	missing := map[uint32]bool{}
	for pid := range r.procs {
		missing[pid] = gone(pid)
	}
	for pid := range r.mapped {
		missing[pid] = gone(pid)
	}
	for pid, is := range missing {
		if is && r.missing[pid] {
			r.forget(pid)
			delete(missing, pid)
		}
	}
	r.missing = missing
	return r.progs.ForgetTargets(gone)
}

func gone(pid uint32) bool { return errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) }
