package main

import (
	"fmt"
	"io"

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
	if p.Event == run.ProcExit && p.TID == p.TGID && len(x.r.exits) < 1000 {
		x.r.exits = append(x.r.exits, *p)
	}
	over := p.Event == run.ProcExec || p.Event == run.ProcExit && p.TID == p.TGID
	if over && x.r.mapped[p.TGID] {
		delete(x.r.mapped, p.TGID)
		x.r.stale[p.TGID] = true
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
			x.r.note(attach.Held{IOUring: true}.Notes(p)...)
		}
	}
	x.Sink.OffCPU(o)
}

// note writes notes into the run, each text once, and keeps warnings for the user.
func (r *recorder) note(notes ...run.Note) {
	for i := range notes {
		if r.warned[notes[i].Text] {
			continue
		}
		r.warned[notes[i].Text] = true
		r.w.Note(&notes[i])
		if notes[i].Level == "warn" {
			r.warns = append(r.warns, notes[i].Text)
		}
	}
}

// forgetMappings drops what was known of mappings that ended with an exec or exit.
func (r *recorder) forgetMappings() error {
	if len(r.stale) == 0 {
		return nil
	}
	defer clear(r.stale)
	return r.progs.ForgetMappings(r.stale)
}

// sayEnded tells the user which of the named processes ended, and how, and whether that ended the
// recording. Call it after stop.
func (r *recorder) sayEnded(stderr io.Writer) {
	r.sayWarnings(stderr)
	for _, p := range r.exits {
		if d := r.procs[p.TGID]; d == nil || !d.Target {
			continue
		}
		how := fmt.Sprintf("exited with status %d", p.ExitCode>>8&0xff)
		if sig := p.ExitCode & 0x7f; sig != 0 {
			how = fmt.Sprintf("was killed by signal %d", sig)
		}
		fmt.Fprintf(stderr, "stageline: process %d (%s) %s while it was recorded\n", p.TGID, export.Printable(p.Comm), how)
	}
	if r.empty.Load() {
		fmt.Fprintln(stderr, "stageline: all recorded processes have exited; the run is complete up to there (a restarted engine has new PIDs: record those, or use --match)")
	}
}

// sayWarnings prints what the user has not been told yet. Not while the drain runs.
func (r *recorder) sayWarnings(stderr io.Writer) {
	for _, w := range r.warns {
		fmt.Fprintf(stderr, "stageline: warning: %s\n", export.Printable(w))
	}
	r.warns = nil
}
