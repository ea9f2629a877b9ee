package shadow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/engine"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/collector/wire"
)

const (
	testChunk = 1 << 20
	testSize  = (testChunk + 1 + 2) * 10 // two readers
)

// testRing is a segment that the test writes as an engine would.
type testRing struct {
	t    *testing.T
	f    *os.File
	r    *ring
	next int
	got  []string
}

func newTestRing(t *testing.T, put int) *testRing {
	t.Helper()
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	w := &testRing{t: t, f: os.NewFile(uintptr(fd), "ring")}
	t.Cleanup(func() { w.f.Close() })
	if err := w.f.Truncate(testSize); err != nil {
		t.Fatal(err)
	}
	for i := range put {
		w.put(fmt.Sprintf("req-old-%d", i))
		w.read(0)
		w.read(1)
	}
	l, ok := engine.RingOf(testSize)
	if !ok || l.Readers != 2 {
		t.Fatalf("layout %+v", l)
	}
	w.r = newRing(w.f, l, "ring")
	w.r.writer, w.r.readers, w.r.ep = 10, []uint32{20, 30}, []uint32{100, 102}
	if err := w.r.begin(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *testRing) write(b []byte, at int64) {
	w.t.Helper()
	if _, err := w.f.WriteAt(b, at); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testRing) flag(chunk, i int, v byte) {
	w.write([]byte{v}, 10*testChunk+int64(chunk*3+i))
}

// body is the pickle of {"req_id": id}.
func body(id string) []byte {
	p := fmt.Sprintf("\x80\x05}\x8c\x06req_id\x8c%c%ss.", len(id), id)
	b := append([]byte{0, 0, 1}, binary.BigEndian.AppendUint32(nil, uint32(len(p)))...)
	return append(b, p...)
}

// begin and end are the two steps of an enqueue.
func (w *testRing) begin() { w.flag(w.next, 0, 0) }

func (w *testRing) end(b []byte) {
	w.write(b, int64(w.next)*testChunk)
	w.flag(w.next, 1, 0)
	w.flag(w.next, 2, 0)
	w.flag(w.next, 0, 1)
	w.next = (w.next + 1) % 10
}

func (w *testRing) put(id string) {
	w.begin()
	w.end(body(id))
}

// read marks the message put last as taken.
func (w *testRing) read(reader int) { w.flag((w.next+9)%10, 1+reader, 1) }

func (w *testRing) message(m *run.Message) {
	id := "-"
	if len(m.IDs) > 0 {
		id = m.IDs[0].Value
	}
	s := fmt.Sprintf("%s ep%d %d %s", m.Dir, m.EP, m.TGID, id)
	if m.Flags&run.MsgGuessed != 0 {
		s += " guessed"
	}
	if m.FirstEnterNS <= 0 || m.LastExitNS < m.FirstEnterNS || m.End <= m.Pos || m.Proto != run.ProtoRing {
		w.t.Errorf("%s: times %d..%d, positions %d..%d, %s", s, m.FirstEnterNS, m.LastExitNS, m.Pos, m.End, m.Proto)
	}
	w.got = append(w.got, s)
}

func (w *testRing) lapped(string, int64, int64) { w.got = append(w.got, "lapped") }

func TestLook(t *testing.T) {
	sends := func(ids ...string) string {
		var out []string
		for _, id := range ids {
			out = append(out, "send ep100 10 "+id, "send ep102 10 "+id)
		}
		return strings.Join(out, "\n")
	}
	for _, c := range []struct {
		name string
		put  int // messages before the first look
		do   func(w *testRing, look func())
		want string
	}{
		{"nothing new: nothing found", 7, func(w *testRing, look func()) { look(); look() }, ""},
		{"put, then read by one and by the other", 0, func(w *testRing, look func()) {
			w.put("req-aa1")
			look()
			w.read(1)
			look()
			look()
			w.read(0)
			look()
		}, sends("req-aa1") + "\nrecv ep103 30 req-aa1\nrecv ep101 20 req-aa1"},
		{"put and read between two looks: the flags are as before", 23, func(w *testRing, look func()) {
			w.put("req-aa1")
			w.read(0)
			w.read(1)
			look()
		}, sends("req-aa1") + "\nrecv ep101 20 req-aa1\nrecv ep103 30 req-aa1"},
		{"being written: it comes with the flag", 13, func(w *testRing, look func()) {
			w.begin()
			look()
			look()
			w.end(body("req-aa1"))
			look()
		}, sends("req-aa1")},
		{"the first change is at the border of a lap", 9, func(w *testRing, look func()) {
			w.put("req-aa1") // chunk 9
			w.put("req-aa2") // chunk 0
			look()
		}, sends("req-aa1", "req-aa2")},
		{"several between two looks come in order", 15, func(w *testRing, look func()) {
			w.put("req-aa1")
			look()
			for i := 2; i <= 5; i++ {
				w.put(fmt.Sprintf("req-aa%d", i))
			}
			look()
		}, sends("req-aa1", "req-aa2", "req-aa3", "req-aa4", "req-aa5")},
		{"read late, and the chunk written again", 10, func(w *testRing, look func()) {
			w.put("req-aa1")
			w.read(0)
			look()
			at := w.next
			w.next = (at + 9) % 10
			w.put("req-bb1") // in the same chunk: everybody has read it
			w.next = at
			w.r.next = (at + 9) % 10
			look()
		}, sends("req-aa1") + "\nrecv ep101 20 req-aa1\nrecv ep103 30 req-aa1\n" + sends("req-bb1")},
		{"round and one further: what was written over is counted, and nothing is found twice", 13, func(w *testRing, look func()) {
			w.put("req-aa0")
			look()
			for i := 1; i <= 11; i++ {
				w.put(fmt.Sprintf("req-aa%d", i))
			}
			look() // req-aa11 lies where req-aa1 was
			w.put("req-bb1")
			for range allEvery {
				look()
			}
		}, sends("req-aa0", "req-aa11", "req-aa2", "req-aa3", "req-aa4", "req-aa5", "req-aa6", "req-aa7", "req-aa8", "req-aa9") +
			"\nrecv ep101 20 req-aa0\nrecv ep103 30 req-aa0\n" + sends("req-aa10") + "\nlapped" +
			"\nrecv ep101 20 req-aa2\nrecv ep103 30 req-aa2\n" + sends("req-bb1")},
		{"round before the writer's place is known", 13, func(w *testRing, look func()) {
			for i := range 10 {
				w.put(fmt.Sprintf("req-aa%d", i))
			}
			look() // chunk 0 holds req-aa7
			w.put("req-bb1")
			for range allEvery { // the flags are as they were
				look()
			}
		}, sends("req-aa7", "req-aa8", "req-aa9", "req-aa0", "req-aa1", "req-aa2", "req-aa3", "req-aa4", "req-aa5", "req-aa6") +
			"\nlapped\nrecv ep101 20 req-aa0\nrecv ep103 30 req-aa0\n" + sends("req-bb1")},
		{"over a socket: no id, no size", 3, func(w *testRing, look func()) {
			w.begin()
			w.end([]byte{1, 0, 0})
			look()
		}, sends("-")},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTestRing(t, c.put)
			l := wire.NewLooker(&wire.Rules{Name: "test/1", IDFields: []string{"req_id"}}, wire.NewIDSet())
			c.do(w, func() {
				if err := w.r.look(l, w); err != nil {
					t.Fatal(err)
				}
			})
			if got := strings.Join(w.got, "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// A message with the bytes of the one a lap before shows by the next one, at the latest after the
// look at all chunks.
func TestSameBytes(t *testing.T) {
	w := newTestRing(t, 20)
	l := wire.NewLooker(&wire.Rules{Name: "test/1", IDFields: []string{"req_id"}}, wire.NewIDSet())
	look := func() {
		t.Helper()
		if err := w.r.look(l, w); err != nil {
			t.Fatal(err)
		}
	}
	w.put("req-aa1") // chunk 0: tells where the writer is
	look()
	w.got = nil
	w.put("req-old-11") // chunk 1 as it was
	w.read(0)
	w.read(1)
	look()
	if len(w.got) > 0 {
		t.Fatalf("found %v in bytes that are as they were", w.got)
	}
	w.put("req-aa2")
	for range allEvery {
		look()
	}
	want := "send ep100 10 req-old-11 guessed,send ep102 10 req-old-11 guessed,send ep100 10 req-aa2,send ep102 10 req-aa2"
	var sent []string
	for _, s := range w.got {
		if strings.HasPrefix(s, "send") {
			sent = append(sent, s)
		}
	}
	if got := strings.Join(sent, ","); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A segment that is cut or emptied under the shadow ends it with an error, not with a signal.
func TestCutSegment(t *testing.T) {
	l := wire.NewLooker(&wire.Rules{Name: "test/1"}, wire.NewIDSet())
	for _, size := range []int64{0, testChunk, testSize - 1} {
		w := newTestRing(t, 3)
		if err := w.f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		if err := w.r.look(l, w); !errors.Is(err, errCut) {
			t.Errorf("cut to %d bytes: %v", size, err)
		}
	}
}

// Looking allocates nothing in the target's segment: a hole stays one.
func TestLookLeavesHoles(t *testing.T) {
	w := newTestRing(t, 0)
	var before, after unix.Stat_t
	if err := unix.Fstat(w.r.fd, &before); err != nil {
		t.Fatal(err)
	}
	l := wire.NewLooker(&wire.Rules{Name: "test/1"}, wire.NewIDSet())
	for range allEvery {
		if err := w.r.look(l, w); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Fstat(w.r.fd, &after); err != nil {
		t.Fatal(err)
	}
	if after.Blocks != before.Blocks {
		t.Errorf("the segment grew from %d to %d blocks by being looked at", before.Blocks, after.Blocks)
	}
}
