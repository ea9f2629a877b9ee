package drain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// waiter waits for a moment, or for the kernel to say that the ring is to be looked at before: when
// a quarter of it is full, and when a process was born that may be gone soon. It waits as a
// goroutine waits for a connection; a thread of its own costs more to wake.
//
// The moment is the kernel's to tell as well: with a timer of the Go runtime every wait would wake its
// thread twice, since that sleeps in whole milliseconds, and two other threads: its monitor, which
// keeps timers, and one that looks for work, because a timer may have brought some. All that
// takes ten times what a look at an empty ring does.
type waiter struct {
	f     *os.File // an epoll set of the ring and the timer
	raw   syscall.RawConn
	timer int
}

func newWaiter(ring *ebpf.Map) (_ *waiter, err error) {
	w := &waiter{}
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC); err != nil {
		return nil, err
	}
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, errors.Join(err, unix.Close(w.timer))
	}
	// Edges: what was told once is not told again until the kernel has more to say.
	for _, fd := range []int{ring.FD(), w.timer} {
		err = errors.Join(err, unix.EpollCtl(set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}))
	}
	err = errors.Join(err, unix.SetNonblock(set, true)) // else the runtime does not poll it
	w.f = os.NewFile(uintptr(set), "ring buffer")
	if err == nil {
		w.raw, err = w.f.SyscallConn()
	}
	if err == nil {
		err = w.f.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// until returns at the given time, at the kernel's word, or when endWith says. To begin the wait is to
// forget what the kernel said before, so look is called after that, once; true or an error from it is
// returned without waiting.
func (w *waiter) until(t time.Time, look func() (bool, error)) error {
	looked := false
	var failed error
	err := w.raw.Read(func(uintptr) (done bool) {
		if looked {
			return true
		}
		looked = true
		// Not before: to begin the wait would forget that a short time is over already.
		at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, time.Until(t).Nanoseconds()))} // 0 is never
		if failed = unix.TimerfdSettime(w.timer, 0, &at, nil); failed != nil {
			failed = fmt.Errorf("wait for the ring buffer: %w", failed)
			return true
		}
		done, failed = look()
		return done || failed != nil
	})
	if failed != nil {
		return failed
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("wait for the ring buffer: %w", err)
	}
	return nil
}

// endWith ends this wait and all later ones once the context ends. It is no part of a wait, because
// that would cost a fifth of one.
func (w *waiter) endWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = w.f.SetReadDeadline(time.Unix(1, 0)) }) // fails only on a closed file
}

func (w *waiter) Close() error { return errors.Join(w.f.Close(), unix.Close(w.timer)) }
