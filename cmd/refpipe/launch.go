package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Inherited by every stage process, see stage/main.c; pipes of edges follow.
const (
	fdTruth = 3 + iota
	fdStatus
	fdLifeline
	fdTracker
	fdPipes
)

// command makes the command line of one stage process.
type command func(conf string) *exec.Cmd

// child is one stage process with the memory that holds its truth.
type child struct {
	proc  int
	cmd   *exec.Cmd
	truth *os.File
	done  chan struct{}
}

// fleet is all stage processes of a run.
type fleet struct {
	lay      *layout
	children []*child
	tracker  *exec.Cmd
	lifeline *os.File
	stopping atomic.Bool
	onLost   func(proc int)
	statuses []*os.File
	wait     sync.WaitGroup
}

// pairFiles makes the two ends of an edge's pipe.
func pairFiles(socket bool) (w, r *os.File, err error) {
	if !socket {
		r, w, err = os.Pipe()
		return w, r, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pair"), os.NewFile(uintptr(fds[1]), "pair"), nil
}

// inherited lists the files of one process beyond the fixed ones.
type inherited map[int][]*os.File

// makePipes makes the pipes of all pipe edges and tells the layout their
// descriptors as the processes will see them.
func makePipes(lay *layout) (inherited, error) {
	files := inherited{}
	for _, e := range lay.top.Edges {
		if e.Carrier != CarrierPipe {
			continue
		}
		for _, from := range lay.top.Stages[e.From].Procs {
			for _, to := range lay.top.Stages[e.To].Procs {
				w, r, err := pairFiles(lay.top.Socket)
				if err != nil {
					return nil, fmt.Errorf("make pipe between stages: %w", err)
				}
				lay.pipes[[2]int{from, to}] = [2]int{fdPipes + len(files[from]), fdPipes + len(files[to])}
				files[from] = append(files[from], w)
				files[to] = append(files[to], r)
			}
		}
	}
	return files, nil
}

// choosePorts finds a free port for every process that listens on TCP.
func choosePorts(lay *layout) error {
	for _, e := range lay.top.Edges {
		if e.Carrier != CarrierTCP {
			continue
		}
		for _, p := range lay.top.Stages[e.To].Procs {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				return fmt.Errorf("find a free TCP port: %w", err)
			}
			lay.tcp[p] = l.Addr().(*net.TCPAddr).Port
			l.Close()
		}
	}
	return nil
}

func truthMemory(records int) (*os.File, error) {
	if records == 0 {
		return os.OpenFile(os.DevNull, os.O_RDWR, 0)
	}
	fd, err := unix.MemfdCreate("records", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make truth memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "records")
	if err := f.Truncate(int64(records+1) * recordSize); err != nil {
		return nil, fmt.Errorf("size truth memory: %w", err)
	}
	return f, nil
}

// startFleet starts the tracker and every stage process; records 0 keeps no
// truth. onLost is called when a process ends that nobody stopped.
func startFleet(lay *layout, dir string, cmd command, stageBin string, records int, logs io.Writer, onLost func(proc int)) (*fleet, error) {
	f := &fleet{lay: lay, onLost: onLost}
	pipes, err := makePipes(lay)
	if err != nil {
		return nil, err
	}
	if err := choosePorts(lay); err != nil {
		return nil, err
	}
	lifeR, lifeW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make lifeline: %w", err)
	}
	f.lifeline = lifeW
	trackR, trackW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make tracker pipe: %w", err)
	}
	defer closeAll(lifeR, trackR, trackW)
	f.tracker = exec.Command(stageBin, "tracker")
	f.tracker.Stdin, f.tracker.Stderr = trackR, logs
	if err := f.tracker.Start(); err != nil {
		return nil, fmt.Errorf("start tracker process %s: %w", stageBin, err)
	}
	for _, p := range lay.top.Procs[1:] {
		if err := f.start(p, dir, cmd, records, logs, lifeR, trackW, pipes[p.Index]); err != nil {
			f.stop()
			return nil, err
		}
	}
	for _, files := range pipes {
		closeAll(files...)
	}
	return f, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func (f *fleet) start(p Proc, dir string, cmd command, records int, logs io.Writer, life, track *os.File, pipes []*os.File) error {
	conf := filepath.Join(dir, fmt.Sprintf("proc%d.conf", p.Index))
	if err := f.lay.writeConf(p, conf); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	truth, err := truthMemory(records)
	if err != nil {
		return err
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make status pipe: %w", err)
	}
	defer statusW.Close()
	c := &child{proc: p.Index, cmd: cmd(conf), truth: truth, done: make(chan struct{})}
	c.cmd.ExtraFiles = append([]*os.File{truth, statusW, life, track}, pipes...)
	c.cmd.Stdout, c.cmd.Stderr = logs, logs
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start stage process %s: %w", c.cmd.Path, err)
	}
	f.children = append(f.children, c)
	f.statuses = append(f.statuses, statusR)
	f.wait.Add(1)
	go func() {
		defer f.wait.Done()
		c.cmd.Wait() // how it ended shows in onLost and in the truth
		close(c.done)
		if !f.stopping.Load() {
			f.onLost(c.proc)
		}
	}()
	return nil
}

// ready waits until every stage process is connected to its peers.
func (f *fleet) ready(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for i, s := range f.statuses {
		s.SetReadDeadline(deadline)
		n, err := s.Read(make([]byte, 1))
		s.Close()
		if n == 1 {
			continue
		}
		names := []string{}
		for _, st := range f.lay.top.Procs[f.children[i].proc].Stages {
			names = append(names, f.lay.top.NameOf(st))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("wait for stage %s: not ready within %v", strings.Join(names, "+"), limit)
		}
		return fmt.Errorf("wait for stage %s: its process ended, see the log in the work directory", strings.Join(names, "+"))
	}
	return nil
}

func (f *fleet) pids() []int {
	pids := []int{}
	for _, c := range f.children {
		pids = append(pids, c.cmd.Process.Pid)
	}
	return append(pids, f.tracker.Process.Pid)
}

// pidOf is the process id by process number; 0 is this process.
func (f *fleet) pidOf(proc int) int {
	for _, c := range f.children {
		if c.proc == proc {
			return c.cmd.Process.Pid
		}
	}
	return os.Getpid()
}

// stop ends the children by their ids and waits for them.
func (f *fleet) stop() {
	f.stopping.Store(true)
	for _, c := range f.children {
		c.cmd.Process.Signal(unix.SIGTERM)
	}
	late := time.After(3 * time.Second)
	for _, c := range f.children {
		select {
		case <-c.done:
		case <-late:
			c.cmd.Process.Kill()
		}
	}
	f.wait.Wait()
	f.lifeline.Close()
	f.tracker.Wait() // its pipe's writers are gone
	f.sweep()
}

// sweep removes anonymous segments that killed workers left: the names carry
// this run's tag.
func (f *fleet) sweep() {
	left, _ := filepath.Glob("/dev/shm/psm_" + f.lay.tag + "??????")
	for _, path := range left {
		os.Remove(path)
	}
}

// records gathers the truth of all children; call it after stop.
func (f *fleet) records() (recs []record, dropped uint64, err error) {
	for _, c := range f.children {
		b, err := readMapping(c.truth)
		if err != nil {
			return nil, 0, err
		}
		r, d := parseRecords(b)
		recs = append(recs, r...)
		dropped += d
	}
	return recs, dropped, nil
}
