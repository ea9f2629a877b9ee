package drain_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"testing"

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
