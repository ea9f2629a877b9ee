package shadow

import (
	"testing"

	"github.com/stageline/stageline/collector/wire"
)

// A segment that has the size of a ring and does not keep its rules gives messages with times and
// positions in order, and not more of them at a look than the ring has room for. The input is a list of
// acts: flags, heads of chunks, and looks.
func FuzzRing(f *testing.F) {
	const flag, head, whole, look = 0, 1, 2, 3
	whileSeen := append([]byte{head, 0, 22}, body("req-1")...)
	f.Add(append(whileSeen, flag, 0, 1, look, flag, 1, 1, look, flag, 2, 1, look))
	f.Add([]byte{whole, 0, look, whole, 1, whole, 2, look, flag, 6, 0, look, flag, 6, 1, look})
	f.Add([]byte{whole, 9, whole, 0, whole, 1, whole, 2, whole, 3, whole, 4, whole, 5, whole, 6, whole, 7, whole, 8, look, look})
	f.Add([]byte{head, 3, 8, 0, 255, 255, 255, 255, 255, 255, 255, flag, 9, 1, look})
	f.Fuzz(func(t *testing.T, in []byte) {
		w := newTestRing(t, 0)
		l := wire.NewLooker(&wire.Rules{Name: "test/1", IDFields: []string{"req_id"}}, wire.NewIDSet())
		octet := func() (b byte) {
			if len(in) > 0 {
				b, in = in[0], in[1:]
			}
			return b
		}
		for n := 0; len(in) > 0 && n < 200; n++ {
			switch octet() % 4 {
			case flag:
				w.flag(0, int(octet())%30, octet())
			case head:
				chunk, size := octet()%10, int(octet())
				size = min(size, len(in))
				w.write(in[:size], int64(chunk)*testChunk)
				in = in[size:]
			case whole:
				w.next = int(octet()) % 10
				w.put(string('a' + rune(n%20)))
			case look:
				before := len(w.got)
				if err := w.r.look(l, w); err != nil {
					t.Fatal(err)
				}
				if n := len(w.got) - before; n > 100 { // 10 chunks may be taken twice, by two readers, and a lap be told
					t.Fatalf("%d messages at one look", n)
				}
			}
		}
	})
}
