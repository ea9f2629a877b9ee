package loadgen

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/stageline/stageline/collector/run"
	"golang.org/x/sys/unix"
)

// stampedConn stamps every read of the raw socket, below TLS and any parser, twice: by this process
// as the read returned, and by the kernel as the last byte of it arrived (SO_TIMESTAMPNS, which for
// TCP says when the newest segment of the bytes read reached the socket). The second does not depend
// on when this process got a processor, which on a busy host is most of a client's error.
type stampedConn struct {
	net.Conn
	arrivedNS int64 // when the bytes of the last read had arrived: by the kernel, else readNS
	readNS    int64 // when the last read had returned to this process

	raw    syscall.RawConn // nil: no kernel stamps
	buf    []byte
	n      int
	errno  unix.Errno
	hdr    unix.Msghdr
	iov    unix.Iovec
	oob    [64]byte
	kernel int64 // realtime of the last read's newest byte; 0 none
	lastNS int64 // arrivedNS of that read
	try    func(fd uintptr) bool
}

func newStampedConn(nc net.Conn) *stampedConn {
	c := &stampedConn{Conn: nc}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return c
	}
	var optErr error
	err = raw.Control(func(fd uintptr) {
		optErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err != nil || optErr != nil {
		return c // stamps by this process alone are the stated fallback
	}
	c.raw, c.try = raw, c.receive
	return c
}

// Read reads from the socket and stamps what it read.
func (c *stampedConn) Read(b []byte) (int, error) {
	if c.raw == nil || len(b) == 0 {
		n, err := c.Conn.Read(b)
		c.readNS = run.Mono()
		c.arrivedNS = c.readNS
		return n, err
	}
	c.buf = b
	err := c.raw.Read(c.try)
	c.buf = nil
	switch {
	case err != nil:
		c.stampUser()
		return 0, err
	case c.errno != 0:
		return 0, &net.OpError{Op: "read", Net: "tcp", Addr: c.RemoteAddr(), Err: os.NewSyscallError("recvmsg", c.errno)}
	case c.n == 0:
		return 0, io.EOF
	}
	return c.n, nil
}

func (c *stampedConn) stampUser() {
	c.readNS = run.Mono()
	c.arrivedNS = c.readNS
}

// receive is one attempt of Read; false asks the runtime to wait until there is something to read.
func (c *stampedConn) receive(fd uintptr) bool {
	c.iov = unix.Iovec{Base: unsafe.SliceData(c.buf)}
	c.iov.SetLen(len(c.buf))
	c.hdr = unix.Msghdr{Iov: &c.iov, Iovlen: 1, Control: &c.oob[0]}
	c.hdr.SetControllen(len(c.oob))
	for {
		// Raw, because a call that never blocks need not tell the scheduler.
		n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&c.hdr)), unix.MSG_DONTWAIT)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		}
		c.stampUser()
		c.n, c.errno = int(n), errno
		if errno == 0 && n > 0 {
			c.arrive(stampOf(c.oob[:c.hdr.Controllen]))
		}
		return true
	}
}

// arrive takes the kernel's stamp of the newest segment of a read. A segment that is read in pieces
// has one time, and no read can have arrived before the one before it: the two clocks are bracketed
// anew now and then, which shifts a stamp by some nanoseconds.
func (c *stampedConn) arrive(realNS int64) {
	if realNS != 0 && realNS == c.kernel {
		c.arrivedNS = c.lastNS
		return
	}
	if at := monoOfReal(realNS, c.readNS); at > 0 {
		c.arrivedNS = max(at, c.lastNS)
	}
	c.kernel, c.lastNS = realNS, c.arrivedNS
}

// stampOf returns the realtime of an SCM_TIMESTAMPNS message, 0 when there is none.
func stampOf(oob []byte) int64 {
	const head = 16 // struct cmsghdr: length, level, type
	if len(oob) < head+16 ||
		binary.NativeEndian.Uint32(oob[8:]) != unix.SOL_SOCKET || binary.NativeEndian.Uint32(oob[12:]) != unix.SO_TIMESTAMPNS {
		return 0
	}
	sec, ns := binary.NativeEndian.Uint64(oob[head:]), binary.NativeEndian.Uint64(oob[head+8:])
	return int64(sec)*1e9 + int64(ns)
}

const (
	offsetAgeNS   = 50_000_000 // how long a bracket of the two clocks is trusted
	suspectLagNS  = 1_000_000  // a stamp this much older than its read is worth a fresh bracket
	offsetErrorNS = 5_000      // a bracket wider than this is taken again, up to three times
)

// realOffset is CLOCK_REALTIME − CLOCK_MONOTONIC and when it was measured. Both clocks are slewed
// alike, so it changes only when the time of day is set.
var realOffset struct {
	ns, atNS atomic.Int64
}

// measureOffset brackets one clock by the other and keeps the midpoint of the narrowest try.
func measureOffset() int64 {
	best, width := int64(0), int64(1<<62)
	for range 3 {
		var ts unix.Timespec
		before := run.Mono()
		if unix.ClockGettime(unix.CLOCK_REALTIME, &ts) != nil {
			return 0
		}
		after := run.Mono()
		if w := after - before; w < width {
			best, width = ts.Nano()-(before+w/2), w
		}
		if width < offsetErrorNS {
			break
		}
	}
	realOffset.ns.Store(best)
	realOffset.atNS.Store(run.Mono())
	return best
}

// monoOfReal converts a kernel stamp to the monotonic clock. It returns 0 for a stamp that cannot be
// right: later than the read that brought it, or taken across a step of the time of day.
func monoOfReal(realNS, readNS int64) int64 {
	if realNS == 0 {
		return 0
	}
	off := realOffset.ns.Load()
	if readNS-realOffset.atNS.Load() > offsetAgeNS {
		off = measureOffset()
	}
	at := realNS - off
	if at > readNS || readNS-at > suspectLagNS {
		fresh := measureOffset()
		if d := fresh - off; d > offsetErrorNS || d < -offsetErrorNS {
			return 0
		}
	}
	// The two clocks are bracketed to microseconds: a stamp that seems that much late was just now.
	if at > readNS+offsetErrorNS {
		return 0
	}
	return min(at, readNS)
}
