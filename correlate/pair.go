package correlate

// streamEnds are the messages of one request that were seen at one end of one stream.
type streamEnds struct{ sends, recvs []*crossing }

// pairLate looks again at messages of r that were seen at one end only. Where positions are
// aligned, two ends whose ranges overlap are one message that the decoders cut differently. Where
// they never were, the two ends of a message are fused when its content (id, type, chunk, length)
// stands once at each end; what remains at both ends of such a stream may be the same messages, so
// only the larger side is kept and nothing is counted twice.
func (t *Timeline) pairLate(r *request) {
	type stream struct{ sender, receiver uint32 }
	ends := map[stream]*streamEnds{}
	var order []stream
	for _, c := range r.crossings {
		if c.into != nil || c.hidden || c.from == nil || c.to == nil || (c.send != nil) == (c.recv != nil) {
			continue
		}
		k := stream{c.from.ID, c.to.ID}
		if ends[k] == nil {
			ends[k] = &streamEnds{}
			order = append(order, k)
		}
		if e := ends[k]; c.send != nil {
			e.sends = append(e.sends, c)
		} else {
			e.recvs = append(e.recvs, c)
		}
	}
	for _, k := range order {
		e := ends[k]
		if len(e.sends) == 0 || len(e.recvs) == 0 {
			continue
		}
		if to := e.sends[0].to; to.PosAbsolute || to.received.aligned {
			t.pairOverlap(e)
		} else {
			t.pairContent(e)
		}
	}
}

// pairOverlap fuses ends whose ranges overlap, where each has one candidate.
func (t *Timeline) pairOverlap(e *streamEnds) {
	for _, s := range e.sends {
		var found *crossing
		n := 0
		for _, c := range e.recvs {
			pos, _ := c.to.senderPos(c.recv.Pos)
			a, b := s.from.absolute(s.send.Pos), s.from.absolute(s.send.Pos)+s.send.End-s.send.Pos
			if c.into == nil && pos < b && a < pos+c.recv.End-c.recv.Pos {
				found = c
				n++
			}
		}
		if n == 1 && same(s.send, found.recv) {
			t.fuse(s, found)
		}
	}
}

func (t *Timeline) pairContent(e *streamEnds) {
	n := map[contentKey][2]int{}
	for _, c := range e.sends {
		k := n[keyOf(c.send)]
		n[keyOf(c.send)] = [2]int{k[0] + 1, k[1]}
	}
	for _, c := range e.recvs {
		k := n[keyOf(c.recv)]
		n[keyOf(c.recv)] = [2]int{k[0], k[1] + 1}
	}
	var sends, recvs []*crossing
	for _, s := range e.sends {
		for _, c := range e.recvs {
			if c.into == nil && keyOf(s.send) == keyOf(c.recv) && n[keyOf(s.send)] == [2]int{1, 1} && same(s.send, c.recv) {
				t.fuse(s, c)
			}
		}
		if s.recv == nil {
			sends = append(sends, s)
		}
	}
	for _, c := range e.recvs {
		if c.into == nil {
			recvs = append(recvs, c)
		}
	}
	if len(sends) < len(recvs) {
		sends, recvs = recvs, sends
	}
	for _, c := range recvs {
		c.hidden = true
	}
}
