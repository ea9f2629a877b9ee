package correlate

import (
	"maps"
	"slices"
)

// lockUse is who waited at a futex address, and at which of its words.
type lockUse struct {
	tids  [4]uint32
	words uint8 // bit 0: at the address itself, bit 1: four bytes on
}

const (
	// maxLocks bounds the futex addresses kept to tell locks from queues. Condition variables that are
	// made anew for every wait fill it: addresses at which one thread alone waited go first.
	maxLocks = 4096
	// maxConds bounds the condition variables that several threads wait on.
	maxConds = 32
	// interpreterBytes is how far from its condition variable the other words of an interpreter's lock
	// lie: its mutex, and the pair on which a thread that was asked to give it up waits until another
	// has taken it (CPython's gil_runtime_state: two mutexes and two condition variables, 200 bytes).
	interpreterBytes = 192
)

// lockWord names a lock by the address a thread waits at: a condition variable of glibc sends its
// waiters to two words in turn, four bytes apart (pthread_cond_t, __g_signals).
func lockWord(addr uint64) uint64 { return addr &^ 7 }

// waitsOn notes a futex wait.
func (x *process) waitsOn(addr uint64, tid uint32) {
	word := uint8(1) << (addr >> 2 & 1)
	addr = lockWord(addr)
	if x.locks == nil {
		x.locks = map[uint64]lockUse{}
	}
	l, known := x.locks[addr]
	if !known && len(x.locks) >= maxLocks {
		maps.DeleteFunc(x.locks, func(_ uint64, l lockUse) bool { return l.tids[1] == 0 })
		if len(x.locks) >= maxLocks {
			clear(x.locks)
			x.conds = nil
		}
	}
	was := l
	l.words |= word
	for i := range l.tids {
		if l.tids[i] == 0 {
			l.tids[i] = tid
		}
		if l.tids[i] == tid {
			break
		}
	}
	if l == was {
		return
	}
	x.locks[addr] = l
	if l.words == 3 && l.tids[1] != 0 && len(x.conds) < maxConds && !slices.Contains(x.conds, addr) {
		x.conds = append(x.conds, addr)
	}
}

// isLock reports that waker, too, waits on a futex address at times: then waking another thread
// there releases a lock and hands no work over. So does waking it beside a condition variable that
// both wait on: that is the lock of an interpreter, which consists of several words.
func (x *process) isLock(addr uint64, waker uint32) bool {
	addr = lockWord(addr)
	if l := x.locks[addr]; slices.Contains(l.tids[:], waker) {
		return true
	}
	for _, c := range x.conds {
		if max(c, addr)-min(c, addr) > interpreterBytes {
			continue
		}
		if l := x.locks[c]; slices.Contains(l.tids[:], waker) {
			return true
		}
	}
	return false
}

// shared reports that more than one thread waits on a futex address at times.
func (x *process) shared(addr uint64) bool { return x.locks[lockWord(addr)].tids[1] != 0 }
