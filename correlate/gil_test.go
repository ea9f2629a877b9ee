package correlate

import "testing"

func TestLocks(t *testing.T) {
	const loop, compute, other = 1, 2, 3
	const gil, near, far, queue = 0x5000, 0x5060, 0x6000, 0x7000
	x := newProcess(0)
	x.waitsOn(near, compute)
	x.waitsOn(queue, compute)
	x.waitsOn(queue+4, compute)
	if x.isLock(near, loop) {
		t.Error("nobody but one thread waits there: no lock is known yet")
	}
	x.waitsOn(gil, loop)
	x.waitsOn(gil, compute)
	if x.isLock(near, loop) {
		t.Error("one word that two threads wait on is a lock of its own: what lies beside it is none")
	}
	x.waitsOn(gil+4, loop) // a condition variable: an interpreter's lock
	for addr, want := range map[uint64]bool{gil: true, gil + 4: true, near: true, far: false, queue: false} {
		if got := x.isLock(addr, loop); got != want {
			t.Errorf("isLock(%#x, loop) = %v", addr, got)
		}
	}
	if x.isLock(near, other) {
		t.Error("a thread that never waits for the interpreter hands over work there")
	}
	for i := range uint64(2 * maxLocks) { // locks made anew for every wait
		x.waitsOn(0x100000+i*64, compute)
	}
	if len(x.locks) > maxLocks || !x.isLock(gil, loop) || !x.isLock(near, loop) {
		t.Errorf("%d addresses kept; lock known: %v", len(x.locks), x.isLock(gil, loop))
	}
}

func TestHeldUp(t *testing.T) {
	tl := New(Options{StageOf: byComm})
	feed(t, tl, courierTrace(`
		off 20.22 9000-9300-9400 by=20.20 call=202 arg=40
		off 20.22 9500-9500-9600`))
	tl.Finish()
	x := tl.procs.at(20, baseNS+9_000_000)
	w := &window{p: x, role: x.decideRoles()}
	noCPU, lock := w.heldUp(x.thread(22), baseNS+9_100_000, baseNS+9_580_000)
	if noCPU != 180_000 || lock != 200_000 {
		t.Errorf("no CPU %d ns, lock %d ns; want 180000 and 200000", noCPU, lock)
	}
}
