package wire

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

// head is a request or response head. Its slices point into the captured bytes.
type head struct {
	method, target []byte
	status         int // 0: a request
	code           []byte
	chunked        bool
	length         int64 // -1 not stated
	media          []byte
	lines          []byte // header lines, whole ones only
}

// exchange is one request and its response.
type exchange struct {
	n       uint32 // from 1; 0: the request was not seen
	method  string
	startNS int64 // its first byte's call was entered (0 unknown)
	unsure  bool  // bytes of the reply side were lost while it was open, perhaps its reply
}

// flags of messages that are numbered as e.
func (e exchange) flags() run.MsgFlags {
	if e.unsure && e.n != 0 {
		return run.MsgGuessed
	}
	return 0
}

// exchanges numbers the requests of a connection and finds the one a response answers.
type exchanges struct {
	n        uint32
	open     []exchange
	upgraded bool
	looking  bool // the request side is being made to give up its holes
}

const maxOpenExchanges = 1024 // pipelined requests without an answer

func (x *exchanges) ask(k call, method []byte) exchange {
	x.n++
	e := exchange{n: x.n, method: string(method), startNS: k.enter}
	if len(x.open) == maxOpenExchanges {
		x.open = x.open[1:]
	}
	x.open = append(x.open, e)
	return e
}

// doubt is called when bytes of the reply side are lost.
func (x *exchanges) doubt() {
	for i := range x.open {
		x.open[i].unsure = true
	}
}

// answer returns the oldest unanswered request that was there before the response began. After
// lost bytes it is the youngest such, for the responses to older ones may have been among them.
// interim: the exchange stays unanswered.
func (x *exchanges) answer(k call, interim, resynced bool, s *stream) exchange {
	if len(x.open) == 0 && !x.looking {
		// A stream is never re-entered: where both directions carry replies, the other one would
		// look here in turn.
		x.looking = true
		_, other := s.conn.pair(s.dir)
		other.giveUpBefore(k.exit)
		x.looking = false
	}
	at := -1
	for i, e := range x.open {
		if e.startNS > k.exit {
			break
		}
		at = i
		if !resynced {
			break
		}
	}
	if at < 0 {
		return exchange{}
	}
	e := x.open[at]
	if !interim {
		x.open = append(x.open[:0], x.open[at+1:]...)
	}
	return e
}

// headEnd returns the length of the head at the start of b with its empty line, -1 if that is not
// there yet.
func headEnd(b []byte) int {
	if i := bytes.Index(b, []byte("\r\n\r\n")); i >= 0 {
		return i + 4
	}
	return -1
}

const methodBytes = "GET HEAD POST PUT DELETE PATCH OPTIONS CONNECT TRACE "

// httpPrefix reports whether b could be the beginning of a first line.
func httpPrefix(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if n := min(len(b), 7); string(b[:n]) == "HTTP/1."[:n] {
		return true
	}
	i := bytes.IndexByte(b, ' ')
	word := string(b)
	if i >= 0 {
		word = string(b[:i+1])
	}
	if at := strings.Index(methodBytes, word); at < 0 || at > 0 && methodBytes[at-1] != ' ' {
		return false
	}
	if i < 0 || i+1 == len(b) {
		return true
	}
	rest := b[i+1:]
	for _, c := range rest {
		if c < 0x20 && c != '\r' || c == 0x7f {
			return false
		}
	}
	return rest[0] == '/' || rest[0] == '*' || rest[0] == 'h' || word == "CONNECT "
}

// validLine reports whether b (without LF) is a whole first line of HTTP/1.x.
func validLine(b []byte) bool {
	b = bytes.TrimSuffix(b, []byte("\r"))
	if !httpPrefix(b) || len(b) < 12 {
		return false
	}
	if bytes.HasPrefix(b, []byte("HTTP/1.")) {
		return (b[7] == '0' || b[7] == '1') && b[8] == ' ' && isDigits(b[9:12]) && (len(b) == 12 || b[12] == ' ')
	}
	i := bytes.LastIndexByte(b, ' ')
	v := string(b[i+1:])
	return (v == "HTTP/1.1" || v == "HTTP/1.0") && bytes.Count(b, []byte(" ")) == 2
}

// httpAt recognises a request or status line.
func httpAt(t *tape, p uint64) sureness {
	b, _ := t.peekAt(p, 16)
	if len(b) == 0 || !httpPrefix(b) {
		return no
	}
	b, st := t.peekAt(p, 8<<10)
	i := bytes.IndexByte(b, '\n')
	switch {
	case i >= 0 && validLine(b[:i]):
		return sure
	case i >= 0 || st != peekMore || !httpPrefix(b):
		return no
	}
	return likely
}

// parseHead reads a head, whole or cut; of a cut one the last line is left out.
func parseHead(b []byte) (h head, ok bool) {
	h.length = -1
	i := bytes.IndexByte(b, '\n')
	if i < 0 || !validLine(b[:i]) {
		return h, false
	}
	line := bytes.TrimSuffix(b[:i], []byte("\r"))
	if bytes.HasPrefix(line, []byte("HTTP/")) {
		h.code = line[9:12]
		h.status, _ = strconv.Atoi(string(h.code))
	} else {
		w := bytes.SplitN(line, []byte(" "), 3)
		h.method, h.target = w[0], w[1]
	}
	h.lines = b[i+1:]
	ok = h.each(func(name, value []byte) bool {
		switch {
		case equalFold(name, "content-length"):
			n, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil || n < 0 || n > maxFrame {
				return false
			}
			h.length = n
		case equalFold(name, "transfer-encoding"):
			h.chunked = bytes.Contains(bytes.ToLower(value), []byte("chunked"))
		case equalFold(name, "content-type"):
			h.media = bytes.ToLower(value)
		}
		return true
	})
	return h, ok
}

// each calls fn for every whole header line until it returns false.
func (h *head) each(fn func(name, value []byte) bool) bool {
	for b := h.lines; ; {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return true
		}
		line := bytes.TrimSuffix(b[:i], []byte("\r"))
		b = b[i+1:]
		if c := bytes.IndexByte(line, ':'); c > 0 && !fn(line[:c], bytes.TrimSpace(line[c+1:])) {
			return false
		}
	}
}

// ids collects the request ids in the headers that Rules name.
func (h *head) ids(f *fields, names []string) {
	h.each(func(name, value []byte) bool {
		for _, n := range names {
			if equalFold(name, n) {
				f.ref(f.conn.name(append([]byte("header "), n...)), value, true)
				return true
			}
		}
		if f.conn.ids.within(value) {
			f.ref("header", value, false)
		}
		return true
	})
}

func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

const maxPath = 128

// path is the target of a request without what may be private: query, fragment, user.
func path(target []byte) string {
	if i := bytes.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	if i := bytes.Index(target, []byte("://")); i >= 0 {
		target = target[i+3:]
		if j := bytes.IndexByte(target, '/'); j >= 0 {
			target = target[j:]
		} else {
			target = []byte("/")
		}
	}
	if len(target) > maxPath {
		target = target[:maxPath]
	}
	return string(target)
}

func isDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// chunkSize reads a chunk size line without its LF; extensions are passed over.
func chunkSize(b []byte) (uint64, bool) {
	b = bytes.TrimSuffix(b, []byte("\r"))
	if i := bytes.IndexByte(b, ';'); i >= 0 {
		b = b[:i]
	}
	b = bytes.TrimRight(b, " ")
	n, err := strconv.ParseUint(string(b), 16, 64)
	return n, err == nil && len(b) > 0 && isHex(b[0]) && n <= maxFrame
}
