package wire

import (
	"bytes"

	"github.com/stageline/stageline/collector/run"
)

// httpState is what comes next in one direction of an HTTP/1.1 connection.
type httpState uint8

const (
	httpHead    httpState = iota
	httpFixed             // body of known length
	httpSize              // chunk size line
	httpData              // chunk data
	httpDataEnd           // CRLF after it
	httpTrailer
	httpClose // body up to the end of the connection
)

// http1 decodes requests or responses; a direction carries one kind, but which one is only known
// from its first line.
//
// An exchange whose body has a length, and every request, is one message. A response that is
// chunked or ends with the connection is a message for the head, one for every part (an SSE event,
// an NDJSON line, or else an HTTP chunk or, without chunks, a call) and, when chunked, one of type
// "end" for the terminating chunk. MsgLast is on the message that ends the body; where only the end
// of the connection does, it is on SSE's [DONE] or missing.
type http1 struct {
	state    httpState
	ex       exchange
	msg      run.Message // request or response in progress
	response bool
	streamed bool
	end      uint64 // of fixed body or chunk
	body     []byte // kept head of the body, or of the chunk
	broken   bool
	parts    parts
}

func (d *http1) proto() string { return "http1" }

// reset forgets what was in progress, but for the streamed reply whose chunks may go on.
func (d *http1) reset(s *stream) {
	if d.response {
		s.conn.http.doubt()
	}
	r := http1{response: d.response, body: d.body[:0], parts: parts{buf: d.parts.buf[:0]}}
	if d.streamed && d.state != httpHead && d.state != httpClose {
		r.streamed, r.ex = true, d.ex
		r.parts.proto, r.parts.http = d.parts.proto, true
	}
	*d = r
}

func (d *http1) resume(s *stream, p uint64) (ok, more bool) {
	a := httpAt(&s.tape, p)
	if a != no {
		return a == sure, a == likely
	}
	if sse := eventAt(&s.tape, p); sse || d.streamed && d.chunkAt(&s.tape, p) {
		if !d.streamed {
			*d = *midReply()
		}
		// Without pipelining, a request that waits means that the reply before is over.
		if e := s.conn.http.answer(s.tape.at(), false, true, s); e.n != 0 {
			d.ex = e
		}
		d.ex.unsure = true
		d.state = httpSize
		return true, false
	}
	return false, false
}

func (d *http1) step(s *stream) result {
	if s.tape.empty() {
		return stepMore
	}
	switch d.state {
	case httpHead:
		return d.head(s)
	case httpFixed:
		return d.fixed(s)
	case httpSize:
		return d.size(s)
	case httpData:
		return d.data(s)
	case httpDataEnd, httpTrailer:
		return d.line(s)
	}
	return d.untilClose(s)
}

// head reads a request or response head.
func (d *http1) head(s *stream) result {
	if s.conn.http.upgraded {
		return stepOpaque
	}
	b, st := s.tape.peek(maxHTTPHead)
	if !s.open {
		// Clients may send empty lines between requests.
		if len(b) > 0 && (b[0] == '\r' || b[0] == '\n') {
			s.tape.advance(s.tape.pos + 1)
			return stepAgain
		}
		s.begin()
	}
	end := headEnd(b)
	if end < 0 {
		return d.partHead(s, b, st)
	}
	h, ok := parseHead(b[:end])
	if !ok {
		return stepBad
	}
	s.tape.advance(s.tape.pos + uint64(end))
	return d.begun(s, &h)
}

// partHead waits for the rest of a head. One that goes on beyond a captured head is reported up to
// the end of its call, because a request that came in is worth knowing; its body is not.
func (d *http1) partHead(s *stream, b []byte, st peeked) result {
	line := bytes.IndexByte(b, '\n')
	switch {
	case st == peekFull || line < 0 && !httpPrefix(b) || line >= 0 && !validLine(b[:line]):
		return stepBad
	case st == peekMore:
		return stepMore
	}
	k := s.tape.segs[s.tape.find(s.tape.pos+uint64(len(b)))].call
	h, ok := parseHead(b)
	if !ok || k.lost {
		return stepHole
	}
	d.start(s, &h)
	s.tape.advance(k.end)
	d.msg.Flags |= run.MsgTruncated
	d.send(s, &d.msg, s.openCall, k)
	return stepHole
}

