package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kinds of load: what one turn of the generator does. Each call of it is one record.
const (
	kindUnix  = "unix"    // a message written to a unix socket and read again
	kindEvent = "eventfd" // a signal written and read again
	kindMixed = "mixed"   // both
)

const (
	threads     = 2
	turnNS      = 1_000_000 // between two bursts of a thread
	pauseNS     = 300_000_000
	lastSteps   = 3    // the step that sends all it can is so many times as long, so that the ring cannot hide a backlog
	reachedPart = 0.95 // of the rate asked for; below that a step is the most that can be sent
)

// message is a line that the recorder decodes and finds an id in.
var message = append(fmt.Appendf(nil, `{"request_id":"sl-0badcafe-000001","type":"add","data":"%s"}`, bytes.Repeat([]byte("x"), 140)), '\n')

// step is what was sent at one rate. Rate 0 asks for as much as possible.
type step struct {
	Asked  int    `json:"asked"`
	Calls  uint64 `json:"calls"`
	FromNS int64  `json:"from_ns"`
	ToNS   int64  `json:"to_ns"`
}

func (s *step) rate() float64 { return float64(s.Calls) / float64(s.ToNS-s.FromNS) * 1e9 }

// worker is one thread with descriptors of its own. It makes system calls without the runtime's
// knowledge and sleeps the same way, so that the runtime has no I/O of its own to be counted.
type worker struct {
	sock  [2]int
	event int
	buf   []byte
	calls uint64
	err   error
}

func newWorker() (*worker, error) {
	sock, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	event, err := unix.Eventfd(0, 0)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	return &worker{sock: sock, event: event, buf: make([]byte, 4096)}, nil
}

func (w *worker) move(call uintptr, fd int, b []byte) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 || n == 0 {
		w.err = errors.Join(w.err, fmt.Errorf("call %d returned %d, %v", call, n, errno))
	}
	w.calls++
}

// turn does one message, one signal or both, and returns the number of calls.
func (w *worker) turn(kind string) int {
	n := 0
	if kind != kindEvent {
		w.move(unix.SYS_WRITE, w.sock[0], message)
		w.move(unix.SYS_READ, w.sock[1], w.buf)
		n += 2
	}
	if kind != kindUnix {
		one := [8]byte{1}
		w.move(unix.SYS_WRITE, w.event, one[:])
		w.move(unix.SYS_READ, w.event, w.buf[:8])
		n += 2
	}
	return n
}

func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

func sleepUntil(ns int64) {
	ts := unix.NsecToTimespec(ns)
	unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

// run sends this thread's part of a rate from one moment to another. What was not sent in time is
// made up for, and left out when the time is over.
func (w *worker) run(kind string, rate int, from, to int64) {
	per := float64(rate) / threads / 1e9
	sent := 0
	for at := now(); at < to && w.err == nil; at = now() {
		if rate == 0 {
			for range 64 {
				w.turn(kind)
			}
			continue
		}
		for due := int(float64(at-from) * per); sent < due; {
			sent += w.turn(kind)
			if sent%64 == 0 && now() >= to {
				return
			}
		}
		sleepUntil(at - (at-from)%turnNS + turnNS)
	}
}

// generate is the process that is recorded: KIND NS RATE,RATE,…. It says which descriptors it uses,
// waits for a line, and says what it sent once it has sent all.
func generate(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: lossbench gen KIND NS RATE,…")
	}
	forNS, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	var workers []*worker
	var fds []int
	for range threads {
		w, err := newWorker()
		if err != nil {
			return err
		}
		workers = append(workers, w)
		fds = append(fds, w.sock[0], w.sock[1], w.event)
	}
	if err := json.NewEncoder(os.Stdout).Encode(fds); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	var steps []step
	for _, text := range strings.Split(args[2], ",") {
		rate, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		s, err := sendStep(workers, args[0], rate, forNS)
		if err != nil {
			return err
		}
		steps = append(steps, s)
		sleepUntil(now() + pauseNS) // so that what is still in the ring is not lost in the next step
	}
	if err := json.NewEncoder(os.Stdout).Encode(steps); err != nil {
		return err
	}
	_, _ = in.ReadString('\n') // the recorder is stopped before this process ends
	return nil
}

func sendStep(workers []*worker, kind string, rate int, forNS int64) (step, error) {
	s := step{Asked: rate, FromNS: now()}
	if rate == 0 {
		forNS *= lastSteps
	}
	s.ToNS = s.FromNS + forNS
	var all sync.WaitGroup
	for _, w := range workers {
		w.calls = 0
		all.Go(func() {
			runtime.LockOSThread()
			w.run(kind, rate, s.FromNS, s.ToNS)
		})
	}
	all.Wait()
	var errs error
	for _, w := range workers {
		s.Calls += w.calls
		errs = errors.Join(errs, w.err)
	}
	return s, errs
}
