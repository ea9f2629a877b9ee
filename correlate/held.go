package correlate

import "github.com/stageline/stageline/collector/run"

// Held says what kept the threads that lead to a boundary from running inside its interval: the sum of
// the thread it kept longest, µs. What is left of a wide interval these threads spent at other work.
type Held struct {
	NoCPUUS float64 `json:"no_cpu_us"` // ready to run, without a CPU
	LockUS  float64 `json:"lock_us"`   // asleep on a lock that the loop uses, too
}

// heldNS is the width of an interval from which on it is said what held the threads up.
const heldNS = 1_000_000

// held notes what held threads up inside the interval of p.
func (w *window) held(p *Point, tids ...uint32) {
	if p.Timing != TimingBounded || p.hi()-p.lo() < heldNS {
		return
	}
	p.Held = &Held{}
	for _, tid := range tids {
		if tid == 0 {
			continue
		}
		noCPU, lock := w.heldUp(w.p.thread(tid), p.lo(), p.hi())
		p.Held.NoCPUUS = max(p.Held.NoCPUUS, float64(noCPU)/1e3)
		p.Held.LockUS = max(p.Held.LockUS, float64(lock)/1e3)
	}
}

// heldUp is the time in [a, b] that a thread was ready to run without a CPU, and asleep on a lock.
func (w *window) heldUp(t *thread, a, b int64) (noCPU, lock int64) {
	for _, o := range t.off[t.firstEnding(a):] {
		if o.OutNS >= b {
			break
		}
		ready := o.OutNS // since when it could run
		if o.State != run.OffPreempted {
			if ready = o.WakeNS; ready == 0 {
				continue
			}
			if o.Call == callFutex && w.p.isLock(o.Arg0, w.role.loop) {
				lock += max(0, min(b, ready)-max(a, o.OutNS))
			}
		}
		noCPU += max(0, min(b, o.InNS)-max(a, ready))
	}
	return noCPU, lock
}
