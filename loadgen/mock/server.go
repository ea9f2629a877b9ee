package mock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"
	"unsafe"

	"github.com/stageline/stageline/collector/run"
	"golang.org/x/sys/unix"
)

// Config is what the server answers.
type Config struct {
	TTFT   time.Duration // from the arrival of the request to the write of the first token
	ITL    time.Duration // between the tokens after it
	Tokens int           // at least 1
	Stamps bool          // keep stamps for GET /stamps; they take 8 bytes a token
}

// Server is a bound server. It serves once.
type Server struct {
	cfg    Config
	fd, ep int
	port   int
	conns  map[int]*conn
	due    dueHeap
	text   texts
	log    []*Record
	toMono int64 // CLOCK_MONOTONIC − CLOCK_REALTIME
}

// Record is what the server did for one request; times are CLOCK_MONOTONIC.
type Record struct {
	ID        string  `json:"request_id"`
	ArrivedNS int64   `json:"arrived_ns"` // by the kernel, where it says so
	DueNS     int64   `json:"due_ns"`     // when the first token was to be written
	WriteNS   []int64 `json:"write_ns"`   // just before the write of each token
}

// backlogConns is the length of the listening queue: a load begins with all its connections at once.
const backlogConns = 4096

// Check refuses what cannot be answered.
func (c *Config) Check() error {
	if c.Tokens < 1 || c.TTFT < 0 || c.ITL < 0 {
		return errors.New("mock server: want at least one token and times that are not negative")
	}
	return nil
}

// Listen binds a loopback port (0: any).
func Listen(cfg Config, port int) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mock server: socket: %w", err)
	}
	s := &Server{cfg: cfg, fd: fd, ep: -1, conns: map[int]*conn{}, text: newTexts(cfg.Tokens)}
	if err := s.listen(port); err != nil {
		s.Close()
		return nil, fmt.Errorf("mock server: listen on 127.0.0.1:%d: %w", port, err)
	}
	return s, nil
}

func (s *Server) listen(port int) error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := unix.Bind(s.fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := unix.Listen(s.fd, backlogConns); err != nil {
		return err
	}
	sa, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	s.port = sa.(*unix.SockaddrInet4).Port
	if s.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	return unix.EpollCtl(s.ep, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(s.fd)})
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(s.port)) }

// Close frees the sockets; Serve must not be running.
func (s *Server) Close() {
	for fd := range s.conns {
		unix.Close(fd)
	}
	if s.ep >= 0 {
		unix.Close(s.ep)
	}
	unix.Close(s.fd)
}

// waitNS bounds one wait, so that a cancelled server ends soon.
const waitNS = 100_000_000

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Without the 50 µs of slack that timers have by default.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	s.measureOffset()
	events := make([]unix.EpollEvent, 512)
	for ctx.Err() == nil {
		now := run.Mono()
		for len(s.due) > 0 && s.due[0].dueNS <= now {
			s.fire()
			now = run.Mono()
		}
		wait := int64(waitNS)
		if len(s.due) > 0 {
			wait = min(wait, max(0, s.due[0].dueNS-run.Mono()))
		}
		n, err := epollWait(s.ep, events, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("mock server: wait: %w", err)
		}
		for i := range events[:max(n, 0)] {
			if fd := int(events[i].Fd); fd == s.fd {
				s.accept()
			} else if c := s.conns[fd]; c != nil {
				s.readable(c)
			}
		}
	}
	return nil
}

// epollWait is epoll_pwait2, which takes nanoseconds (Linux 5.11).
func epollWait(ep int, events []unix.EpollEvent, ns int64) (int, error) {
	ts := unix.NsecToTimespec(ns)
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(ep), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (s *Server) measureOffset() {
	var ts unix.Timespec
	before := run.Mono()
	if unix.ClockGettime(unix.CLOCK_REALTIME, &ts) == nil {
		s.toMono = before + (run.Mono()-before)/2 - ts.Nano()
	}
}

func (s *Server) accept() {
	for {
		fd, _, err := unix.Accept4(s.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return // EAGAIN, or a client that has gone already
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		if unix.EpollCtl(s.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}) != nil {
			unix.Close(fd)
			continue
		}
		s.conns[fd] = &conn{fd: fd}
	}
}

func (s *Server) drop(c *conn) {
	delete(s.conns, c.fd)
	c.gone = true
	unix.Close(c.fd)
}
