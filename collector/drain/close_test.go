package drain

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/run"
)

// nothing is a sink that keeps no record.
type nothing struct{ run.Sink }

func (nothing) Endpoint(*run.Endpoint) {}
func (nothing) IO(*run.IO)             {}
func (nothing) Message(*run.Message)   {}
func (nothing) Gap(*run.Gap)           {}
func (nothing) Base(*run.Base)         {}
func (nothing) Shm(*run.Shm)           {}
func (nothing) OffCPU(*run.OffCPU)     {}
func (nothing) Proc(*run.Proc)         {}
func (nothing) Net(*run.Net)           {}
func (nothing) Loss(*run.Loss)         {}

// An endpoint that read the end of its input is let go after a long silence, and decoded again
// when it answers after all.
func TestHalfClosedComesBack(t *testing.T) {
	d := ownDrain(t)
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	buf := make([]byte, 64)
	for _, err := range []error{unix.Fstat(p[1], &st), second(unix.Write(p[0], []byte("question"))), unix.Shutdown(p[0], unix.SHUT_WR),
		second(unix.Read(p[1], buf)), second(unix.Read(p[1], buf)), d.empty()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	find := func() *endpoint { return d.find(st.Ino) }
	first := find()
	if first == nil || first.ends != endHalf {
		t.Fatalf("after the end of its input: %+v", first)
	}
	d.housekeeping(first.lastNS + halfAfter)
	if find() != first {
		t.Error("let go while it may still answer")
	}
	d.housekeeping(first.lastNS + halfAfter + 1)
	if e := find(); e != nil {
		t.Fatalf("kept after its time: %+v", e)
	}
	if _, err := unix.Write(p[1], []byte("answer")); err != nil {
		t.Fatal(err)
	}
	if err := d.empty(); err != nil {
		t.Fatal(err)
	}
	if e := find(); e == nil || e.conn == nil || e.info.PeerInode == 0 {
		t.Errorf("came back without a description or a decoder: %+v", e)
	}
}

func second(_ int, err error) error { return err }

func TestEndsOfTCP(t *testing.T) {
	for _, c := range []struct {
		states []uint16
		want   ending
	}{
		{[]uint16{1, 8}, endOpen}, // the peer has said all
		{[]uint16{1, tcpFinWait1}, endHalf},
		{[]uint16{1, 8, tcpLastAck}, endBoth},
		{[]uint16{1, tcpClose, tcpFinWait1}, endBoth},
	} {
		var e endpoint
		for _, s := range c.states {
			e.state(s)
		}
		if e.ends != c.want {
			t.Errorf("%v: got %d, want %d", c.states, e.ends, c.want)
		}
	}
}
