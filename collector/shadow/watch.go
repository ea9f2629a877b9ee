package shadow

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
)

// watching is the use of hardware watchpoints on the flags of rings.
type watching struct {
	whyNot error // nil: they are used
	w      *attach.Watchpoints
	of     map[watchKey]*track
	fromNS int64

	hits, exact, bounded uint64 // of rings that ended
}

type watchKey struct {
	pid  uint32
	addr uint64
}

// mapped notes where the processes have a ring's flags. A process that has them at two addresses, or
// not whole, is not watched: writes would go unseen.
func (r *ring) mapped(who []mapper) {
	r.flagsIn = map[uint32]uint64{}
	for _, x := range who {
		lo, hi := uint64(r.layout.MetaAt()), uint64(r.layout.MetaAt())+uint64(r.layout.MetaBytes())
		if !x.again && x.m.Offset <= lo && hi <= x.m.Offset+x.m.Size {
			r.flagsIn[x.p.TGID] = x.m.Addr + lo - x.m.Offset
		}
	}
}

// arm shares the debug registers of all processes among their rings, anew.
func (s *Shadow) arm() {
	x := &s.watch
	if x.w == nil && x.whyNot == nil {
		x.w, x.whyNot = attach.OpenWatchpoints()
		x.of, x.fromNS = map[watchKey]*track{}, run.Mono()
	}
	if x.whyNot != nil {
		s.pending.note("ring-not-watched", fmt.Sprintf("no watchpoints on rings, the times of their messages lie between two looks: %v", x.whyNot))
		return
	}
	s.takeHits()
	for k := range x.of {
		x.w.Unwatch(k.pid)
	}
	clear(x.of)
	_ = x.w.Read(func(*attach.Hit) {}) // of what is no longer watched; an error comes again
	pids := map[uint32]bool{}
	for _, r := range s.rings {
		r.unwatch()
		for pid := range r.flagsIn {
			pids[pid] = true
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(pids)) {
		s.armProcess(pid)
	}
	for _, r := range s.rings {
		s.pending.note("ring-watched", r.coverage())
	}
}

func (s *Shadow) armProcess(pid uint32) {
	regs := choose(s.rings, pid)
	var spans []attach.Span
	for i := range regs {
		spans = append(spans, regs[i].span())
	}
	if err := s.watch.w.Watch(pid, spans); err != nil {
		why := ""
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EBUSY) {
			why = ": something else, such as a debugger, has its debug registers"
		}
		s.pending.note("ring-not-watched", fmt.Sprintf("process %d has no watchpoints, the times of what it puts into rings and takes lie between two looks%s: %v", pid, why, err))
		return
	}
	for i, g := range regs {
		if g.ring.readMeta() != nil {
			continue // the next look says so
		}
		t := newTrack(g, g.ring.meta, run.Mono())
		g.ring.tracks = append(g.ring.tracks, t)
		s.watch.of[watchKey{pid, spans[i].Addr}] = t
	}
}

// coverage says which times of a ring are exact.
func (r *ring) coverage() string {
	end := func(who string, pid uint32, reader int) string {
		var chunks []int
		for _, t := range r.tracks {
			if t.reader == reader {
				chunks = append(chunks, t.chunks...)
			}
		}
		slices.Sort(chunks)
		return fmt.Sprintf("%s %d at %d of %d chunks %v", who, pid, len(chunks), r.layout.Chunks, chunks)
	}
	ends := []string{end("its writer", r.writer, -1)}
	for i, pid := range r.readers {
		ends = append(ends, end("reader", pid, i))
	}
	return fmt.Sprintf("ring %s has hardware watchpoints, which give exact times: of %s; other times lie between two looks", r.name, strings.Join(ends, ", "))
}

// takeHits reads what the watchpoints have found, and settles what the looks have.
func (s *Shadow) takeHits() {
	x := &s.watch
	if x.w == nil {
		return
	}
	err := x.w.Read(func(h *attach.Hit) {
		if t := x.of[watchKey{h.TGID, h.Addr}]; t != nil {
			t.ring.hit(t, h)
		}
	})
	now := run.Mono()
	for _, r := range s.rings {
		r.settle(now)
	}
	if err != nil {
		for _, r := range s.rings {
			r.unwatch()
		}
		x.close(&s.pending)
		x.whyNot = err
		s.pending.note("ring-not-watched", fmt.Sprintf("watchpoints on rings were given up: %v", err))
	}
}

// forget settles a ring that is no longer looked at.
func (x *watching) forget(r *ring) {
	r.unwatch()
	x.hits, x.exact, x.bounded = x.hits+r.hits, x.exact+r.exact, x.bounded+r.bounded
	maps.DeleteFunc(x.of, func(_ watchKey, t *track) bool { return t.ring == r })
	for pid := range r.flagsIn {
		used := false
		for k := range x.of {
			used = used || k.pid == pid
		}
		if !used && x.w != nil {
			x.w.Unwatch(pid)
		}
	}
}

// close takes all watchpoints off and says what was lost.
func (x *watching) close(q *queue) {
	if x.w == nil {
		return
	}
	n, err := x.w.Counts()
	x.w.Close()
	x.w = nil
	if err != nil {
		q.note("ring-hits", err.Error())
		return
	}
	if lost := n.Full + n.Unread; lost > 0 {
		q.losses = append(q.losses, run.Loss{FromNS: x.fromNS, ToNS: run.Mono(), Reason: "watch-full", What: "watchpoint hit", N: lost})
	}
}
