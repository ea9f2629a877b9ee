package mock

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/stageline/stageline/collector/run"
	"golang.org/x/sys/unix"
)

// conn is one connection; it carries one request at a time.
type conn struct {
	fd    int
	gone  bool
	in    []byte
	rec   *Record // of the reply being sent; nil when idle
	dueNS int64
	sent  int // tokens
	whole bool
}

const maxRequest = 64 << 20

func (s *Server) readable(c *conn) {
	var buf [64 << 10]byte
	var oob [64]byte
	n, oobn, _, _, err := unix.Recvmsg(c.fd, buf[:], oob[:], unix.MSG_DONTWAIT)
	if err != nil && (err == unix.EAGAIN || err == unix.EINTR) {
		return
	}
	if err != nil || n == 0 || len(c.in)+n > maxRequest {
		s.drop(c)
		return
	}
	c.in = append(c.in, buf[:n]...)
	head, body, ok := split(c.in)
	if !ok || c.rec != nil {
		return
	}
	c.in = c.in[:0]
	s.request(c, head, body, s.arrival(oob[:oobn]))
}

// arrival is the kernel's stamp of what was just read, else now.
func (s *Server) arrival(oob []byte) int64 {
	now := run.Mono()
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return now
	}
	for _, m := range msgs {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			return min(now, stamp(m.Data)+s.toMono)
		}
	}
	return now
}

// stamp reads a struct timespec.
func stamp(b []byte) int64 {
	return int64(binary.NativeEndian.Uint64(b))*1e9 + int64(binary.NativeEndian.Uint64(b[8:]))
}

// split returns the head and body of a request that is here whole.
func split(b []byte) (head, body []byte, ok bool) {
	head, body, ok = bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		return nil, nil, false
	}
	n, _ := strconv.Atoi(header(head, "content-length")) // absent: none
	return head, body, len(body) >= n
}

func header(head []byte, name string) string {
	for l := range bytes.SplitSeq(head, []byte("\r\n")) {
		if k, v, ok := bytes.Cut(l, []byte(":")); ok && strings.EqualFold(string(k), name) {
			return string(bytes.TrimSpace(v))
		}
	}
	return ""
}

// request answers what is asked: the stamps, a list of models, or a chat completion.
func (s *Server) request(c *conn, head, body []byte, arrivedNS int64) {
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	switch {
	case bytes.HasPrefix(line, []byte("GET /stamps")):
		s.write(c, s.stamps(), true)
	case !bytes.HasPrefix(line, []byte("POST ")):
		s.write(c, jsonReply([]byte(`{"object":"list","status":"ok","data":[{"id":"mock","object":"model","owned_by":"mock"}]}`)), true)
	default:
		c.rec = &Record{ID: header(head, "x-request-id"), ArrivedNS: arrivedNS, DueNS: arrivedNS + s.cfg.TTFT.Nanoseconds()}
		c.dueNS, c.sent = c.rec.DueNS, 0
		c.whole = !bytes.Contains(body, []byte(`"stream":true`)) && !bytes.Contains(body, []byte(`"stream": true`))
		if c.whole {
			c.dueNS += int64(s.cfg.Tokens-1) * s.cfg.ITL.Nanoseconds()
		}
		heap.Push(&s.due, c)
	}
}

// fire writes what is due first, and plans what follows it.
func (s *Server) fire() {
	c := s.due[0]
	if c.gone {
		heap.Pop(&s.due)
		return
	}
	c.sent++
	b, last := s.text.token, false
	switch {
	case c.whole:
		b, last = s.text.object, true
	case s.cfg.Tokens == 1:
		b, last = s.text.only, true
	case c.sent == 1:
		b = s.text.first
	case c.sent == s.cfg.Tokens:
		b, last = s.text.last, true
	}
	if s.cfg.Stamps {
		c.rec.WriteNS = append(c.rec.WriteNS, run.Mono())
	}
	if ok := s.write(c, b, false); !ok || last {
		heap.Pop(&s.due)
		if s.cfg.Stamps {
			s.log = append(s.log, c.rec)
		}
		c.rec = nil
		return
	}
	// From the plan, not from now: lateness does not add up.
	c.dueNS = c.rec.DueNS + int64(c.sent)*s.cfg.ITL.Nanoseconds()
	heap.Fix(&s.due, 0)
}

// write gives up on a client that does not read: a reply fits the buffers of one that does. A patient
// write waits for it.
func (s *Server) write(c *conn, b []byte, patient bool) bool {
	for len(b) > 0 {
		n, err := unix.Write(c.fd, b)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN && patient {
			p := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
			if _, err = unix.Poll(p, 1000); err == unix.EINTR {
				err = nil
			}
			n = 0
		}
		if err != nil {
			s.drop(c)
			return false
		}
		b = b[n:]
	}
	return true
}

func (s *Server) stamps() []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	for _, r := range s.log {
		_ = e.Encode(r) // numbers and an id always encode; a bytes.Buffer always takes it
	}
	s.log = nil
	return jsonReply(buf.Bytes())
}

func jsonReply(body []byte) []byte {
	return append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body)), body...)
}

// texts are the bytes of a reply, made once.
type texts struct{ first, token, last, only, object []byte }

func newTexts(tokens int) texts {
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	event := func(choices, rest string) string {
		return `data: {"id":"chatcmpl-mock","object":"chat.completion.chunk","created":1,"model":"mock","choices":[` + choices + `]` + rest + "}\n\n"
	}
	usage := fmt.Sprintf(`,"usage":{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":%d}`, tokens, tokens+1)
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	token := chunk(event(`{"index":0,"delta":{"content":"word "},"finish_reason":null}`, ""))
	end := chunk(event(`{"index":0,"delta":{},"finish_reason":"stop"}`, "")+event("", usage)+"data: [DONE]\n\n") + "0\r\n\r\n"
	object := `{"id":"chatcmpl-mock","object":"chat.completion","created":1,"model":"mock","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("word ", tokens) + `"},"finish_reason":"stop"}]` + usage + "}"
	return texts{
		first: []byte(head + token), token: []byte(token), last: []byte(token + end),
		only: []byte(head + token + end), object: jsonReply([]byte(object)),
	}
}

// dueHeap orders connections by what they are to be written next.
type dueHeap []*conn

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].dueNS < h[j].dueNS }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(v any)        { *h = append(*h, v.(*conn)) }
func (h *dueHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return c
}
