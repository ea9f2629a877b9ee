package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stageline/stageline/collector/attach"
)

// observer is a process that watches the engine during a load: the recorder or another tool.
type observer struct {
	name  string
	cmd   *exec.Cmd
	tells *heard // what it has to say of itself
	exits bool   // with 0 on SIGINT when nothing is wrong; other tools may die of it as well
	said  bool   // it said that it had attached, and was not merely given time
	ended chan error
	total int64 // CPU time in ns of all its processes, once it has ended
}

// heard keeps the end of what a process writes, and closes mark when its text holds wanted.
type heard struct {
	wanted string
	mark   chan struct{}

	mu   sync.Mutex
	text []byte
	seen bool
}

func hear(wanted string) *heard { return &heard{wanted: wanted, mark: make(chan struct{})} }

const heardBytes = 2 << 10

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, p...)
	if h.wanted != "" && !h.seen && bytes.Contains(h.text, []byte(h.wanted)) {
		h.seen = true
		close(h.mark)
	}
	h.text = h.text[max(0, len(h.text)-heardBytes):]
	return len(p), nil
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.TrimSpace(string(h.text))
}

// startTool starts another tool in a shell.
func startTool(ctx context.Context, t tool, pids []uint32, settle time.Duration) (*observer, error) {
	var list []string
	for _, pid := range sortedPIDs(cpuTimes(pids)) {
		list = append(list, strconv.FormatUint(uint64(pid), 10))
	}
	cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(t.command, "{{pids}}", strings.Join(list, ",")))
	ready, tells := hear("\n"), hear("")
	cmd.Stdout, cmd.Stderr = ready, tells
	o := &observer{name: t.name, cmd: cmd, tells: tells}
	return o, o.start(ctx, ready, settle, true)
}

// startRecording starts `stageline record` in a process of its own.
func startRecording(ctx context.Context, pids []uint32, dir string) (*observer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start a recorder: %w", err)
	}
	names := make([]string, len(pids))
	for i, p := range pids {
		names[i] = strconv.FormatUint(uint64(p), 10)
	}
	cmd := exec.Command(self, "record", "-p", strings.Join(names, ","), "-o", dir, "--unsealed")
	ready := hear("stageline: recording ")
	cmd.Stderr = ready
	o := &observer{name: armRecorder, cmd: cmd, tells: ready, exits: true}
	return o, o.start(ctx, ready, stopGrace, false)
}

// start returns once the process has attached: when ready was heard, or, if silent ones count, when
// it is still there after so long. The process leads a group of its own, which is what is stopped.
func (o *observer) start(ctx context.Context, ready *heard, limit time.Duration, silent bool) error {
	// Where this process is killed, the one that it started is asked to end.
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	o.cmd.WaitDelay = stopGrace // for children that stay behind and hold its output open
	if err := o.launch(); err != nil {
		return fmt.Errorf("start %s: %w", o.name, err)
	}
	select {
	case <-ready.mark:
		o.said = true
		return nil
	case err := <-o.ended:
		o.ended <- err
		return o.endedEarly("before")
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), o.stop())
	case <-time.After(limit):
	}
	if silent {
		return nil
	}
	return errors.Join(fmt.Errorf("%s has not attached within %v: %s", o.name, limit, o.tells), o.stop())
}

// launch starts the process and waits for its end in a thread that lives as long: the kernel takes the
// end of the thread that started a process for the death of its parent.
func (o *observer) launch() error {
	o.ended = make(chan error, 1)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		err := o.cmd.Start()
		started <- err
		if err == nil {
			o.ended <- o.cmd.Wait()
		}
	}()
	return <-started
}

// cpu is the CPU time in ns that its processes have used, those that are still there; unknown when the
// first has left the others behind.
func (o *observer) cpu() (ns int64, known bool) {
	pid := uint32(o.cmd.Process.Pid)
	times := cpuTimes(append([]uint32{pid}, attach.Children(pid)...))
	for _, t := range times {
		ns += t
	}
	_, known = times[pid]
	return ns, known
}

// stop ends the process in the way it likes, and returns when all that writes where it wrote has
// ended. It is an error if it had ended before.
func (o *observer) stop() error {
	var err error
	select {
	case <-o.ended:
		err = o.endedEarly("during")
	default:
		err = o.interrupt()
	}
	if s := o.cmd.ProcessState; s != nil {
		o.total = int64(s.UserTime() + s.SystemTime())
	}
	return err
}

// endedEarly says how the process ended, and what it had to say.
func (o *observer) endedEarly(when string) error {
	said := o.tells.String()
	if said == "" {
		said = "it said nothing"
	}
	return fmt.Errorf("%s ended %s the load: %s%s: %s", o.name, when, o.cmd.ProcessState, o.sweep(), said)
}

// sweep kills what a process that has ended left in its group, which would observe the next loads as
// well, and says so.
func (o *observer) sweep() string {
	if syscall.Kill(-o.cmd.Process.Pid, syscall.SIGKILL) != nil {
		return ""
	}
	return ", and left processes behind: let its command stay until they have ended"
}

func (o *observer) interrupt() error {
	group := -o.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGINT) // one that ends by itself just now is reported below
	select {
	case err := <-o.ended:
		o.sweep() // what did not hold its output
		if errors.Is(err, exec.ErrWaitDelay) {
			return fmt.Errorf("%s left processes behind: let its command end them on SIGINT", o.name)
		}
		if err != nil && (o.exits || !interrupted(o.cmd.ProcessState)) {
			return fmt.Errorf("%s did not end well: %w: %s", o.name, err, o.tells)
		}
		return nil
	case <-time.After(stopGrace):
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-o.ended
		return fmt.Errorf("%s did not end within %v of SIGINT: %s", o.name, stopGrace, o.tells)
	}
}

// interrupted says whether a process ended as one does that gets SIGINT and handles it no further.
func interrupted(s *os.ProcessState) bool {
	const byShell = 128 + int(syscall.SIGINT)
	ws, ok := s.Sys().(syscall.WaitStatus)
	return ok && (ws.Signaled() && ws.Signal() == syscall.SIGINT || ws.ExitStatus() == byShell)
}
