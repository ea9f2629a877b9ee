package wire

import "encoding/binary"

// header is the part of a frame before its body.
type header struct {
	size    int    // of the header
	body    uint64 // length of the body
	more    bool   // the message continues in another frame
	command bool
}

// parsed says whether b held a header.
type parsed uint8

const (
	headerOK parsed = iota
	headerShort
	headerBad
)

// framing is a protocol of frames that begin with their length.
type framing struct {
	name string
	max  int // longest header
	// parse reads the header at the start of b. strict is for candidates that nothing vouches for.
	parse func(b []byte, strict bool) (header, parsed)
	// fits reports whether the first bytes of a body speak for this framing.
	fits func(h header, body []byte) bool
	// Evidence that is enough to believe in the framing: frames in a row, and how many of them end
	// where a call ends; fit: at least one body must fit.
	frames, aligned int
	fit             bool
	firstFits       bool // the first body must fit, or it is not this framing
}

var zmtpFraming = &framing{name: "zmtp", max: 9, parse: parseZMTP, fits: fitsZMTP, frames: 2, aligned: 2, fit: true}

// pickleFraming is that of Python's multiprocessing.Connection: "!i", or -1 and "!Q" from 2 GiB on.
var pickleFraming = &framing{name: "pickle", max: 12, parse: parsePickleLen,
	fits: func(_ header, b []byte) bool { return looksPickled(b) }, frames: 1, aligned: 1, fit: true, firstFits: true}

var len4Framing = &framing{name: "lenprefix", max: 4, parse: parseLen4,
	fits: func(header, []byte) bool { return false }, frames: 3, aligned: 3}

var len8Framing = &framing{name: "lenprefix", max: 8, parse: parseLen8,
	fits: func(header, []byte) bool { return false }, frames: 3, aligned: 3}

func parseZMTP(b []byte, strict bool) (header, parsed) {
	if len(b) < 1 {
		return header{}, headerShort
	}
	flags := b[0]
	h := header{size: 2, more: flags&1 != 0, command: flags&4 != 0}
	if flags > 6 || h.command && h.more {
		return h, headerBad
	}
	if flags&2 == 0 {
		if len(b) < 2 {
			return h, headerShort
		}
		h.body = uint64(b[1])
	} else {
		h.size = 9
		if len(b) < 9 {
			return h, headerShort
		}
		h.body = binary.BigEndian.Uint64(b[1:])
		// libzmq uses the long form from 256 bytes on only.
		if h.body > maxFrame || strict && h.body < 256 {
			return h, headerBad
		}
	}
	// Zero bytes would read as a row of empty messages.
	if strict && (h.body == 0 && !h.more || h.body > 1<<32) || h.command && h.body == 0 {
		return h, headerBad
	}
	return h, headerOK
}

func fitsZMTP(h header, b []byte) bool {
	if len(b) == 0 {
		return false
	}
	if h.command {
		return commandName(b) != nil
	}
	return b[0] >= 0x80 && b[0] <= 0x9f || b[0] >= 0xdc && b[0] <= 0xdf || b[0] == '{' || looksPickled(b)
}

// commandName returns the name at the start of a ZMTP command body, nil if there is none.
func commandName(b []byte) []byte {
	if len(b) == 0 || int(b[0]) >= len(b) || b[0] == 0 || b[0] > 16 {
		return nil
	}
	name := b[1 : 1+b[0]]
	for _, c := range name {
		if c < 'A' || c > 'Z' {
			return nil
		}
	}
	return name
}

func parsePickleLen(b []byte, strict bool) (header, parsed) {
	if len(b) < 4 {
		return header{}, headerShort
	}
	if n := int32(binary.BigEndian.Uint32(b)); n >= 0 {
		h := header{size: 4, body: uint64(n)}
		if strict && n < 4 {
			return h, headerBad
		}
		return h, headerOK
	} else if n != -1 {
		return header{}, headerBad
	}
	if len(b) < 12 {
		return header{}, headerShort
	}
	h := header{size: 12, body: binary.BigEndian.Uint64(b[4:])}
	if h.body > maxFrame || h.body < 1<<31-1 {
		return h, headerBad
	}
	return h, headerOK
}

