package wire

import "encoding/binary"

// walked is how a walk over a payload ended.
type walked uint8

const (
	walkWhole walked = iota // a complete value
	walkCut                 // the bytes ended inside it
	walkBad                 // not of this format
)

// msgpack walks one value. It allocates nothing and never looks beyond b.
type msgpack struct {
	b []byte
	f *fields
	n int // values left before the walk is given up
}

// walkMsgpack walks a payload that holds exactly one value.
func walkMsgpack(b []byte, f *fields) walked {
	p := msgpack{b: b, f: f, n: 1 << 16}
	w := p.value(0, false)
	f.finish()
	if w == walkWhole && len(p.b) > 0 {
		return walkBad
	}
	return w
}

func (p *msgpack) take(n uint64) ([]byte, bool) {
	if n > uint64(len(p.b)) {
		p.b = nil
		return nil, false
	}
	v := p.b[:n]
	p.b = p.b[n:]
	return v, true
}

// uint reads a big-endian number of n bytes.
func (p *msgpack) uint(n int) (uint64, bool) {
	v, ok := p.take(uint64(n))
	if !ok {
		return 0, false
	}
	var buf [8]byte
	copy(buf[8-n:], v)
	return binary.BigEndian.Uint64(buf[:]), true
}

func (p *msgpack) value(depth int, isKey bool) walked {
	if p.n--; p.n < 0 || depth >= maxDepth {
		return walkCut
	}
	h, ok := p.take(1)
	if !ok {
		return walkCut
	}
	switch c := h[0]; {
	case c <= 0x7f:
		p.num(int64(c), isKey)
	case c <= 0x8f:
		return p.items(uint64(c&0x0f), true, depth)
	case c <= 0x9f:
		return p.items(uint64(c&0x0f), false, depth)
	case c <= 0xbf:
		return p.text(uint64(c&0x1f), isKey)
	case c >= 0xe0:
		p.num(int64(int8(c)), isKey)
	default:
		return p.long(c, depth, isKey)
	}
	return walkWhole
}

// long reads a value whose first byte, 0xc0 … 0xdf, only gives its type.
func (p *msgpack) long(c byte, depth int, isKey bool) walked {
	switch c {
	case 0xc0, 0xc2, 0xc3:
		p.flag(c == 0xc3, isKey)
	case 0xc4, 0xc5, 0xc6:
		return p.skip(1<<(c-0xc4), 0, isKey)
	case 0xc7, 0xc8, 0xc9:
		return p.skip(1<<(c-0xc7), 1, isKey)
	case 0xca, 0xcb:
		return p.fixed(4<<(c-0xca), isKey)
	case 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3:
		n := 1 << ((c - 0xcc) & 3)
		v, ok := p.uint(n)
		if !ok {
			return walkCut
		}
		if c >= 0xd0 { // signed
			v = uint64(int64(v<<(64-8*n)) >> (64 - 8*n))
		}
		p.num(int64(v), isKey)
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return p.fixed(1+1<<(c-0xd4), isKey)
	case 0xd9, 0xda, 0xdb:
		n, ok := p.uint(1 << (c - 0xd9))
		if !ok {
			return walkCut
		}
		return p.text(n, isKey)
	case 0xdc, 0xdd, 0xde, 0xdf:
		n, ok := p.uint(2 << ((c - 0xdc) & 1))
		if !ok {
			return walkCut
		}
		return p.items(n, c >= 0xde, depth)
	default: // 0xc1 is never used
		return walkBad
	}
	return walkWhole
}

func (p *msgpack) num(v int64, isKey bool) {
	if !isKey {
		p.f.num(v)
	}
}

func (p *msgpack) flag(set, isKey bool) {
	if !isKey {
		p.f.flag(set)
	}
}

// skip passes a byte string or extension whose length has size bytes.
func (p *msgpack) skip(size int, extra uint64, isKey bool) walked {
	n, ok := p.uint(size)
	if !ok {
		return walkCut
	}
	return p.fixed(n+extra, isKey)
}

func (p *msgpack) fixed(n uint64, isKey bool) walked {
	if _, ok := p.take(n); !ok {
		return walkCut
	}
	p.flag(true, isKey)
	return walkWhole
}

func (p *msgpack) text(n uint64, isKey bool) walked {
	v, ok := p.take(n)
	switch {
	case !ok && !isKey:
		p.f.cut()
		return walkCut
	case !ok:
		return walkCut
	case isKey:
		p.f.key(v)
	default:
		p.f.str(v)
	}
	return walkWhole
}

func (p *msgpack) items(n uint64, isMap bool, depth int) walked {
	if !p.f.open(isMap) {
		return walkCut
	}
	for ; n > 0; n-- {
		if isMap {
			if w := p.mapKey(depth); w != walkWhole {
				return w
			}
		}
		if w := p.value(depth+1, false); w != walkWhole {
			return w
		}
	}
	p.f.shut()
	return walkWhole
}

// mapKey reads a key. Containers as keys are not used by any engine and end the walk.
func (p *msgpack) mapKey(depth int) walked {
	if len(p.b) > 0 {
		if c := p.b[0]; c >= 0x80 && c <= 0x9f || c >= 0xdc && c <= 0xdf {
			return walkBad
		}
	}
	p.f.top().key = field{}
	return p.value(depth+1, true)
}
