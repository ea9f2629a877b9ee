package correlate

import "sort"

// phases are the steps of the payload in g from one process to another; nil when g is.
func (s *shmTable) phases(g *segment, from, to uint32) *ShmPhases {
	if g == nil {
		return nil
	}
	w, r := g.by(from), g.by(to)
	if w == r { // one process, or neither was seen
		r = nil
	}
	p := &ShmPhases{CreatedNS: known(g.created), UnlinkedNS: known(g.unlinked), Write: s.written(g, w), Read: readBy(r)}
	locks := s.locksOf(g)
	p.LockWaitUS = ShmLock{Sender: g.lockWait(locks, from), Receiver: g.lockWait(locks, to)}
	if r != nil {
		p.OpenedNS = known(r.openEndNS)
		p.Poll = g.polled(r)
	}
	return p
}

func known(ns int64) *int64 {
	if ns == 0 {
		return nil
	}
	return ptr(ns)
}

// written is the time in which the sender filled the segment: from having it mapped to unmapping it;
// where it stays mapped, to what tells others that it is whole.
func (s *shmTable) written(g *segment, u *use) *Phase {
	if u == nil {
		return nil
	}
	from, begin := u.remapEndNS, "mmap"
	if from == 0 {
		from, begin = u.truncNS, "ftruncate"
	}
	if from == 0 {
		from, begin = u.openEndNS, "open"
	}
	to, end := u.unmapNS, "munmap"
	if to < from {
		to, end = u.renameNS, "rename"
	}
	if from == 0 || to < from {
		return nil
	}
	return &Phase{from, to, begin + "→" + end}
}

// readBy is the time in which the receiver copied the payload.
func readBy(u *use) *Phase {
	if u == nil {
		return nil
	}
	from, begin := u.remapEndNS, "mmap"
	if from == 0 {
		from, begin = u.reopenNS, "open"
	}
	to, end := u.unmapNS, "munmap"
	if to < from {
		to, end = u.unlinkNS, "unlink"
	}
	if from == 0 || to < from {
		return nil
	}
	return &Phase{from, to, begin + "→" + end}
}

// polled is the receiver's looking in vain before it found the segment.
func (g *segment) polled(r *use) *ShmPoll {
	for _, p := range g.polls {
		if p.tgid != r.tgid || r.openEndNS < p.last || r.openNS == 0 {
			continue
		}
		return &ShmPoll{
			N: p.n, FromNS: p.first, LastNS: p.last, FoundNS: r.openEndNS,
			WaitUS: float64(r.openEndNS-p.first) / 1e3, JitterUS: float64(r.openEndNS-p.last) / 1e3,
		}
	}
	return nil
}

// lockSlackNS is how long before a segment its writer may have made the lock file.
const lockSlackNS = 1_000_000_000

// locksOf lists what was used as the lock of a segment: the segment itself, and files beside it whose
// name holds the segment's whole name.
func (s *shmTable) locksOf(g *segment) []*segment {
	out := []*segment{g}
	newer := sort.Search(len(s.locks), func(i int) bool { return s.locks[i].locks[0].enter > g.lastNS })
	for i := newer - 1; i >= 0; i-- {
		l := s.locks[i]
		if l.lastNS < g.firstNS()-lockSlackNS {
			continue
		}
		if l.firstNS() < g.firstNS()-lockSlackNS && l.unlinked != 0 {
			break // each payload has a lock of its own here, and older ones are no longer
		}
		if l != g && nameHolds(l.name, g.name) {
			out = append(out, l)
		}
	}
	return out
}

// lockWait is the time a process spent in calls that asked for one of the locks of a segment; nil
// when it asked for none.
func (g *segment) lockWait(locks []*segment, tgid uint32) *float64 {
	var ns int64
	n := 0
	for _, l := range locks {
		for _, c := range l.locks {
			if c.tgid == tgid && c.enter >= g.firstNS()-lockSlackNS && c.enter <= g.lastNS {
				ns += c.exit - c.enter
				n++
			}
		}
	}
	if n == 0 {
		return nil
	}
	return ptr(float64(ns) / 1e3)
}
