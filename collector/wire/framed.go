package wire

import "github.com/stageline/stageline/collector/run"

// span is where a frame's body lies in framed.body.
type span struct{ from, to int }

const maxParts = 16 // frames of one message whose bodies are kept

// framed decodes a stream of length-prefixed frames.
type framed struct {
	f       *framing
	inFrame bool
	end     uint64 // of the frame
	h       header
	broken  bool // bytes of this body are missing: what follows is not appended

	body  []byte
	parts []span
	count int // frames of the message

	greeting bool // ZMTP: the greeting comes next
}

func (d *framed) proto() string { return d.f.name }

func (d *framed) reset(*stream) {
	d.inFrame, d.count, d.body, d.parts, d.greeting = false, 0, d.body[:0], d.parts[:0], false
}

func (d *framed) resume(s *stream, p uint64) (ok, more bool) {
	if d.f == zmtpFraming {
		switch greetingAt(&s.tape, p) {
		case sure:
			d.greeting = true
			return true, false
		case likely: // its first ten bytes alone: libzmq writes them before the rest
			return false, true
		}
	}
	e := d.f.walk(&s.tape, p)
	return e.resumes(), e.more && !e.bad
}

func (d *framed) step(s *stream) result {
	if d.greeting {
		return d.greet(s)
	}
	if !d.inFrame {
		if r := d.head(s); r != stepAgain {
			return r
		}
	}
	d.take(s)
	if s.tape.pos < d.end {
		return stepMore
	}
	d.inFrame = false
	if d.h.more {
		return stepAgain
	}
	d.finish(s)
	return stepAgain
}

func (d *framed) head(s *stream) result {
	if s.tape.empty() {
		return stepMore
	}
	b, st := s.tape.peek(d.f.max)
	h, got := d.f.parse(b, false)
	switch {
	case got == headerBad:
		return stepBad
	case got == headerShort && st == peekHole:
		return stepHole
	case got == headerShort:
		return stepMore
	}
	// A command between the frames of a message (a heartbeat) does not begin or end one.
	if !s.open {
		s.begin()
		d.count, d.body, d.parts = 0, d.body[:0], d.parts[:0]
	} else if h.command {
		h.more = true
	}
	d.h, d.inFrame, d.broken = h, true, false
	s.tape.advance(s.tape.pos + uint64(h.size))
	d.end = s.tape.pos + h.body
	d.count++
	if len(d.parts) < maxParts && !(h.command && d.count > 1) {
		d.parts = append(d.parts, span{len(d.body), len(d.body)})
	} else {
		d.broken = true
	}
	return stepAgain
}

// take consumes the body as far as it has come.
func (d *framed) take(s *stream) {
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
		d.parts[len(d.parts)-1].to = len(d.body)
		d.broken = n < len(k.data)
	}
}

func (d *framed) finish(s *stream) {
	m := run.Message{Pos: s.openPos, End: s.tape.pos, Proto: d.f.name, Chunk: -1}
	m.Bytes = int64(m.End - m.Pos)
	if d.f == zmtpFraming && d.h.command && d.count == 1 {
		d.command(s, &m)
	} else {
		d.fields(s, &m)
	}
	s.open = false
	s.emit(&m, s.openCall, s.tape.prev)
}

func (d *framed) command(s *stream, m *run.Message) {
	b := d.body[d.parts[0].from:d.parts[0].to]
	if name := commandName(b); name != nil {
		m.Type = s.conn.name(name)
	} else {
		m.Type = "command"
	}
}

// fields looks into the bodies of a message.
func (d *framed) fields(s *stream, m *run.Message) {
	f := s.conn.collect(false)
	for i, p := range d.parts {
		b := d.body[p.from:p.to]
		if len(b) == 1 && len(d.parts) > i+1 && int(b[0]) < len(s.conn.rules.byteTypes) {
			f.typ, f.typAt = s.conn.rules.byteTypes[b[0]], 1
			continue
		}
		if walkPayload(b, f) == walkCut {
			m.Flags |= run.MsgTruncated
		}
	}
	f.fill(m)
}

// walkPayload recognises the format of a body by its first bytes. What turns out not to be of that
// format leaves no trace.
func walkPayload(b []byte, f *fields) walked {
	if len(b) == 0 {
		return walkBad
	}
	before := *f
	var w walked
	switch c := b[0]; {
	case looksPickled(b):
		w = walkPickle(b, f)
		if w != walkBad {
			break
		}
		*f = before
		w = walkMsgpack(b, f) // 0x80 is also an empty map
	case c >= 0x80 && c <= 0x9f || c >= 0xdc && c <= 0xdf:
		w = walkMsgpack(b, f)
	case c == '{' || c == '[':
		w = walkJSON(b, f)
	default:
		f.str(b)
		return walkWhole
	}
	if w == walkBad {
		*f = before
	}
	return w
}
