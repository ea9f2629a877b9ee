package shadow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/collector/wire"
)

// watchedRing is a ring that the test writes, with the hits that its writes would have.
type watchedRing struct {
	*testRing
	l      *wire.Looker
	seq    map[*track]uint64
	lose   bool         // the next hits
	hold   bool         // the next hits come later, by release
	held   []attach.Hit // with their tracks
	heldOf []*track
	skew   int64 // added to the clock of the next hits
	wrote  map[string][2]int64
	putNS  int64 // the last put that was found
	out    []string
}

// newWatchedRing watches all flags of a ring of two readers, after some messages were put and read.
func newWatchedRing(t *testing.T, put int) *watchedRing {
	w := &watchedRing{testRing: newTestRing(t, put), seq: map[*track]uint64{}, wrote: map[string][2]int64{},
		l: wire.NewLooker(&wire.Rules{Name: "test/1", IDFields: []string{"req_id"}}, wire.NewIDSet())}
	for reader := -1; reader < 2; reader++ {
		for _, g := range registers(w.r.layout, reader) {
			g.ring = w.r
			w.r.tracks = append(w.r.tracks, newTrack(g, w.r.meta, run.Mono()))
		}
	}
	if err := w.r.begin(); err != nil {
		t.Fatal(err)
	}
	return w
}

// set writes a flag as the writer (-1) or a reader does, and traps.
func (w *watchedRing) set(by, chunk, i int, v byte) {
	w.t.Helper()
	before := run.Mono()
	w.flag(chunk, i, v)
	at := chunk*3 + i
	for _, t := range w.r.tracks {
		if t.reader != by || at < t.word+t.at || at >= t.word+t.at+t.n {
			continue
		}
		w.seq[t]++
		h := attach.Hit{AtNS: run.Mono() + w.skew, Seq: w.seq[t], TGID: 1, TID: 77}
		copy(h.Flags[:], w.flagsAt(t))
		switch {
		case w.lose:
		case w.hold:
			w.held, w.heldOf = append(w.held, h), append(w.heldOf, t)
		default:
			w.r.hit(t, &h)
		}
	}
	if v == 1 {
		w.wrote[fmt.Sprintf("%d %d", by, w.last(chunk))] = [2]int64{before, run.Mono() + w.skew}
	}
}

// idle is a hit of each register without a write.
func (w *watchedRing) idle() {
	for _, t := range w.r.tracks {
		w.seq[t]++
		h := attach.Hit{AtNS: run.Mono(), Seq: w.seq[t], TGID: 1, TID: 77}
		copy(h.Flags[:], w.flagsAt(t))
		w.r.hit(t, &h)
	}
}

// flagsAt are the flags in a register's 8 bytes.
func (w *watchedRing) flagsAt(t *track) []byte {
	b := make([]byte, word)
	if _, err := w.f.ReadAt(b, 10*testChunk+int64(t.word)); err != nil && t.word+word <= 30 {
		w.t.Fatal(err)
	}
	return b
}

func (w *watchedRing) release() {
	for i := range w.held {
		w.r.hit(w.heldOf[i], &w.held[i])
	}
	w.held, w.heldOf, w.hold = nil, nil, false
}

// last is the number of the message that a chunk holds.
func (w *watchedRing) last(chunk int) int {
	return w.next - 1 - (w.next-1-chunk)%10
}

// putWatched writes message number w.next. The numbers of chunks wrap, those of messages do not.
func (w *watchedRing) putWatched() {
	c := w.next % 10
	w.next++
	w.set(-1, c, 0, 0)
	w.write(body(fmt.Sprintf("req-%d", w.next-1)), int64(c)*testChunk)
	w.set(-1, c, 1, 0)
	w.set(-1, c, 2, 0)
	w.set(-1, c, 0, 1)
}

func (w *watchedRing) readWatched(reader, msg int) { w.set(reader, msg%10, 1+reader, 1) }

func (w *watchedRing) look() {
	w.t.Helper()
	if err := w.r.look(w.l, w); err != nil {
		w.t.Fatal(err)
	}
	w.r.settle(run.Mono())
}

func (w *watchedRing) message(m *run.Message) {
	if m.EP == 102 && m.Dir == run.Send {
		return // the same for the second reader
	}
	by := -1
	if m.Dir == run.Recv {
		by = int(m.EP-101) / 2
	} else {
		w.putNS = m.LastExitNS
	}
	n := strings.TrimPrefix(m.IDs[0].Value, "req-")
	exact := m.FirstEnterNS == m.LastExitNS
	true := w.wrote[fmt.Sprintf("%d %s", by, n)]
	if m.LastExitNS < true[0] || m.FirstEnterNS > true[1] {
		w.t.Errorf("message %s, end %d: %d..%d, true %v", n, by, m.FirstEnterNS, m.LastExitNS, true)
	}
	if (m.TID == 77) != exact {
		w.t.Errorf("message %s, end %d: thread %d, exact %v", n, by, m.TID, exact)
	}
	s := map[int]string{-1: "put", 0: "a", 1: "b"}[by] + n
	if !exact {
		s += "?"
	}
	w.out = append(w.out, s)
}

