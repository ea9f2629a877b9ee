package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxSocketPath is sun_path's size less its terminating zero.
const maxSocketPath = 107

// layout is where one run's sockets, ports and inherited pipes are.
type layout struct {
	top    *Topology
	faults *Faults
	noise  bool
	dir    string // of the sockets
	tag    string // in the names of this run's segments: another run of the same seed has others
	tcp    map[int]int
	pipes  map[[2]int][2]int // (from proc, to proc): fd in the writer, fd in the reader
}

// socketName carries the stage's name, and the replica where there are several.
func (l *layout) socketName(stage, replica int) string {
	s := l.top.Stages[stage]
	if len(s.Procs) > 1 {
		return fmt.Sprintf("stage_%s@r%d.sock", s.Name, replica)
	}
	return fmt.Sprintf("stage_%s.sock", s.Name)
}

func (l *layout) socketPath(stage, replica int) string {
	return filepath.Join(l.dir, l.socketName(stage, replica))
}

func (l *layout) procSocket(p int) string {
	proc := l.top.Procs[p]
	return l.socketPath(proc.Stages[0], proc.Replica)
}

func (l *layout) completionPath() string { return filepath.Join(l.dir, "completion.sock") }

func (l *layout) textPath() string { return filepath.Join(l.dir, "text.sock") }

func (l *layout) check() error {
	for _, p := range l.top.Procs[1:] {
		if path := l.procSocket(p.Index); len(path) > maxSocketPath {
			return fmt.Errorf("socket path %s: %d bytes, at most %d fit; choose a shorter -dir", path, len(path), maxSocketPath)
		}
	}
	return nil
}

// writeConf writes the file that tells one stage process all it needs.
func (l *layout) writeConf(p Proc, path string) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("seed %d", l.top.Seed)
	line("proc %d", p.Index)
	line("tag %s", l.tag)
	line("comm %s", l.top.Comm)
	noise := 0
	if l.noise {
		noise = 1
	}
	line("noise %d", noise)
	for _, s := range l.top.Stages {
		second := -1
		if len(s.Procs) > 1 {
			second = s.Procs[1]
		}
		line("stage %d %s %d %d %d", s.Index, s.Name, int(s.Role), s.Procs[0], second)
		v := s.Service
		line("service %d %d %d %d %d %d %d %d %d %d %d %d", s.Index, v.CPUPermille, v.BaseUS, v.TailPermille,
			v.TailMult, v.PerSeqUS, v.Workers, v.Backlog, v.Batch, v.Filler, v.AckFirst, v.SelfPipe)
	}
	for _, e := range l.top.Edges {
		line("edge %d %d %d %d %d", e.From, e.To, int(e.Carrier), int(e.Framing), int(e.Data))
	}
	for _, s := range p.Stages {
		line("own %d %d %s", s, p.Replica, l.socketPath(s, p.Replica))
	}
	l.peerLines(p, line)
	l.faultLines(p, line)
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// peerLines names the processes that p sends to: the API, the holders of the
// next stages, and, for acknowledgements, those of the previous ones.
func (l *layout) peerLines(p Proc, line func(string, ...any)) {
	line("peer 0 %s", l.completionPath())
	unix, tcp := map[int]bool{}, map[int]bool{}
	text := false
	for _, e := range l.top.Edges {
		if holds(p, e.From) {
			text = text || e.Carrier == CarrierText
			for _, q := range l.top.Stages[e.To].Procs {
				unix[q] = unix[q] || e.Carrier == CarrierUnix
				tcp[q] = tcp[q] || e.Carrier == CarrierTCP
			}
		}
		if holds(p, e.To) && e.Data == DataAnon {
			for _, q := range l.top.Stages[e.From].Procs {
				unix[q] = true
			}
		}
	}
	for q := 1; q < len(l.top.Procs); q++ {
		if unix[q] {
			line("peer %d %s", q, l.procSocket(q))
		}
		if tcp[q] {
			line("peertcp %d %d", q, l.tcp[q])
		}
		if fds, ok := l.pipes[[2]int{p.Index, q}]; ok {
			line("pipeout %d %d", q, fds[0])
		}
		if fds, ok := l.pipes[[2]int{q, p.Index}]; ok {
			line("pipein %d", fds[1])
		}
	}
	if port := l.tcp[p.Index]; port != 0 {
		line("tcp %d", port)
	}
	if text {
		line("text %s", l.textPath())
	}
}

func (l *layout) faultLines(p Proc, line func(string, ...any)) {
	f := l.faults
	if f.StallStage != 0 && holds(p, f.StallStage) {
		line("stall 1")
	}
	if f.KillStage != 0 {
		line("kill %d %d", f.KillStage, f.KillAfter)
	}
	if f.SlowMS != 0 {
		line("slow %d %d %d", f.SlowFrom, f.SlowTo, f.SlowMS)
	}
	if f.BigMB != 0 {
		line("big %d %d %d", f.BigFrom, f.BigTo, f.BigMB*1_000_000)
	}
	line("drop %d", f.DropChunk)
	if f.RepeatSamples {
		line("repeat 1")
	}
}

func holds(p Proc, stage int) bool {
	for _, s := range p.Stages {
		if s == stage {
			return true
		}
	}
	return false
}
