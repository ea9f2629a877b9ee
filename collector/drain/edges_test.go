package drain_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
)

const lastWords = "the last bytes before a FIN"

// edges makes calls whose result is not simply "so many bytes of the buffer, of this stream".
func edges() {
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	in.ReadString('\n')
	lastWithFIN()
	truncated()
	spliced()
	manyMessages()
	packets()
	fmt.Println("done")
	in.ReadString('\n')
}

// lastWithFIN reads the end of a stream together with the FIN: the server has closed before.
func lastWithFIN() {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	c, _ := net.Dial("tcp", l.Addr().String())
	s, _ := l.Accept()
	s.Write([]byte(lastWords))
	s.Close()
	raw, _ := c.(*net.TCPConn).SyscallConn()
	raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		for p[0].Revents&unix.POLLRDHUP == 0 {
			unix.Poll(p, -1)
		}
		return true
	})
	c.Read(make([]byte, 512))
}

// truncated receives a datagram of 1009 bytes in a buffer of 10, and asks how large it was.
func truncated() {
	p, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	unix.Write(p[0], make([]byte, 1009))
	unix.Recvfrom(p[1], make([]byte, 10), unix.MSG_TRUNC)
}

// spliced moves bytes from a pipe into a socket right after a send on that socket.
func spliced() {
	p, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	var q [2]int
	unix.Pipe(q[:])
	unix.Write(q[1], make([]byte, 7))
	unix.Write(p[0], make([]byte, 3))
	unix.Splice(q[0], nil, p[0], nil, 7, 0)
	unix.Read(p[1], make([]byte, 64))
}

// mmsghdr is struct mmsghdr of the kernel.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// The messages of one sendmmsg: more than a record's scan of buffers, and each of its own length.
const mmsgCount, mmsgLen = 101, 7

// manyMessages sends and receives them in one call each, on a stream.
func manyMessages() {
	p, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	buf := make([]byte, mmsgCount*mmsgLen)
	vec := make([]mmsghdr, mmsgCount)
	iov := make([]unix.Iovec, mmsgCount)
	for i := range vec {
		iov[i].Base = &buf[i*mmsgLen]
		iov[i].SetLen(mmsgLen)
		vec[i].hdr.Iov = &iov[i]
		vec[i].hdr.SetIovlen(1)
	}
	for _, c := range []struct {
		nr uintptr
		fd int
	}{{unix.SYS_SENDMMSG, p[0]}, {unix.SYS_RECVMMSG, p[1]}} {
		unix.Syscall6(c.nr, uintptr(c.fd), uintptr(unsafe.Pointer(&vec[0])), mmsgCount, 0, 0, 0)
	}
	runtime.KeepAlive(buf)
}

// packetLen is the length of a message that its receiver has no room for.
const packetLen = 1013

func packets() {
	p, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	unix.Write(p[0], make([]byte, packetLen))
	unix.Read(p[1], make([]byte, 10))
}

// A call of many messages is counted whole; a socket of packets is no stream.
func TestManyMessagesAndPackets(t *testing.T) {
	needRoot(t)
	pid, step, end := startChildAs(t, "edges")
	r := record(t, attach.Options{}, pid)
	step()
	end()
	r.stop()
	moved := map[run.Call]int64{}
	packets := 0
	for _, x := range r.sink.io {
		if x.Call == unix.SYS_SENDMMSG || x.Call == unix.SYS_RECVMMSG {
			moved[x.Call] += x.Ret
		}
		if x.Ret == packetLen {
			packets++
			if tr := r.sink.eps[x.EP].Transport; tr != run.TransportUnixDG {
				t.Errorf("a socket of packets is taken for %v", tr)
			}
		}
	}
	if moved[unix.SYS_SENDMMSG] != mmsgCount*mmsgLen || moved[unix.SYS_RECVMMSG] != mmsgCount*mmsgLen {
		t.Errorf("moved %v, want %d each", moved, mmsgCount*mmsgLen)
	}
	if packets != 1 || len(r.sink.loss) > 0 {
		t.Errorf("%d packets sent, losses %v", packets, r.sink.loss)
	}
}

func TestEdgesOfCalls(t *testing.T) {
	needRoot(t)
	pid, step, end := startChildAs(t, "edges")
	r := record(t, attach.Options{}, pid)
	step()
	end()
	r.stop()
	at := map[run.Dir]uint64{}
	var datagram, spliceIn bool
	for _, x := range r.sink.io {
		switch {
		case x.Ret == int64(len(lastWords)) && r.sink.eps[x.EP].Transport == run.TransportTCP:
			at[x.Dir] = x.Pos
		case x.Ret == 1009 && x.Dir == run.Recv:
			datagram = true
			if x.Captured != 0 {
				t.Errorf("%d bytes captured of a buffer that holds 10", x.Captured)
			}
		case x.Call == unix.SYS_SPLICE && x.Dir == run.Send:
			spliceIn = true
			if x.Ret != 7 || x.Pos != 3 || x.Queued != -1 {
				t.Errorf("splice moved %d bytes at %d with %d queued, want 7 at 3 with -1: what the call before saw is not its own", x.Ret, x.Pos, x.Queued)
			}
		}
	}
	if len(at) != 2 || at[run.Send] != at[run.Recv] {
		t.Errorf("sent at %d, received at %d", at[run.Send], at[run.Recv])
	}
	if !datagram || !spliceIn {
		t.Errorf("datagram seen %v, splice seen %v", datagram, spliceIn)
	}
}
