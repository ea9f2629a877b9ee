package export

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
)

// Events writes one JSON line for each point of each visit and each end of each hop, request by
// request (contract C10). The client's own events stand in requests.jsonl.
func Events(w io.Writer, r *Report) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	for i := range r.Result.Requests {
		q := &r.Result.Requests[i]
		for _, ev := range requestEvents(r.Meta, q) {
			if err := e.Encode(&ev); err != nil {
				return fmt.Errorf("write events: %w", err)
			}
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

func requestEvents(meta *run.Metadata, q *correlate.RequestTimeline) []run.Event {
	var out []run.Event
	base := run.Event{RunID: meta.RunID, RequestID: q.ID, Status: q.State}
	if q.Client != nil {
		base.SessionID, base.Attempt = q.Client.Session, q.Client.Attempt
	}
	add := func(ev run.Event, what string, p correlate.Point) {
		ev.Event, ev.MonoNS, ev.LoNS, ev.HiNS, ev.Timing = what, p.NS, p.LoNS, p.HiNS, string(p.Timing)
		if p.NS != nil {
			if wall := meta.Clocks.WallNS(*p.NS); wall != 0 {
				ev.WallNS = &wall
			}
		}
		out = append(out, ev)
	}
	entry := base
	add(entry, "entry", q.Entry)
	for i := range q.Visits {
		v := &q.Visits[i]
		ev := base
		ev.Stage, ev.ChunkID, ev.Identity = v.Stage, v.Chunk, string(v.Identity)
		add(ev, "arrival", v.Arrival)
		add(ev, "ready", v.Ready)
		add(ev, "start", v.Start)
		add(ev, "finish", v.Finish)
		add(ev, "departure", v.Departure)
	}
	for i := range q.Hops {
		h := &q.Hops[i]
		ev := base
		ev.ChunkID, ev.Identity, ev.Bytes = h.Chunk, string(h.Identity), h.Bytes
		ev.Stage = h.From
		add(ev, "hop_send "+h.Type, h.Send)
		ev.Stage = h.To
		add(ev, "hop_recv "+h.Type, h.Recv)
	}
	add(entry, "first_reply", q.Reply)
	add(entry, "exit", q.Exit)
	return out
}
