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
type waiter struct {
	f   *os.File
	raw syscall.RawConn
}

func newWaiter(ring *ebpf.Map) (*waiter, error) {
	fd, err := unix.FcntlInt(uintptr(ring.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else the runtime does not poll it
		unix.Close(fd)
		return nil, err
	}
	w := &waiter{f: os.NewFile(uintptr(fd), "ring buffer")}
	if w.raw, err = w.f.SyscallConn(); err == nil {
		err = w.f.SetReadDeadline(time.Time{})
	}
	if err != nil {
		w.f.Close()
		return nil, err
	}
	return w, nil
}

// until returns at the given time, at the kernel's word, or, with that, when the context ends. To begin
// the wait is to forget what the kernel said before, so look is called after that, once; true or an
// error from it is returned without waiting.
func (w *waiter) until(ctx context.Context, t time.Time, look func() (bool, error)) error {
	if err := w.f.SetReadDeadline(t); err != nil {
		return fmt.Errorf("wait for the ring buffer: %w", err)
	}
	defer context.AfterFunc(ctx, w.wake)()
	looked := false
	var failed error
	err := w.raw.Read(func(uintptr) (done bool) {
		if looked {
			return true
		}
		looked = true
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

func (w *waiter) wake() { _ = w.f.SetReadDeadline(time.Unix(1, 0)) } // fails only on a closed file

func (w *waiter) Close() error { return w.f.Close() }
