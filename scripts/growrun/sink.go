package main

import "github.com/stageline/stageline/collector/run"

// sink changes records before it passes them on, if there is anywhere to pass them to. Processes are
// announced once only.
type sink struct {
	run.Sink
	change   func(record any)
	skipProc bool
}

func pass[T any](s *sink, r *T, to func(run.Sink, *T)) {
	s.change(r)
	if s.Sink != nil {
		to(s.Sink, r)
	}
}

func (s *sink) Endpoint(r *run.Endpoint) { pass(s, r, run.Sink.Endpoint) }
func (s *sink) IO(r *run.IO)             { pass(s, r, run.Sink.IO) }
func (s *sink) Message(r *run.Message)   { pass(s, r, run.Sink.Message) }
func (s *sink) Gap(r *run.Gap)           { pass(s, r, run.Sink.Gap) }
func (s *sink) Base(r *run.Base)         { pass(s, r, run.Sink.Base) }
func (s *sink) Shm(r *run.Shm)           { pass(s, r, run.Sink.Shm) }
func (s *sink) OffCPU(r *run.OffCPU)     { pass(s, r, run.Sink.OffCPU) }
func (s *sink) Net(r *run.Net)           { pass(s, r, run.Sink.Net) }
func (s *sink) Loss(r *run.Loss)         { pass(s, r, run.Sink.Loss) }
func (s *sink) Note(r *run.Note)         { pass(s, r, run.Sink.Note) }
func (s *sink) Proc(r *run.Proc) {
	if !s.skipProc {
		pass(s, r, run.Sink.Proc)
	}
}
