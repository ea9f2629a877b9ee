package correlate

import (
	"github.com/stageline/stageline/collector/run"
)

// clientTable holds the load generator's records.
type clientTable struct {
	byID   map[string]*run.Request
	list   []*run.Request
	linked map[*run.Request]bool
	on     map[[2]string][]*run.Request // by the addresses of their connection, the engine's first
}

func (c *clientTable) init() {
	c.byID, c.linked, c.on = map[string]*run.Request{}, map[*run.Request]bool{}, map[[2]string][]*run.Request{}
}

func (c *clientTable) add(q *run.Request) {
	if q.ID != "" {
		c.byID[q.ID] = q
	}
	c.list = append(c.list, q)
	if q.Local != "" {
		at := [2]string{q.Remote, q.Local}
		c.on[at] = append(c.on[at], q)
	}
}

// activate makes a request of a load generator's record whose id turned up in the engine.
func (t *Timeline) activate(c *run.Request) *request {
	r := t.newRequest(c.ID)
	t.link(r, c)
	t.own(r, c.ID, aliasSelf)
	return r
}

// link makes a load generator's record the client side of r.
func (t *Timeline) link(r *request, c *run.Request) {
	t.clients.linked[c] = true
	r.client, r.source = c, "loadgen"
	if r.id != c.ID {
		r.aliases = append(r.aliases, Alias{r.id, aliasSelf})
		r.id = c.ID
		r.dropAlias(c.ID)
	}
	if c.SentNS != nil && t.snapshotNS != 0 && *c.SentNS < t.snapshotNS {
		r.inFlight = true
	}
}

// FromEntry gives the client's moments from the engine's own read of the request's last byte, in µs.
// A moment that the client did not have is null.
type FromEntry struct {
	SentBeforeUS   *float64 `json:"send_to_entry_us"` // the client's first write → the engine's read: between the two zero points
	FirstContentUS *float64 `json:"first_content_us"`
	PlayableUS     *float64 `json:"first_playable_us"`
	EndUS          *float64 `json:"end_us"`
}

// NewFromEntry is null when there is no client or the engine's read was not seen.
func NewFromEntry(c *run.Request, entry Point) *FromEntry {
	if c == nil || entry.NS == nil {
		return nil
	}
	us := func(from, to *int64) *float64 {
		if from == nil || to == nil {
			return nil
		}
		return ptr(float64(*to-*from) / 1e3)
	}
	f := &FromEntry{SentBeforeUS: us(c.SentNS, entry.NS), FirstContentUS: us(entry.NS, c.FirstNS), EndUS: us(entry.NS, c.EndNS)}
	if c.Audio != nil {
		f.PlayableUS = us(entry.NS, c.Audio.FirstPlayableNS)
	}
	return f
}
