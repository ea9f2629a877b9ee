package correlate

import (
	"cmp"
	"fmt"
	"slices"
)

// handOut passes finished requests to Options.Done, in the order of Result.Requests as far as that is
// known: not before those that began earlier are finished too.
func (t *Timeline) handOut(all bool) {
	if t.opt.Done == nil {
		return
	}
	for ; t.filed < len(t.results); t.filed++ {
		t.unhanded = append(t.unhanded, t.filed)
	}
	before := int64(1<<63 - 1)
	for _, r := range t.open {
		if ns := cmp.Or(r.entryNS, r.firstNS); ns != 0 && !all {
			before = min(before, ns)
		}
	}
	slices.SortFunc(t.unhanded, func(i, j int) int { return t.results[i].compare(&t.results[j]) })
	n := 0
	for n < len(t.unhanded) && t.results[t.unhanded[n]].sortNS < before {
		t.handOne(&t.results[t.unhanded[n]])
		n++
	}
	t.unhanded = slices.Delete(t.unhanded, 0, n)
}

// handOne hands a request out and forgets it, but for what tells that its ids are taken.
func (t *Timeline) handOne(b *built) {
	t.linkOne(b)
	if b.evidence || len(t.procs.byTGID) <= 1 {
		b.complete()
		t.opt.Done(b.q)
	}
	*b = built{seq: b.seq}
}

// complete adds what is known only at the end.
func (b *built) complete() {
	b.noteLate(b.q)
	fill(b.q)
}

func (b *built) noteLate(q *RequestTimeline) {
	if b.late > 0 {
		q.Notes = append(q.Notes, fmt.Sprintf("%d messages named it long after its end", b.late))
	}
}

// compare orders requests by time.
func (b *built) compare(o *built) int {
	return cmp.Or(cmp.Compare(b.sortNS, o.sortNS), cmp.Compare(b.id, o.id), cmp.Compare(b.seq, o.seq))
}

// linkOne ties a request whose id the engine never showed to the only record of the load generator
// that was on its connection at that time.
func (t *Timeline) linkOne(b *built) {
	if b.client != nil || b.conn[1] == "" {
		return
	}
	var found *client
	for _, c := range t.clients.on[b.conn] {
		if c.linked || c.sentNS == nil || b.entryNS < *c.sentNS || c.endNS != nil && b.entryNS > *c.endNS {
			continue
		}
		if found != nil {
			return
		}
		found = c
	}
	if found != nil {
		found.linked = true
		b.setClient(found)
	}
}