func TestFuse(t *testing.T) {
	for _, c := range []struct {
		name string
		put  int // messages before
		do   func(w *watchedRing)
		want string // a, b: taken by a reader; ? without an exact time
	}{
		{"put and taken", 0, func(w *watchedRing) {
			w.putWatched()
			w.look()
			w.readWatched(1, 0)
			w.readWatched(0, 0)
			w.look()
		}, "put0 a0 b0"},
		{"between two looks, some at once", 0, func(w *watchedRing) {
			for range 3 {
				w.putWatched()
			}
			for i := range 3 {
				w.readWatched(0, i)
			}
			w.readWatched(1, 0)
			w.look()
			w.readWatched(1, 1)
			w.readWatched(1, 2)
			w.look()
		}, "put0 put1 put2 a0 b0 a1 a2 b1 b2"},
		{"two laps, one after the other, on a ring that was in use: all flags are up after each", 20, func(w *watchedRing) {
			for i := range 20 {
				w.putWatched()
				w.readWatched(0, 20+i)
				w.readWatched(1, 20+i)
				w.look()
			}
		}, laps(20, 40)},
		{"a hit of the writer is lost: the moment is not known, that of the next is", 0, func(w *watchedRing) {
			w.putWatched()
			w.look()
			w.hold = true
			w.putWatched()
			w.held, w.heldOf = w.held[:len(w.held)-1], w.heldOf[:len(w.heldOf)-1] // its written flag
			w.release()
			w.look()
			w.putWatched()
			w.look()
			w.look()
			w.putWatched()
			w.look()
		}, "put0 put1? put2? put3"},
		{"a reader's hit is lost: what it would have been is not guessed", 0, func(w *watchedRing) {
			w.putWatched()
			w.putWatched()
			w.look()
			w.lose = true
			w.readWatched(0, 0)
			w.lose = false
			w.readWatched(0, 1)
			w.look()
		}, "put0 put1 a0? a1?"},
		{"a hit that comes after its look: it is waited for, in order", 0, func(w *watchedRing) {
			w.hold = true
			w.putWatched()
			w.look()
			w.readWatched(0, 0)
			w.look()
			w.out = append(w.out, "|")
			w.release()
			w.look()
		}, "| put0 a0"},
		{"a hit that does not come: not the one of the next lap either", 0, func(w *watchedRing) {
			w.lose = true
			w.putWatched()
			w.look()
			w.r.settle(run.Mono() + patienceNS)
			w.lose = false
			for i := 1; i < 11; i++ {
				w.putWatched()
				w.look()
				w.readWatched(0, i)
				w.readWatched(1, i)
			}
		}, "put0? "},
		{"the trap's clock is late: the look that saw the flag is the later bound", 0, func(w *watchedRing) {
			w.hold, w.skew = true, 5e6
			w.putWatched()
			w.look()
			w.release()
			w.r.settle(run.Mono())
		}, "put0"},
		{"taken before the clock of the put was read: the put is not after it", 0, func(w *watchedRing) {
			w.skew = 5e6
			w.putWatched()
			w.skew = 0
			w.readWatched(0, 0)
			for run.Mono() < w.wrote["0 0"][1]+5e6 { // the look is no narrower bound
			}
			w.look()
			if put, taken := w.r.exact, w.wrote["0 0"][1]; put != 2 || w.putNS > taken {
				w.t.Errorf("%d exact, put at %d, taken by %d", put, w.putNS, taken)
			}
		}, "put0 a0"},
		{"hits for nothing, of all registers after each write", 20, func(w *watchedRing) {
			for i := range 20 {
				w.putWatched()
				w.idle()
				w.readWatched(0, 20+i)
				w.idle()
				w.readWatched(1, 20+i)
				w.idle()
				w.look()
			}
		}, laps(20, 40)},
		{"no register for a chunk", 0, func(w *watchedRing) {
			w.r.tracks = w.r.tracks[1:] // of the writer, chunks 0 to 2
			w.putWatched()
			w.readWatched(0, 0)
			w.look()
		}, "put0? a0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatchedRing(t, c.put)
			w.next = c.put
			c.do(w)
			got := strings.Join(w.out, " ")
			if strings.HasSuffix(c.want, " ") && strings.HasPrefix(got, c.want) {
				got = c.want // the rest is another case's
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func laps(from, to int) string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("put%d a%d b%d", i, i, i))
	}
	return strings.Join(out, " ")
}
