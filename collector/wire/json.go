package wire

import (
	"bytes"
	"strconv"
)

// json walks one JSON value without building it. Text that ends early is a cut, not an error.
type json struct {
	b []byte
	f *fields
}

// walkJSON walks a payload that holds one value and white space.
func walkJSON(b []byte, f *fields) walked {
	p := json{b: b, f: f}
	w := p.value(0)
	f.finish()
	if w == walkWhole && len(bytes.TrimSpace(p.b)) > 0 {
		return walkBad
	}
	return w
}

// peek returns the next byte that is not white space.
func (p *json) peek() (byte, bool) {
	for i, c := range p.b {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			p.b = p.b[i:]
			return c, true
		}
	}
	p.b = nil
	return 0, false
}

func (p *json) value(depth int) walked {
	c, ok := p.peek()
	if !ok || depth >= maxDepth {
		return walkCut
	}
	switch {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		s, plain, w := p.text()
		switch {
		case w != walkWhole:
			p.f.cut()
			return w
		case plain:
			p.f.str(s)
		default: // an escape: not id-shaped, but not empty either
			p.f.flag(true)
		}
		return walkWhole
	}
	return p.scalar()
}

// text reads a string; plain: it has no escapes, so its bytes are its value.
func (p *json) text() (s []byte, plain bool, w walked) {
	plain = true
	for i := 1; i < len(p.b); i++ {
		switch p.b[i] {
		case '\\':
			plain = false
			i++
		case '"':
			s, p.b = p.b[1:i], p.b[i+1:]
			return s, plain, walkWhole
		}
	}
	p.b = nil
	return nil, false, walkCut
}

func (p *json) scalar() walked {
	n := 0
	for n < len(p.b) && (idByte[p.b[n]]) && p.b[n] != ':' && p.b[n] != '}' && p.b[n] != '{' {
		n++
	}
	word := p.b[:n]
	if n == len(p.b) && n > 0 {
		p.b = nil
		return walkCut // "1" may be the head of "12"
	}
	p.b = p.b[n:]
	switch string(word) {
	case "true", "false", "null":
		p.f.flag(word[0] == 't')
		return walkWhole
	case "":
		return walkBad
	}
	if v, err := strconv.ParseInt(string(word), 10, 64); err == nil {
		p.f.num(v)
		return walkWhole
	}
	if word[0] == '-' || word[0] >= '0' && word[0] <= '9' || bytes.Equal(word, []byte("NaN")) {
		p.f.flag(true)
		return walkWhole
	}
	return walkBad
}

func (p *json) object(depth int) walked {
	p.b = p.b[1:]
	if !p.f.open(true) {
		return walkCut
	}
	for first := true; ; first = false {
		c, ok := p.peek()
		switch {
		case !ok:
			return walkCut
		case c == '}':
			p.b = p.b[1:]
			p.f.shut()
			return walkWhole
		case !first && c == ',':
			p.b = p.b[1:]
			if c, ok = p.peek(); !ok {
				return walkCut
			}
		case !first:
			return walkBad
		}
		if c != '"' {
			return walkBad
		}
		if w := p.member(depth); w != walkWhole {
			return w
		}
	}
}

// member reads a key, a colon and a value.
func (p *json) member(depth int) walked {
	s, plain, w := p.text()
	if w != walkWhole {
		return w
	}
	p.f.top().key = field{}
	if plain {
		p.f.key(s)
	}
	c, ok := p.peek()
	if !ok {
		return walkCut
	}
	if c != ':' {
		return walkBad
	}
	p.b = p.b[1:]
	return p.value(depth + 1)
}

func (p *json) array(depth int) walked {
	p.b = p.b[1:]
	if !p.f.open(false) {
		return walkCut
	}
	for first := true; ; first = false {
		c, ok := p.peek()
		switch {
		case !ok:
			return walkCut
		case c == ']':
			p.b = p.b[1:]
			p.f.shut()
			return walkWhole
		case !first && c == ',':
			p.b = p.b[1:]
		case !first:
			return walkBad
		}
		if w := p.value(depth + 1); w != walkWhole {
			return w
		}
	}
}
