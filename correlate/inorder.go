package correlate

// inOrder keeps what was estimated each on its own from crossing: ready is before start, start before
// finish, and finish before the loop sends the result. A finish that lies wholly after the send is of
// another visit's work.
func (w *window) inOrder(ready, start, finish *interval) {
	if w.anchor != 0 && finish.lo > w.anchor {
		*finish = interval{lo: min(start.lo, w.anchor), ns: w.anchor, hi: w.anchor, rule: "output sent"}
	} else if w.anchor != 0 && finish.hi > w.anchor {
		finish.hi, finish.ns = w.anchor, min(finish.ns, w.anchor)
	}
	start.lo = max(start.lo, min(ready.lo, start.hi))
	if finish.hi != 0 {
		start.lo = min(start.lo, finish.hi)
	}
	finish.lo = max(finish.lo, min(start.lo, finish.hi))
	finish.ns = max(finish.ns, finish.lo)
	start.ns = max(start.lo, min(start.ns, finish.ns))
	ready.ns = min(ready.ns, max(ready.lo, start.ns))
}
