package wire

import "encoding/binary"

// minWhole is the shortest body whose being one value is evidence: short ones are so by chance.
const minWhole = 12

// wholeMsgpack reports whether b is exactly one msgpack map or array with something in it. Only the
// structure is walked; nothing is kept.
func wholeMsgpack(b []byte) bool {
	if len(b) < minWhole || !(b[0] > 0x80 && b[0] <= 0x9f && b[0] != 0x90 || b[0] >= 0xdc && b[0] <= 0xdf) {
		return false
	}
	for left := uint64(1); left > 0; left-- {
		size, items, ok := msgpackHead(b)
		if !ok || size > uint64(len(b)) || items > uint64(len(b)) {
			return false
		}
		b = b[size:]
		left += items
	}
	return len(b) == 0
}

// msgpackHead returns the bytes of the value at the start of b without its items, and their number.
func msgpackHead(b []byte) (size, items uint64, ok bool) {
	if len(b) == 0 {
		return 0, 0, false
	}
	c := b[0]
	switch {
	case c < 0x80 || c >= 0xe0: // small integers
		return 1, 0, true
	case c < 0x90:
		return 1, 2 * uint64(c&0x0f), true
	case c < 0xa0:
		return 1, uint64(c & 0x0f), true
	case c < 0xc0:
		return 1 + uint64(c&0x1f), 0, true
	case c == 0xc1:
		return 0, 0, false
	}
	f := msgpackForms[c-0xc0]
	if len(b) < 1+f.width {
		return 0, 0, false
	}
	var buf [8]byte
	copy(buf[8-f.width:], b[1:1+f.width])
	n := binary.BigEndian.Uint64(buf[:])
	if f.perItem > 0 {
		return uint64(1 + f.width), n * f.perItem, n <= 1<<32
	}
	return uint64(1+f.width+f.fixed) + n, 0, n <= 1<<32
}

// msgpackForms are the forms c0 … df: width of the length, fixed bytes beside what it counts, and
// items for each unit of it (0: it counts bytes).
var msgpackForms = [32]struct {
	width, fixed int
	perItem      uint64
}{
	0x04: {1, 0, 0}, 0x05: {2, 0, 0}, 0x06: {4, 0, 0}, // bin
	0x07: {1, 1, 0}, 0x08: {2, 1, 0}, 0x09: {4, 1, 0}, // ext
	0x0a: {0, 4, 0}, 0x0b: {0, 8, 0}, // float
	0x0c: {0, 1, 0}, 0x0d: {0, 2, 0}, 0x0e: {0, 4, 0}, 0x0f: {0, 8, 0}, // uint
	0x10: {0, 1, 0}, 0x11: {0, 2, 0}, 0x12: {0, 4, 0}, 0x13: {0, 8, 0}, // int
	0x14: {0, 2, 0}, 0x15: {0, 3, 0}, 0x16: {0, 5, 0}, 0x17: {0, 9, 0}, 0x18: {0, 17, 0}, // fixext
	0x19: {1, 0, 0}, 0x1a: {2, 0, 0}, 0x1b: {4, 0, 0}, // str
	0x1c: {2, 0, 1}, 0x1d: {4, 0, 1}, // array
	0x1e: {2, 0, 2}, 0x1f: {4, 0, 2}, // map
}

// zmtpCommands are the commands of ZMTP 3.x: a frame that holds one and fills its call is no chance.
var zmtpCommands = map[string]bool{"READY": true, "ERROR": true, "PING": true, "PONG": true, "SUBSCRIBE": true, "CANCEL": true}

// wholeBody: the body of a frame, all of it captured, is a value that speaks for itself.
func wholeBody(h header, b []byte) bool {
	if uint64(len(b)) != h.body {
		return false
	}
	if h.command {
		return zmtpCommands[string(commandName(b))]
	}
	return wholeMsgpack(b)
}
