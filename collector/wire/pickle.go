package wire

import (
	"bytes"
	"encoding/binary"
)

// pickle reads the opcodes of a pickle (protocol 2 to 5) as tokens and executes nothing. A string
// that is a field name gives its meaning to the value that follows it, as in the items of a dict
// and in the state of an object. Containers are not followed.
type pickle struct {
	b    []byte
	f    *fields
	memo [][]byte // strings by memo index; nil for other objects
	last []byte   // string token just read, for MEMOIZE
	key  field
	keys bool // the token before was a field name
}

const maxMemo = 1024

// looksPickled reports whether b begins like a pickle of protocol 2 to 5.
func looksPickled(b []byte) bool { return len(b) >= 2 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5 }

func walkPickle(b []byte, f *fields) walked {
	p := pickle{b: b, f: f, memo: f.memo[:0]}
	defer func() { // the room is used again; the captured bytes must not be kept by it
		clear(p.memo)
		f.memo = p.memo
	}()
	f.open(true)
	w := walkWhole
	for w == walkWhole && len(p.b) > 0 {
		op := p.b[0]
		p.b = p.b[1:]
		if op == '.' {
			f.finish()
			return walkWhole
		}
		w = p.op(op)
	}
	f.finish()
	if w == walkWhole {
		w = walkCut // no STOP
	}
	return w
}

// pickleLens gives the size of the length field of opcodes that carry bytes; 0 for others.
var pickleLens = [256]int8{
	0x8c: 1, 'X': 4, 0x8d: 8, // unicode
	'C': 1, 'B': 4, 0x8e: 8, 0x96: 8, 'U': 1, 'T': 4, // bytes
	0x8a: 1, 0x8b: 4, // long
}

// pickleArgs gives the size of fixed arguments; opcodes without one are listed with 0.
var pickleArgs = func() (t [256]int8) {
	for i := range t {
		t[i] = -1
	}
	for _, c := range "()}]tldeasubo0120N" {
		t[c] = 0
	}
	for _, c := range []byte{0x81, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8f, 0x90, 0x91, 0x92, 0x93, 0x94, 0x97, 0x98, 'Q', 'R'} {
		t[c] = 0
	}
	t[0x80], t['K'], t['h'], t['q'] = 1, 1, 1, 1
	t['M'] = 2
	t['J'], t['j'], t['r'] = 4, 4, 4
	t['G'], t[0x95] = 8, 8
	t[0x82], t[0x83], t[0x84] = 1, 2, 4
	return t
}()

func (p *pickle) op(op byte) walked {
	if n := pickleLens[op]; n != 0 {
		return p.counted(op, int(n))
	}
	if op == 'c' || op == 'i' { // two lines: module and name
		for range 2 {
			i := bytes.IndexByte(p.b, '\n')
			if i < 0 {
				return walkCut
			}
			p.b = p.b[i+1:]
		}
		p.other()
		return walkWhole
	}
	n := pickleArgs[op]
	if n < 0 {
		return walkBad
	}
	if int(n) > len(p.b) {
		p.b = nil
		return walkCut
	}
	arg := p.b[:n]
	p.b = p.b[n:]
	p.simple(op, arg)
	return walkWhole
}

// counted reads a string or byte string.
func (p *pickle) counted(op byte, size int) walked {
	if len(p.b) < size {
		p.b = nil
		return walkCut
	}
	var buf [8]byte
	copy(buf[:], p.b[:size])
	n := binary.LittleEndian.Uint64(buf[:])
	p.b = p.b[size:]
	if n > uint64(len(p.b)) {
		p.b = nil
		return walkCut
	}
	v := p.b[:n]
	p.b = p.b[n:]
	if op == 0x8c || op == 'X' || op == 0x8d {
		p.text(v)
	} else {
		p.other()
	}
	return walkWhole
}

func (p *pickle) simple(op byte, arg []byte) {
	switch op {
	case 0x94: // MEMOIZE
		p.put(len(p.memo))
	case 'q':
		p.put(int(arg[0]))
	case 'r':
		p.put(int(binary.LittleEndian.Uint32(arg)))
	case 'h':
		p.get(int(arg[0]))
	case 'j':
		p.get(int(binary.LittleEndian.Uint32(arg)))
	case 'K', 'M', 'J':
		var buf [4]byte
		copy(buf[:], arg)
		p.number(int64(int32(binary.LittleEndian.Uint32(buf[:]))))
	case 0x88, 0x89: // True, False
		p.f.top().key = p.key
		p.f.flag(op == 0x88)
		p.other()
	case 0x80, 0x95, '(': // PROTO, FRAME, MARK
	default:
		p.other()
	}
}

func (p *pickle) put(i int) {
	for len(p.memo) < min(i, maxMemo) {
		p.memo = append(p.memo, nil)
	}
	if i == len(p.memo) && i < maxMemo {
		p.memo = append(p.memo, p.last)
		return
	}
	if i < len(p.memo) {
		p.memo[i] = p.last
	}
}

func (p *pickle) get(i int) {
	if i < len(p.memo) && p.memo[i] != nil {
		p.text(p.memo[i])
		return
	}
	p.other()
}

func (p *pickle) text(v []byte) {
	p.last = v
	if k := p.f.conn.rules.fields[string(v)]; !p.keys && k.is&(isID|isType|isFrom|isTo|isChunk|isShmName|isShmSize) != 0 {
		p.keys, p.key = true, k
		return
	}
	p.f.top().key = p.key
	p.f.str(v)
	p.keys, p.key = false, field{}
}

func (p *pickle) number(v int64) {
	p.last = nil
	p.f.top().key = p.key
	p.f.num(v)
	p.keys, p.key = false, field{}
}

// other is a token that is neither text nor number; it ends what a key waits for.
func (p *pickle) other() {
	p.last = nil
	p.keys, p.key = false, field{}
}
