package attach

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Locks are held while a process is recorded. They are abstract unix sockets: the kernel frees them
// with their holder, so that a killed recorder never blocks the next one.
type Locks struct{ of map[uint32]int }

// Busy says that a target is being recorded already.
type Busy struct {
	PID    uint32
	Holder int // PID of the other recorder, 0 unknown
}

func (b *Busy) Error() string {
	s := fmt.Sprintf("process %d is already being recorded", b.PID)
	if b.Holder != 0 {
		s += fmt.Sprintf(" by PID %d", b.Holder)
	}
	return s + ": stop that recorder first, or use its run"
}

// Lock takes the lock of each PID, or none.
func Lock(pids []uint32) (*Locks, error) {
	l := &Locks{of: map[uint32]int{}}
	for _, pid := range pids {
		if err := l.take(pid); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// Add takes the lock of one more PID.
func (l *Locks) Add(pid uint32) error { return l.take(pid) }

func (l *Locks) take(pid uint32) error {
	addr := &unix.SockaddrUnix{Name: fmt.Sprintf("@stageline/record/%d", pid)}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("lock process %d: %w", pid, err)
	}
	err = unix.Bind(fd, addr)
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err == nil {
		l.of[pid] = fd
		return nil
	}
	unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		return &Busy{PID: pid, Holder: holder(addr)}
	}
	return fmt.Errorf("lock process %d: %w", pid, err)
}

// holder asks the kernel who listens on a lock.
func holder(addr *unix.SockaddrUnix) int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	if unix.Connect(fd, addr) != nil {
		return 0
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}

// Free gives the lock of a PID back, if it was taken: the process is gone.
func (l *Locks) Free(pid uint32) {
	if fd, ok := l.of[pid]; ok {
		unix.Close(fd)
		delete(l.of, pid)
	}
}

// Close frees the locks.
func (l *Locks) Close() error {
	var errs []error
	for _, fd := range l.of {
		errs = append(errs, unix.Close(fd))
	}
	clear(l.of)
	return errors.Join(errs...)
}

// Others lists the recorders at work on this host, for the report's ledger.
func Others() []string {
	var out []string
	eachLine("/proc/net/unix", func(f []string) {
		if len(f) >= 8 && strings.HasPrefix(f[7], "@stageline/record/") && f[3] == "00010000" {
			out = append(out, strings.TrimPrefix(f[7], "@stageline/record/"))
		}
	})
	return out
}
