package correlate

import "sort"

// pickUps moves the moment at which an input was in the stage's hands from the I/O thread's receive
// call to the loop's next read of that thread's signal: inputs that come in on different ways are
// taken up in an order of their own. An input in a segment is in hand once that has been read.
func (w *window) pickUps(l []hop, v *Visit) {
	if w.role.io == 0 || w.role.loop == w.role.io {
		return
	}
	loop := w.p.thread(w.role.loop)
	for i := range v.Inputs {
		in := &v.Inputs[i]
		h := &l[in.Hop]
		if in.At.Timing != TimingSeen || h.seg.by(w.p.TGID) != nil || h.c == nil || h.c.recv == nil || h.c.recv.TID != w.role.io {
			continue
		}
		at := *in.At.NS
		hi := max(min(v.Ready.hi(), w.takenBy(at)), at)
		k := sort.Search(len(loop.took), func(i int) bool { return loop.took[i].exit >= at })
		for ; k < len(loop.took) && loop.took[k].exit <= hi; k++ {
			if w.p.roles.gives[tidEP{w.role.io, loop.took[k].ep}] != 0 {
				took := loop.took[k].exit
				if o, ok := loop.nextOff(took, hi, loopSleep); ok { // it handles what it has before it waits for more
					hi = max(took, o.OutNS)
				}
				in.InHand = bounded(at, took, hi, "signal of the I/O thread read")
				break
			}
		}
	}
}

// takenBy is a moment by which the loop has taken up what the I/O thread received at ns: that one
// signals before it next sleeps, and the loop, once it has read the signal, waits for descriptors
// again only when all it was told of is taken up.
func (w *window) takenBy(ns int64) int64 {
	const never = int64(^uint64(0) >> 1)
	io, loop := w.p.thread(w.role.io), w.p.thread(w.role.loop)
	slept, ok := io.nextOff(ns, ns+maxLookNS, loopSleep)
	if !ok {
		return never
	}
	var signalled int64 // the last of this round: it may be for what was received in the same call
	k := sort.Search(len(io.gave), func(i int) bool { return io.gave[i].enter >= ns })
	for ; k < len(io.gave) && io.gave[k].enter < slept.OutNS; k++ {
		if w.p.roles.takes[tidEP{w.role.loop, io.gave[k].ep}] != 0 {
			signalled = io.gave[k].enter
		}
	}
	if signalled == 0 {
		return never // the loop was awake and needed none
	}
	k = sort.Search(len(loop.took), func(i int) bool { return loop.took[i].enter >= signalled })
	for ; k < len(loop.took); k++ {
		if w.p.roles.gives[tidEP{w.role.io, loop.took[k].ep}] == 0 {
			continue
		}
		if s, ok := loop.nextOff(loop.took[k].exit, ns+maxLookNS, loopSleep); ok {
			return s.OutNS
		}
		break
	}
	return never
}