func parseLen4(b []byte, _ bool) (header, parsed) {
	if len(b) < 4 {
		return header{}, headerShort
	}
	h := header{size: 4, body: uint64(binary.BigEndian.Uint32(b))}
	if h.body == 0 || h.body > 1<<28 {
		return h, headerBad
	}
	return h, headerOK
}

func parseLen8(b []byte, _ bool) (header, parsed) {
	if len(b) < 8 {
		return header{}, headerShort
	}
	h := header{size: 8, body: binary.BigEndian.Uint64(b)}
	if h.body == 0 || h.body > 1<<36 {
		return h, headerBad
	}
	return h, headerOK
}

// evidence is what a walk along candidate frames found.
type evidence struct {
	frames  int  // whole frames
	aligned int  // of these: ended with a message and a call
	fit     int  // bodies that fit, also that of a frame not yet whole
	whole   int  // bodies that are one value by themselves, in a message that ended with its call
	long    int  // frames with a 64-bit length, and a body that fits, that ended with a call
	head    bool // one of them belongs to the first message
	partial bool // the walk ended inside a frame that is longer than 255 bytes
	more    bool // the walk ended at the end of the tape
	hole    bool // the walk ended at a header that is missing
	bad     bool
}

// walk follows frames from p as far as the tape goes.
func (f *framing) walk(t *tape, p uint64) (e evidence) {
	first, inHead := true, true // of its message; of the first message
	whole := false              // a body of this message is a value by itself
	for range 64 {
		b, st := t.peekAt(p, f.max)
		h, got := f.parse(b, true)
		switch {
		case got == headerShort && st == peekHole:
			e.hole = true
			return e
		case got == headerShort:
			e.more = true
			return e
		case got == headerBad:
			e.bad = true
			return e
		}
		body, bodySt := t.peekAt(p+uint64(h.size), int(min(h.body, 18)))
		fit := f.fits(h, body)
		if f.firstFits && !fit && e.frames == 0 && (len(body) >= 2 || bodySt == peekHole) {
			e.bad = true
			return e
		}
		if h.command && !fit && len(body) > int(min(h.body-1, 17)) {
			e.bad = true
			return e
		}
		if fit && (first || !h.command) {
			e.fit++
			e.head = e.head || inHead
		}
		inHead = inHead && h.more
		if f == zmtpFraming && h.body <= maxBody && fit {
			full, _ := t.peekAt(p+uint64(h.size), int(h.body))
			whole = whole || wholeBody(h, full)
		}
		p += uint64(h.size) + h.body
		if p > t.end {
			e.partial, e.more = h.body > 255, true
			return e
		}
		e.frames++
		first = !h.more
		if !h.more && t.callEnd(p) {
			e.aligned++
			if whole {
				e.whole++
			}
			if f == zmtpFraming && h.size == 9 && fit {
				e.long++ // that a 64-bit number is the way to the end of a call is no chance
			}
		}
		whole = whole && h.more
		if p == t.end {
			e.more = true
			return e
		}
	}
	return e
}

// proves reports whether e is enough to start decoding without having seen the stream's beginning.
func (f *framing) proves(e evidence) bool {
	if e.bad {
		return false
	}
	if (e.whole > 0 || e.long > 0) && e.head {
		return true
	}
	if f.fit && !e.head {
		// The end of a cut frame may read as a frame before ones that fit.
		return e.fit == 0 && e.frames >= 4 && e.aligned >= 4
	}
	if f.fit && e.head && e.fit >= 16 && e.fit >= e.frames {
		return true // many small messages in one call: where calls end is a matter of the buffer size
	}
	return e.frames >= f.frames && e.aligned >= f.aligned ||
		e.frames > f.frames && e.aligned >= max(1, f.aligned-1)
}

// resumes reports whether e is enough to go on with a framing already known to be in use.
func (e evidence) resumes() bool {
	switch {
	case e.bad:
		return false
	case e.head && (e.aligned > 0 || e.partial || e.frames > 1):
		return true
	}
	return e.fit == 0 && (e.aligned > 1 || e.aligned > 0 && e.frames > 2)
}
