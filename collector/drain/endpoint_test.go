package drain

import (
	"testing"

	"github.com/stageline/stageline/bpf"
	"github.com/stageline/stageline/collector/run"
)

func TestSequenceUnwraps(t *testing.T) {
	var s seqUnwrap
	for _, c := range []struct {
		seq  uint32
		want uint64
	}{
		{0xffff_ff00, 0xffff_ff00},
		{0x10, 0x1_0000_0010},      // wrapped
		{0xffff_fff0, 0xffff_fff0}, // a late record from before
		{0x20, 0x1_0000_0020},
	} {
		if got := s.extend(c.seq); got != c.want {
			t.Errorf("%#x: got %#x, want %#x", c.seq, got, c.want)
		}
	}
}

// A stream is new when it begins again long after its last call, not when records are out of order.
func TestStreamRestarts(t *testing.T) {
	const last = int64(5e9)
	e := &endpoint{lastNS: last}
	e.next[run.Send] = 4096
	for _, c := range []struct {
		pos   uint64
		enter int64
		flags uint8
		want  bool
	}{
		{0, last - 50, 0, false},     // late
		{0, last + 2e9, 0, true},     // forgotten by the kernel's table
		{4096, last + 2e9, 0, false}, // goes on
		{0, last + 2e9, uint8(bpf.StagelineSlIoFlagSL_IO_POS_ABS), false}, // TCP: the kernel's own numbers
	} {
		r := &bpf.StagelineSlIo{Pos: c.pos, EnterNs: uint64(c.enter), Dir: uint8(run.Send), Flags: c.flags}
		if got := e.restarted(r); got != c.want {
			t.Errorf("position %d entered at %d: restarted %v, want %v", c.pos, c.enter, got, c.want)
		}
	}
}

func TestBaseVotes(t *testing.T) {
	for _, c := range []struct {
		name   string
		votes  []int64
		base   int64
		n, sec uint32
	}{
		{"one", []int64{0}, 0, 1, 0},
		{"a receive in flight is outvoted", []int64{-300, 0, 0}, 0, 2, 1},
		{"a tie goes to the smaller distance", []int64{-300, 0}, 0, 1, 1},
	} {
		v := baseVotes{count: map[int64]uint32{}}
		for i, b := range c.votes {
			v.add(b, int64(i+1))
		}
		if base, n, sec := v.leader(); base != c.base || n != c.n || sec != c.sec {
			t.Errorf("%s: got %d with %d against %d, want %d with %d against %d", c.name, base, n, sec, c.base, c.n, c.sec)
		}
	}
}
