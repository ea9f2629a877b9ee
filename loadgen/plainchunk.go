package loadgen

import (
	"bytes"
	"unicode/utf8"
)

// plainChunk recognises the chunk that a stream mostly consists of: one choice with a piece of text
// and nothing else that is read. It returns the length of that text in bytes
// and in characters. Anything else, and
// anything unusual, is left to the full decoder: false says nothing about a chunk but that.
//
// It exists because the full decoder takes more time than all the rest of an event, and on a host
// shared with the system under test that time is taken from it.
func plainChunk(b []byte) (size, chars int, ok bool) {
	w := walker{b: b}
	text := 0
	ok = w.object(func(key string) bool {
		switch key {
		case "id", "object", "model", "created", "system_fingerprint", "service_tier":
			return w.scalar()
		case "usage":
			return w.null()
		case "choices":
			return w.next('[') && w.choice(&text) && w.next(']')
		}
		return false
	})
	w.space()
	return text, w.chars, ok && w.i == len(b) && text > 0
}

// walker goes through JSON from left to right and gives up at whatever it does not expect.
type walker struct {
	b     []byte
	i     int
	chars int // of the last string
}

func (w *walker) choice(text *int) bool {
	return w.object(func(key string) bool {
		switch key {
		case "index":
			return w.scalar()
		case "finish_reason", "logprobs", "stop_reason", "token_ids":
			return w.null()
		case "delta":
			return w.object(func(key string) bool {
				switch key {
				case "content":
					n, ok := w.text()
					*text = n
					return ok
				case "refusal", "tool_calls", "function_call", "reasoning_content", "reasoning", "audio":
					return w.null()
				}
				return false
			})
		}
		return false
	})
}

func (w *walker) space() {
	for w.i < len(w.b) && (w.b[w.i] == ' ' || w.b[w.i] == '\n' || w.b[w.i] == '\t' || w.b[w.i] == '\r') {
		w.i++
	}
}

func (w *walker) next(c byte) bool {
	w.space()
	if w.i < len(w.b) && w.b[w.i] == c {
		w.i++
		return true
	}
	return false
}

// object calls member after each name and its colon.
func (w *walker) object(member func(key string) bool) bool {
	if !w.next('{') {
		return false
	}
	for {
		if !w.next('"') {
			return false
		}
		end := bytes.IndexByte(w.b[w.i:], '"')
		if end < 0 {
			return false
		}
		key := w.b[w.i : w.i+end]
		w.i += end + 1
		// A name with an escape matches none that is expected.
		if !w.next(':') || !member(string(key)) {
			return false
		}
		if w.next('}') {
			return true
		}
		if !w.next(',') {
			return false
		}
	}
}

func (w *walker) null() bool {
	w.space()
	if bytes.HasPrefix(w.b[w.i:], []byte("null")) {
		w.i += 4
		return true
	}
	return false
}

// scalar passes a string, a number or null.
func (w *walker) scalar() bool {
	w.space()
	if w.i == len(w.b) {
		return false
	}
	switch c := w.b[w.i]; {
	case c == '"':
		_, ok := w.text()
		return ok
	case c == 'n':
		return w.null()
	case c == '-' || c >= '0' && c <= '9':
		for w.i++; w.i < len(w.b) && (w.b[w.i] >= '0' && w.b[w.i] <= '9' || w.b[w.i] == '.'); w.i++ {
		}
		return true
	}
	return false
}

// text passes a string and returns its length in bytes once its escapes are resolved. Escapes by
// number are left to the full decoder, and so is what is no UTF-8 or no JSON.
func (w *walker) text() (int, bool) {
	if !w.next('"') {
		return 0, false
	}
	start, chars := w.i, 0
	for n := 0; w.i < len(w.b); n++ {
		c := w.b[w.i]
		w.i++
		switch {
		case c == '"':
			w.chars = chars
			return n, utf8.Valid(w.b[start:w.i])
		case c == '\\':
			if w.i == len(w.b) || bytes.IndexByte([]byte(`"\/bfnrt`), w.b[w.i]) < 0 {
				return 0, false
			}
			w.i++
		case c < 0x20:
			return 0, false
		}
		if c&0xC0 != 0x80 { // not within a character
			chars++
		}
	}
	return 0, false
}
