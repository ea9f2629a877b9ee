package export

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
)

// Events writes one JSON line for each point of each visit and each end of each hop, request by
// request (contract C10). The client's own events stand in requests.jsonl.
func Events(w io.Writer, r *Report) error {
	e := NewEventWriter(w, r.Meta)
	for _, q := range r.Result.All() {
		e.Request(q)
	}
	return errors.Join(r.Result.Err(), e.Close())
}

// EventWriter writes the events of requests that come one by one.
type EventWriter struct {
	meta *run.Metadata
	b    *bufio.Writer
	e    *json.Encoder
	err  error
}

// NewEventWriter begins a list of events.
func NewEventWriter(w io.Writer, meta *run.Metadata) *EventWriter {
	b := bufio.NewWriterSize(w, 64<<10)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	return &EventWriter{meta: meta, b: b, e: e}
}

// Request writes the events of a request. An error is told by Close.
func (w *EventWriter) Request(q *correlate.RequestTimeline) {
	for _, ev := range requestEvents(w.meta, q) {
		if w.err == nil {
			w.err = w.e.Encode(&ev)
		}
	}
}

// Close ends the list and returns the first error.
func (w *EventWriter) Close() error {
	if w.err == nil {
		w.err = w.b.Flush()
	}
	if w.err != nil {
		return fmt.Errorf("write events: %w", w.err)
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
