package wire

import (
	"bytes"
	"math"

	"github.com/stageline/stageline/collector/run"
)

// midReply decodes a streamed reply whose head was not seen.
func midReply() *http1 {
	return &http1{state: httpSize, streamed: true, response: true, parts: parts{proto: "sse", http: true}}
}

// eventAt recognises a chunk that holds an SSE event. Nothing else begins like one.
func eventAt(t *tape, p uint64) bool {
	b, _ := t.peekAt(p, 32)
	i := bytes.IndexByte(b, '\n')
	if i < 2 || b[i-1] != '\r' || !bytes.HasPrefix(b[i+1:], []byte("data: ")) && !bytes.HasPrefix(b[i+1:], []byte("event: ")) {
		return false
	}
	n, ok := chunkSize(b[:i])
	return ok && n > 8
}

// chunkAt reports whether a chunk of the reply in progress begins at p.
func (d *http1) chunkAt(t *tape, p uint64) bool {
	b, _ := t.peekAt(p, 64)
	i := bytes.IndexByte(b, '\n')
	if i < 2 || b[i-1] != '\r' {
		return false
	}
	n, ok := chunkSize(b[:i])
	after := p + uint64(i+1) + n + 2
	switch {
	case !ok:
		return false
	case n == 0:
		return bytes.HasPrefix(b[i+1:], []byte("\r\n"))
	case d.parts.proto != "":
		return d.parts.begins(b[i+1:])
	}
	return t.callEnd(after) || after > t.end && n > 1024
}

// stream emits the head of a response that comes in parts.
func (d *http1) stream(s *stream, h *head) {
	if !d.response {
		return
	}
	d.streamed, d.parts.http = true, true
	switch {
	case bytes.HasPrefix(h.media, []byte("text/event-stream")):
		d.parts.proto = "sse"
	case bytes.Contains(h.media, []byte("ndjson")), bytes.Contains(h.media, []byte("jsonlines")):
		d.parts.proto = "ndjson"
	}
	d.send(s, &d.msg, s.openCall, s.tape.prev)
}

// size reads a chunk size line.
func (d *http1) size(s *stream) result {
	b, st := s.tape.peek(64)
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		switch {
		case st == peekFull || len(b) > 0 && !isHex(b[0]):
			return stepBad
		case st == peekHole:
			return stepHole
		}
		return stepMore
	}
	n, ok := chunkSize(b[:i])
	if !ok {
		return stepBad
	}
	if n == 0 {
		if !s.open {
			s.begin()
		}
		d.state = httpTrailer
	} else {
		d.state = httpData
		d.broken = d.broken && !d.streamed
	}
	s.tape.advance(s.tape.pos + uint64(i+1))
	d.end = s.tape.pos + n
	return stepAgain
}

func (d *http1) data(s *stream) result {
	switch {
	case !d.streamed:
		d.keep(s)
	case d.parts.proto != "":
		for {
			k, ok := s.tape.take(d.end)
			if !ok {
				break
			}
			d.parts.feed(s, k, d.ex)
		}
	default:
		if !s.open {
			s.begin()
			d.body, d.broken = d.body[:0], false
		}
		d.keep(s)
	}
	if s.tape.pos < d.end {
		return stepMore
	}
	if d.streamed && d.parts.proto != "" {
		d.parts.partEnd(s, d.end, d.ex)
	} else if d.streamed {
		d.chunk(s, s.openCall, s.tape.prev)
	}
	d.state = httpDataEnd
	return stepAgain
}

// chunk emits one chunk, or one call, of a body of no known parts.
func (d *http1) chunk(s *stream, first, last call) {
	m := run.Message{Pos: s.openPos, Proto: "http1", Type: "chunk", Chunk: -1, Exchange: d.ex.n}
	f := s.conn.collect(true)
	if walkBody(d.body, f) != walkBad {
		m.IDs = f.ids
	}
	d.send(s, &m, first, last)
}

// line reads what separates chunks, and the trailer after the last one.
func (d *http1) line(s *stream) result {
	b, st := s.tape.peek(1024)
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		switch {
		case st == peekFull:
			return stepBad
		case st == peekHole && d.state == httpDataEnd && len(b) == 0 && !s.tape.at().lost:
			// Beyond the captured head, but it can only be CRLF.
			if s.tape.end-s.tape.pos < 2 {
				return stepMore
			}
			s.tape.advance(s.tape.pos + 2)
			d.state = httpSize
			return stepAgain
		case st == peekHole:
			return stepHole
		}
		return stepMore
	}
	empty := i == 0 || i == 1 && b[0] == '\r'
	if !empty && d.state == httpDataEnd {
		return stepBad
	}
	s.tape.advance(s.tape.pos + uint64(i+1))
	switch {
	case d.state == httpDataEnd:
		d.state = httpSize
	case empty:
		d.last(s)
	}
	return stepAgain
}

// last ends a chunked body.
func (d *http1) last(s *stream) {
	if !d.streamed {
		d.finish(s)
		return
	}
	m := run.Message{Pos: s.openPos, Proto: "http1", Type: "end", Chunk: -1, Exchange: d.ex.n, Flags: run.MsgLast}
	d.state = httpHead
	d.send(s, &m, s.openCall, s.tape.prev)
}

func (d *http1) untilClose(s *stream) result {
	k, ok := s.tape.take(math.MaxUint64)
	if !ok {
		return stepMore
	}
	end := k.call.end
	if d.parts.proto != "" {
		d.parts.closing = true
		d.parts.feed(s, k, d.ex)
		if s.tape.pos == end {
			d.parts.partEnd(s, end, d.ex)
		}
		return stepAgain
	}
	if k.call.lost {
		return stepAgain
	}
	s.openPos, d.body = k.pos, append(d.body[:0], k.data[:min(len(k.data), maxBody)]...)
	s.tape.advance(end)
	d.chunk(s, k.call, k.call)
	return stepAgain
}
