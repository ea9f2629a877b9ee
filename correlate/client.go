package correlate

import (
	"github.com/stageline/stageline/collector/run"
)

// client is a load generator's record, as far as the timeline needs it.
type client struct {
	id, state, local, remote           string
	sentNS, firstNS, endNS, playableNS *int64
	linked                             bool         // it is the client side of a request
	full                               *run.Request // nil: on the shelf
	place                              place
}

func newClient(q *run.Request) *client {
	c := &client{id: q.ID, state: q.State, local: q.Local, remote: q.Remote, sentNS: q.SentNS, firstNS: q.FirstNS, endNS: q.EndNS}
	if q.Audio != nil {
		c.playableNS = q.Audio.FirstPlayableNS
	}
	return c
}

// clientTable holds the load generator's records.
type clientTable struct {
	byID map[string]*client
	list []*client
	on   map[[2]string][]*client // by the addresses of their connection, the engine's first
}

func (t *clientTable) init() {
	t.byID, t.on = map[string]*client{}, map[[2]string][]*client{}
}

// add takes a record; connections also says where to find it by its connection.
func (t *clientTable) add(c *client, connections bool) {
	if c.id != "" {
		t.byID[c.id] = c
	}
	t.list = append(t.list, c)
	if c.local != "" && connections {
		at := [2]string{c.remote, c.local}
		t.on[at] = append(t.on[at], c)
	}
}

// activate makes a request of a load generator's record whose id turned up in the engine.
func (t *Timeline) activate(c *client) *request {
	r := t.newRequest(c.id)
	t.link(r, c)
	t.own(r, c.id, aliasSelf)
	return r
}

// link makes a load generator's record the client side of r.
func (t *Timeline) link(r *request, c *client) {
	c.linked = true
	r.client, r.source = c, "loadgen"
	if r.id != c.id {
		r.aliases = append(r.aliases, Alias{r.id, aliasSelf})
		r.id = c.id
		r.dropAlias(c.id)
	}
	if c.sentNS != nil && t.snapshotNS != 0 && *c.sentNS < t.snapshotNS {
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
	if c == nil {
		return nil
	}
	return newFromEntry(newClient(c), entry)
}

func newFromEntry(c *client, entry Point) *FromEntry {
	if c == nil || entry.NS == nil {
		return nil
	}
	us := func(from, to *int64) *float64 {
		if from == nil || to == nil {
			return nil
		}
		return ptr(float64(*to-*from) / 1e3)
	}
	return &FromEntry{SentBeforeUS: us(c.sentNS, entry.NS), FirstContentUS: us(entry.NS, c.firstNS), PlayableUS: us(entry.NS, c.playableNS), EndUS: us(entry.NS, c.endNS)}
}
