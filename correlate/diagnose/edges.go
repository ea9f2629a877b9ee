package diagnose

import (
	"cmp"
	"slices"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/stat"
)

// Connector is all hops from one stage to another over one transport: those of one message type, or,
// in Summary.Edges, all that carry data.
type Connector struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Transport string `json:"transport"`
	Type      string `json:"type"` // "" on an edge
	// Path is how far the two ends are apart: "same process", "same host", or "unknown". Where in a
	// host a process ran is not recorded.
	Path     string    `json:"path"`
	Transit  stat.Dist `json:"transit_us"`  // send call entered → receive call returned
	Visible  stat.Dist `json:"visible_us"`  // send call entered → in the receiver's queue, at the latest; where arrivals were recorded
	Pickup   stat.Dist `json:"pickup_us"`   // send call entered → read call of its first byte entered; 0: its reader waited in it
	Copy     stat.Dist `json:"copy_us"`     // from there to the return of the read call of its last byte
	Delivery stat.Dist `json:"delivery_us"` // send call entered → segment read; messages that refer to one
	Bytes    stat.Dist `json:"bytes"`       // of the message
	ShmBytes stat.Dist `json:"shm_bytes"`
	// Handed is the sum of what is known of both: what is sent to several receivers, or again, counts
	// each time.
	Handed int64  `json:"bytes_handed"`
	Grades Grades `json:"grades"` // identity of hops; timing of send and receive
}

type connectorGather struct {
	sum                                                   Connector
	transit, visible, pickup, copied, delivery, byts, shm gather
}

type hopClass struct{ from, to, via, typ string }

// hopsGather is hops by their class.
type hopsGather map[hopClass]*connectorGather

// dataHops are the hops that carry data: those that are an input or an output of a visit.
func dataHops(q *correlate.RequestTimeline) map[int]bool {
	m := map[int]bool{}
	for i := range q.Visits {
		for _, h := range q.Visits[i].Outputs {
			m[h] = true
		}
		for j := range q.Visits[i].Inputs {
			m[q.Visits[i].Inputs[j].Hop] = true
		}
	}
	return m
}

func (l hopsGather) hop(h *correlate.Hop, typ string) {
	k := hopClass{h.From, h.To, h.Via, typ}
	g := l[k]
	if g == nil {
		g = &connectorGather{sum: Connector{From: h.From, To: h.To, Transport: h.Via, Type: typ, Path: pathOf(h), Grades: newGrades()}}
		l[k] = g
	}
	g.hop(h)
}

func (l hopsGather) list() []Connector {
	out := make([]Connector, 0, len(l))
	for _, g := range l {
		out = append(out, g.connector())
	}
	slices.SortFunc(out, func(a, b Connector) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Type, b.Type))
	})
	return out
}

// pathOf says how far apart the ends of a hop are. Both are processes that one recorder watched.
func pathOf(h *correlate.Hop) string {
	switch {
	case h.FromTGID == 0 || h.ToTGID == 0:
		return "unknown"
	case h.FromTGID == h.ToTGID:
		return "same process"
	}
	return "same host"
}

func (g *connectorGather) connector() Connector {
	c := g.sum
	c.Transit, c.Visible, c.Pickup, c.Copy, c.Delivery = g.transit.dist(), g.visible.dist(), g.pickup.dist(), g.copied.dist(), g.delivery.dist()
	c.Bytes, c.ShmBytes = g.byts.dist(), g.shm.dist()
	return c
}

func (g *connectorGather) hop(h *correlate.Hop) {
	if p := pathOf(h); p != g.sum.Path {
		g.sum.Path = "unknown"
	}
	g.transit.between(h.Send, h.Recv)
	g.visible.add(betweenNS(h.Send.NS, h.VisibleNS))
	g.pickup.add(pickup(h))
	g.copied.add(copied(h))
	g.byts.count(h.Bytes)
	if h.ShmName != "" || h.ShmBytes != nil {
		g.shm.count(h.ShmBytes)
		g.delivery.add(delivery(h))
	}
	n, _ := handed(h)
	g.sum.Handed += n
	g.sum.Grades.identity(h.Identity)
	g.sum.Grades.timing(h.Send, h.Recv)
}

// pickup is how long a message waited until its reader called for it.
func pickup(h *correlate.Hop) (float64, bool) {
	us, ok := betweenNS(h.Send.NS, h.PickedUpNS)
	return max(0, us), ok
}

// copied is the rest of the transit.
func copied(h *correlate.Hop) (float64, bool) {
	waited, ok := pickup(h)
	us, known := between(h.Send, h.Recv)
	return us - waited, ok && known
}

// delivery is until the receiver has read the segment that the message refers to.
func delivery(h *correlate.Hop) (float64, bool) {
	if h.ShmRead == nil || h.Recv.NS == nil {
		return 0, false
	}
	end := max(h.ShmRead[1], *h.Recv.NS)
	return betweenNS(h.Send.NS, &end)
}

// handed are the bytes that a hop carries, of the message and of the segment it refers to; a segment
// without a message is its own message. ok is false when a size is not known.
func handed(h *correlate.Hop) (n int64, ok bool) {
	ok = h.Bytes != nil
	if ok {
		n = *h.Bytes
	}
	if h.ShmName == "" && h.ShmBytes == nil || h.Transport == run.TransportShm {
		return n, ok
	}
	if h.ShmBytes == nil {
		return n, false
	}
	return n + *h.ShmBytes, ok
}
