package shadow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/engine"
)

func TestChoose(t *testing.T) {
	// Process 10 writes to readers from 20 on; flags of the first ring at 0x1000, of the next at 0x2000.
	ringOf := func(readers, n int) *ring {
		l, ok := engine.RingOf((1<<20 + 1 + int64(readers)) * 10)
		if !ok {
			t.Fatalf("no ring of %d readers", readers)
		}
		r := &ring{layout: l, writer: 10, flagsIn: map[uint32]uint64{10: 0x1000 * uint64(n)}}
		for i := range uint32(readers) {
			r.readers = append(r.readers, 20+i)
			r.flagsIn[20+i] = 0x1000 * uint64(n)
		}
		return r
	}
	elsewhere := ringOf(1, 3)
	elsewhere.flagsIn = map[uint32]uint64{20: 0x9000}
	for _, c := range []struct {
		name  string
		rings []*ring
		pid   uint32
		want  string // address, bytes, chunks
	}{
		{"one reader, its writer: all chunks in three", []*ring{ringOf(1, 1)}, 10, "1000+8[0 1 2 3] 1008+8[4 5 6 7] 1010+4[8 9]"},
		{"one reader, itself: the same chunks", []*ring{ringOf(1, 1)}, 20, "1000+8[0 1 2 3] 1008+8[4 5 6 7] 1010+4[8 9]"},
		{"two readers, the writer: flags three bytes apart", []*ring{ringOf(2, 1)}, 10, "1000+8[0 1 2] 1008+8[3 4 5] 1010+8[6 7] 1018+4[8 9]"},
		{"two readers, the second", []*ring{ringOf(2, 1)}, 21, "1000+8[0 1] 1008+8[2 3 4] 1010+8[5 6 7] 1018+8[8 9]"},
		{"seven readers: a byte of its own for each chunk, and four of ten", []*ring{ringOf(7, 1)}, 10, "1000+1[0] 1008+1[1] 1010+1[2] 1018+1[3]"},
		{"two rings share", []*ring{ringOf(1, 1), ringOf(1, 2)}, 10, "1000+8[0 1 2 3] 2000+8[0 1 2 3] 1008+8[4 5 6 7] 2008+8[4 5 6 7]"},
		{"five rings: one goes without", []*ring{ringOf(1, 1), ringOf(1, 2), ringOf(1, 3), ringOf(1, 4), ringOf(1, 5)}, 10,
			"1000+8[0 1 2 3] 2000+8[0 1 2 3] 3000+8[0 1 2 3] 4000+8[0 1 2 3]"},
		{"a ring whose flags the process has nowhere to watch", []*ring{elsewhere, ringOf(1, 1)}, 10, "1000+8[0 1 2 3] 1008+8[4 5 6 7] 1010+4[8 9]"},
		{"no ring", nil, 10, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, g := range choose(c.rings, c.pid) {
				s := g.span()
				got = append(got, fmt.Sprintf("%x+%d%v", s.Addr, s.N, g.chunks))
				if s.Addr%uint64(s.N) != 0 {
					t.Errorf("%x is not aligned to %d", s.Addr, s.N)
				}
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}
