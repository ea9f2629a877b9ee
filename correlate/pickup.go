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
		hi := max(v.Ready.hi(), at)
		k := sort.Search(len(loop.took), func(i int) bool { return loop.took[i].exit >= at })
		for ; k < len(loop.took) && loop.took[k].exit <= hi; k++ {
			if w.p.roles.gives[tidEP{w.role.io, loop.took[k].ep}] != 0 {
				in.InHand = bounded(at, loop.took[k].exit, hi, "signal of the I/O thread read")
				break
			}
		}
	}
}
