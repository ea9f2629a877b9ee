package wire

import (
	"bytes"

	"github.com/stageline/stageline/collector/run"
)

// parts splits a body or a stream into SSE events or NDJSON lines, each of which becomes a message.
//
// The body comes in units: HTTP chunks, or calls where there are none. Servers write an event at a
// time, so an event that is cut by a captured head is taken to end with its unit, and after missing
// bytes the next unit that begins like an event is taken to begin one.
type parts struct {
	proto   string // "sse", "ndjson"
	buf     []byte // captured bytes of the part in progress
	full    bool   // buf left bytes out
	lineLen int    // bytes of the current line
	cut     bool   // bytes of this unit are missing
	astray  bool   // units are passed over until one begins like a part
	dropped bool   // some were
	inUnit  bool
	http    bool // in the body of a response
	closing bool // no length or chunk tells the end: [DONE] does
}

// feed takes the next piece of the body.
func (p *parts) feed(s *stream, k piece, x exchange) {
	if !p.inUnit {
		p.inUnit = true
		if p.astray && k.data != nil && p.begins(k.data) {
			p.astray, p.lineLen = false, 0
			if p.dropped {
				p.dropped, s.resynced = false, true
				s.conn.stats.Resyncs++
			}
		}
	}
	if k.data == nil {
		p.cut = true
	}
	if p.astray || p.cut {
		if !s.open && !k.call.lost {
			s.addGap(k.pos, k.pos+k.n, run.GapCapture, k.call.exit)
		}
		if !s.open {
			p.astray, p.dropped = true, true
		}
		return
	}
	p.split(s, k, x)
}

// split cuts captured bytes into parts.
func (p *parts) split(s *stream, k piece, x exchange) {
	b, pos := k.data, k.pos
	for len(b) > 0 {
		if !s.open {
			if b[0] == '\n' || b[0] == '\r' {
				b, pos = b[1:], pos+1
				continue
			}
			s.open, s.openPos, s.openCall = true, pos, k.call
			p.buf, p.full, p.lineLen = p.buf[:0], false, 0
		}
		i := bytes.IndexByte(b, '\n')
		n := len(b)
		if i >= 0 {
			n = i + 1
		}
		p.keep(b[:n])
		line := n
		if i >= 0 {
			line--
			if i > 0 && b[i-1] == '\r' {
				line--
			}
		} else if b[n-1] == '\r' {
			line--
		}
		p.lineLen += line
		b, pos = b[n:], pos+uint64(n)
		if i < 0 {
			return
		}
		if p.proto == "ndjson" || p.lineLen == 0 {
			p.emit(s, pos, k.call, x, 0)
		}
		p.lineLen = 0
	}
}

func (p *parts) keep(b []byte) {
	n := min(len(b), maxBody-len(p.buf))
	p.buf = append(p.buf, b[:n]...)
	p.full = p.full || n < len(b)
}

// partEnd ends a unit at pos.
func (p *parts) partEnd(s *stream, pos uint64, x exchange) {
	if p.cut && s.open {
		p.full = true
		p.emit(s, pos, s.tape.prev, x, run.MsgTruncated)
		p.astray = true
	}
	p.cut, p.inUnit = false, false
}

// begins reports whether b looks like the start of a part.
func (p *parts) begins(b []byte) bool {
	b = bytes.TrimLeft(b, "\r\n")
	if p.proto == "ndjson" {
		return len(b) > 0 && b[0] == '{'
	}
	for _, w := range [...]string{"data:", "event:", ":", "id:", "retry:"} {
		if bytes.HasPrefix(b, []byte(w)) {
			return true
		}
	}
	return false
}

func (p *parts) emit(s *stream, end uint64, last call, x exchange, flags run.MsgFlags) {
	m := run.Message{Pos: s.openPos, End: end, Bytes: int64(end - s.openPos), Proto: p.proto, Chunk: -1, Exchange: x.n, Flags: flags | x.flags()}
	f := s.conn.collect(p.http)
	text := bytes.TrimSpace(p.buf)
	w := walkWhole
	if p.proto == "sse" {
		m.Type, w = p.event(text, f)
		if m.Type == "done" && p.closing {
			m.Flags |= run.MsgLast
		}
	} else {
		w = walkJSON(text, f)
		if p.http {
			m.Type = f.kind()
		}
	}
	if w == walkCut || p.full {
		m.Flags |= run.MsgTruncated
	}
	if w != walkBad {
		f.fill(&m)
	}
	s.open = false
	s.emit(&m, s.openCall, last)
}

// event reads the fields of one SSE event.
func (p *parts) event(text []byte, f *fields) (kind string, w walked) {
	kind, w = "comment", walkWhole
	var name []byte
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		line = bytes.TrimRight(line, "\r")
		if v, ok := bytes.CutPrefix(line, []byte("event:")); ok {
			name = bytes.TrimSpace(v)
		}
		v, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		v = bytes.TrimSpace(v)
		if bytes.Equal(v, []byte("[DONE]")) {
			return "done", walkWhole
		}
		kind = "other"
		if len(v) > 0 && v[0] == '{' {
			w = walkJSON(v, f)
			kind = f.kind()
		}
	}
	if bytes.Equal(name, []byte("error")) {
		kind = "error"
	}
	return kind, w
}

// ndjson decodes a stream of JSON lines outside HTTP.
type ndjson struct{ parts parts }

func (d *ndjson) proto() string { return "ndjson" }

func (d *ndjson) reset(*stream) { d.parts = parts{buf: d.parts.buf[:0]} }

func (d *ndjson) resume(s *stream, p uint64) (ok, more bool) {
	a := linesAt(&s.tape, p)
	return a == sure, a == maybe
}

func (d *ndjson) step(s *stream) result {
	k, ok := s.tape.take(s.tape.end)
	if !ok {
		return stepMore
	}
	d.parts.proto = "ndjson"
	d.parts.feed(s, k, exchange{})
	if s.tape.pos == k.call.end {
		if d.parts.cut {
			// A line may run over several calls, so its end is not known here.
			return stepHole
		}
		d.parts.partEnd(s, s.tape.pos, exchange{})
	}
	return stepAgain
}

// linesAt recognises JSON lines: two whole ones, or more to come.
func linesAt(t *tape, p uint64) sureness {
	b, _ := t.peekAt(p, 1)
	if len(b) == 0 || b[0] != '{' {
		return no
	}
	b, st := t.peekAt(p, maxBody)
	lines := 0
	for len(b) > 0 && b[0] == '{' {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		if !jsonObject(b[:i]) {
			return no
		}
		lines++
		b = b[i+1:]
	}
	switch {
	case lines >= 2:
		return sure
	case len(b) > 0 && b[0] != '{' || st == peekFull || st == peekHole:
		return no
	}
	return maybe
}

// jsonObject reports whether b is one JSON object, without looking at its fields.
func jsonObject(b []byte) bool {
	var f fields
	f.conn = blank
	return walkJSON(b, &f) == walkWhole
}

var blank = &Conn{rules: compile(&Rules{}), ids: NewIDSet()}
