package shadow

import (
	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
)

// maxPending bounds what waits to be handed over; past it messages are counted as lost.
const maxPending = 1 << 16

// queue holds records until they are handed over, channels before their messages.
type queue struct {
	endpoints []run.Endpoint
	bases     []run.Base
	messages  []run.Message
	losses    []run.Loss
	notes     []run.Note
	dropped   run.Loss
}

func (q *queue) message(m *run.Message) {
	if len(q.messages) == maxPending {
		if q.dropped.N == 0 {
			q.dropped = run.Loss{FromNS: m.FirstEnterNS, Reason: "shadow-queue", What: "message"}
		}
		q.dropped.N++
		q.dropped.ToNS = m.LastExitNS
		return
	}
	q.messages = append(q.messages, *m)
}

// lapped counts a lap at least: how many messages it held is not known.
func (q *queue) lapped(_ string, fromNS, toNS int64) {
	q.losses = append(q.losses, run.Loss{FromNS: fromNS, ToNS: toNS, Reason: "ring-lapped", What: "message", N: 1})
}

func (q *queue) note(code, text string) {
	q.notes = append(q.notes, run.Note{AtNS: run.Mono(), Level: "info", Code: code, Text: text})
}

// channel announces the two ends of a ring for one reader; their positions are the same.
func (q *queue) channel(id uint32, m attach.Mapping) {
	now := run.Mono()
	e := run.Endpoint{ID: id, Transport: run.TransportShm, Inode: m.Inode, Path: m.Name, FirstNS: now}
	q.endpoints = append(q.endpoints, e)
	e.ID++
	q.endpoints = append(q.endpoints, e)
	q.bases = append(q.bases, run.Base{Sender: id, Receiver: id + 1, Votes: 1, FirstNS: now, LastNS: now})
}

func (q *queue) to(sink run.Sink) {
	for i := range q.endpoints {
		sink.Endpoint(&q.endpoints[i])
	}
	for i := range q.bases {
		sink.Base(&q.bases[i])
	}
	for i := range q.messages {
		sink.Message(&q.messages[i])
	}
	if q.dropped.N > 0 {
		q.losses = append(q.losses, q.dropped)
	}
	for i := range q.losses {
		sink.Loss(&q.losses[i])
	}
	for i := range q.notes {
		sink.Note(&q.notes[i])
	}
}