// start fills the message and finds the exchange.
func (d *http1) start(s *stream, h *head) {
	x := &s.conn.http
	d.response = h.status != 0
	d.msg = run.Message{Pos: s.openPos, Proto: "http1", Chunk: -1, Flags: run.MsgFirst}
	f := s.conn.collect(true)
	h.ids(f, s.conn.rules.headers)
	d.msg.IDs = f.ids
	if d.response {
		d.ex = x.answer(s.openCall, h.status < 200, s.resynced, s)
		d.msg.Status, d.msg.Type = int32(h.status), s.conn.name(h.code)
		if h.status < 200 {
			d.msg.Flags = 0
		}
	} else {
		d.ex = x.ask(s.openCall, h.method)
		d.msg.Type = s.conn.name(h.method) + " " + path(h.target)
	}
	d.msg.Exchange = d.ex.n
}

// begun decides how the body ends.
func (d *http1) begun(s *stream, h *head) result {
	d.start(s, h)
	d.streamed, d.broken, d.body = false, false, d.body[:0]
	d.parts = parts{buf: d.parts.buf[:0]}
	none := d.response && (h.status < 200 || h.status == 204 || h.status == 304 || d.ex.method == "HEAD")
	switch {
	case h.status == 101 || d.response && d.ex.method == "CONNECT" && h.status/100 == 2:
		s.conn.http.upgraded = true
		d.finish(s)
		return stepOpaque
	case none || !d.response && !h.chunked && h.length <= 0 || d.response && !h.chunked && h.length == 0:
		d.finish(s)
	case h.chunked:
		d.state = httpSize
		d.stream(s, h)
	case h.length > 0:
		d.state, d.end = httpFixed, s.tape.pos+uint64(h.length)
	default:
		d.state = httpClose
		d.stream(s, h)
	}
	return stepAgain
}

// send completes a message at the current position.
func (d *http1) send(s *stream, m *run.Message, first, last call) {
	m.End = s.tape.pos
	m.Bytes = int64(m.End - m.Pos)
	m.Flags |= d.ex.flags()
	s.open = false
	s.emit(m, first, last)
}

// finish ends a request or response that is one message.
func (d *http1) finish(s *stream) {
	f := s.conn.collect(true)
	f.ids = d.msg.IDs
	if len(d.body) > 0 || d.broken {
		if w := walkBody(d.body, f); w == walkCut {
			d.msg.Flags |= run.MsgTruncated
		}
	}
	f.fill(&d.msg)
	if d.msg.Status == 0 || d.msg.Status >= 200 {
		d.msg.Flags |= run.MsgLast
	}
	d.state = httpHead
	d.send(s, &d.msg, s.openCall, s.tape.prev)
}

// walkBody looks for ids in a JSON body; other bodies are none of its business.
func walkBody(b []byte, f *fields) walked {
	if t := bytes.TrimLeft(b, " \t\r\n"); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
		before := *f
		w := walkJSON(t, f)
		if w == walkBad {
			*f = before
		}
		return w
	}
	if len(b) == 0 {
		return walkCut
	}
	return walkBad
}

// keep consumes the body up to d.end and keeps its head.
func (d *http1) keep(s *stream) {
	for {
		k, ok := s.tape.take(d.end)
		if !ok {
			return
		}
		if k.data == nil || d.broken {
			d.broken = true
			continue
		}
		n := min(len(k.data), maxBody-len(d.body))
		d.body = append(d.body, k.data[:n]...)
		d.broken = n < len(k.data)
	}
}

func (d *http1) fixed(s *stream) result {
	d.keep(s)
	if s.tape.pos < d.end {
		return stepMore
	}
	d.finish(s)
	return stepAgain
}
