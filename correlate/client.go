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
