package main

import (
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/engine"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/export"
)

// decoders are the versions by which messages are found while recording.
func decoders() []string { return []string{engine.GenericRules().Name} }

// recorderSink passes records on and notes what the recorder itself has to act on.
type recorderSink struct {
	run.Sink
	r *recorder
}

// Proc notes an exit, and mappings that end without a call.
func (x recorderSink) Proc(p *run.Proc) {
	x.r.left = x.r.left || p.Event == run.ProcExit
	if p.Event == run.ProcExec && x.r.mapped[p.TGID] {
		delete(x.r.mapped, p.TGID)
		x.r.stale[p.TGID] = true
	}
	if p.Event == run.ProcExit && p.TID == p.TGID {
		x.r.exited(p)
	}
	x.Sink.Proc(p)
}

// Shm notes who has mappings, and that a target mapped what may be a ring.
func (x recorderSink) Shm(s *run.Shm) {
	if s.Op == run.ShmMap && s.Ret >= 0 {
		x.r.mapped[s.TGID] = true
		if _, ok := engine.RingOf(s.Size); ok {
			x.r.rings = true
		}
	}
	x.Sink.Shm(s)
}

// OffCPU notes a thread that slept for the completion of what it never called for.
func (x recorderSink) OffCPU(o *run.OffCPU) {
	if o.Call == unix.SYS_IO_URING_ENTER {
		if p := x.r.procs[o.TGID]; p != nil {
			x.r.note(p.TGID, attach.Held{IOUring: true}.Notes(p)...)
		}
	}
	x.Sink.OffCPU(o)
}

// watch makes processes targets and writes what is known of them.
func (r *recorder) watch(pids []uint32) error {
	procs, notes, err := r.progs.Watch(pids, !r.opts.NoFollow)
	if err != nil {
		return err
	}
	for _, p := range procs {
		switch old := r.procs[p.TGID]; {
		case old == nil:
		case near(old.StartNS, p.StartNS):
			p.Target = p.Target || old.Target
		default:
			r.forget(p.TGID)
		}
		r.procs[p.TGID] = p
		r.cost.target(p.TGID, false)
		r.w.Proc(p)
		for _, m := range attach.Mappings(p.TGID) {
			seen := m.Seen(p.TGID, run.Mono())
			r.w.Shm(&seen)
			r.mapped[p.TGID] = true
		}
	}
	for _, n := range notes {
		if r.procs[n.PID] == nil {
			n.PID = 0 // it is gone, and nothing will forget what is said of it
		}
		r.note(n.PID, n.Note)
	}
	return nil
}

// describe completes the record of a fork or exec; a process that is gone again stays as the
// kernel reported it.
func (r *recorder) describe(p *run.Proc) {
	d, err := attach.Describe(p.TGID)
	if err != nil || !near(p.StartNS, d.StartNS) {
		return // gone again; its PID may be another's by now
	}
	p.Exe, p.Cmdline, p.NSPID = d.Exe, d.Cmdline, d.NSPID
	if p.Event == run.ProcFork {
		d.PPID = p.PPID
	}
	switch old := r.procs[p.TGID]; {
	case old == nil:
	case near(old.StartNS, d.StartNS):
		d.Target = old.Target // another program, or a look that was late
	default:
		r.forget(p.TGID) // the record of its exit was lost
	}
	r.procs[p.TGID] = d
	r.fresh[p.TGID] = p.AtNS
	r.cost.target(p.TGID, p.Event == run.ProcFork)
}

// note writes notes about a process, or 0, into the run, each text once, and keeps warnings for the user.
func (r *recorder) note(pid uint32, notes ...run.Note) {
	for i := range notes {
		n := &notes[i]
		if slices.Contains(r.said[pid], n.Text) {
			continue
		}
		if len(r.said[pid]) == maxEnded {
			r.said[pid] = nil // an error that is another each time
		}
		r.said[pid] = append(r.said[pid], n.Text)
		r.w.Note(n)
		switch {
		case n.Level != "warn":
		case len(r.warns) == maxEnded:
			r.unsaid++
		default:
			r.warns = append(r.warns, n.Text)
		}
	}
}

// forgetMappings drops what was known of mappings that ended with an exec or exit; every now and then
// also of those whose records were lost.
func (r *recorder) forgetMappings(now int64) error {
	if len(r.stale) == 0 && now-r.remapped < remapEvery {
		return nil
	}
	r.remapped = now
	whole, err := r.progs.ForgetMappings(r.stale, gone)
	if whole {
		clear(r.stale)
	}
	return err
}

// sayEnded tells the user which of the named processes ended, and how, and whether that ended the
// recording. Call it after stop.
func (r *recorder) sayEnded(stderr io.Writer) {
	r.sayWarnings(stderr)
	r.ended.say(stderr)
	if r.empty.Load() {
		fmt.Fprintln(stderr, "stageline: all recorded processes have exited; the run is complete up to there (a restarted engine has new PIDs: record those, or use --match)")
	}
}

// sayWarnings prints what the user has not been told yet. Not while the drain runs.
func (r *recorder) sayWarnings(stderr io.Writer) {
	for _, w := range r.warns {
		fmt.Fprintf(stderr, "stageline: warning: %s\n", export.Printable(w))
	}
	if r.unsaid > 0 {
		fmt.Fprintf(stderr, "stageline: %d more warnings are notes in the run\n", r.unsaid)
	}
	r.warns, r.unsaid = nil, 0
}
