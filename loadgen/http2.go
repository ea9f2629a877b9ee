package loadgen

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	h2Window     = 1 << 20 // bytes that a server may send before they are read
	h2FrameBytes = 16 << 10
	h2HeadBytes  = 9
	h2Drain      = 50 * time.Millisecond
)

// h2Conn is the HTTP/2 side of one connection (RFC 9113). It carries one stream at a time: streams
// that share a connection would share its window and its reads, and a stamp of a read would no
// longer be a stamp of one reply. Frames and header compression are golang.org/x/net/http2's; what is
// here is the order of things, so that frames are taken from the bytes of stamped reads.
type h2Conn struct {
	in     []byte // not yet a whole frame
	source bytes.Reader
	reader *http2.Framer
	stream *h2Stream
	scheme string
	gone   bool // the server takes no more streams
	unread int  // bytes of data not yet given back to the connection's window
	grant  int

	mu      sync.Mutex
	room    *sync.Cond // the send windows have changed, or writing must stop
	w       io.Writer
	out     bytes.Buffer
	writer  *http2.Framer
	packed  bytes.Buffer
	enc     *hpack.Encoder
	window  int64 // of the connection, for sending
	initial int64 // of a new stream, as the server says
	next    uint32
}

// h2Stream is one request and its reply.
type h2Stream struct {
	c      *h2Conn
	id     uint32
	begin  func(*responseHead)
	data   func([]byte)
	head   bool // the final head has come
	ended  bool
	unread int

	window  int64 // guarded by c.mu
	stopped bool  // no more of the request is to be sent; guarded by c.mu
	sent    bool  // the request is sent whole; guarded by c.mu
}

// h2Refusal is a stream that the server ended or did not take.
type h2Refusal struct {
	code http2.ErrCode
}

func (e *h2Refusal) Error() string { return "server reset the HTTP/2 stream: " + e.code.String() }

// newH2Conn sends the preface.
func newH2Conn(w io.Writer, scheme string, receive int) (*h2Conn, error) {
	c := &h2Conn{w: w, scheme: scheme, window: 65535, initial: 65535, next: 1, grant: h2Window}
	if receive > 0 {
		c.grant = receive
	}
	c.room = sync.NewCond(&c.mu)
	c.reader = http2.NewFramer(nil, &c.source)
	c.reader.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.reader.SetMaxReadFrameSize(h2FrameBytes)
	c.writer = http2.NewFramer(&c.out, nil)
	c.enc = hpack.NewEncoder(&c.packed)
	return c, c.locked(func() error {
		c.out.WriteString(http2.ClientPreface)
		settings := []http2.Setting{{ID: http2.SettingEnablePush, Val: 0}, {ID: http2.SettingInitialWindowSize, Val: uint32(c.grant)}}
		if err := c.writer.WriteSettings(settings...); err != nil || c.grant <= 65535 {
			return err
		}
		return c.writer.WriteWindowUpdate(0, uint32(c.grant-65535))
	})
}

// locked writes the frames that fill makes, in one write.
func (c *h2Conn) locked(fill func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.flush(fill())
	return err
}

func (c *h2Conn) flush(err error) (int, error) {
	defer c.out.Reset()
	if err != nil {
		return 0, err
	}
	return c.w.Write(c.out.Bytes())
}

// open begins the next exchange.
func (c *h2Conn) open(begin func(*responseHead), data func([]byte)) *h2Stream {
	s := &h2Stream{c: c, id: c.next, begin: begin, data: data}
	c.next += 2
	c.stream = s
	c.mu.Lock()
	s.window = c.initial
	c.mu.Unlock()
	return s
}

// write sends a rendered HTTP/1.1 request as a HEADERS frame and DATA frames, as far as the server's
// windows allow at each moment.
func (s *h2Stream) write(_ io.Writer, request []byte) (int, error) {
	c := s.c
	first, headers, content := splitRequest(request)
	c.mu.Lock()
	defer c.mu.Unlock()
	total, err := c.flush(s.writeHead(first, headers, len(content) == 0))
	for err == nil && len(content) > 0 {
		for s.window <= 0 || c.window <= 0 {
			if s.stopped {
				return total, errors.New("the server ended the exchange before it had the whole request")
			}
			c.room.Wait()
		}
		if s.stopped {
			return total, errors.New("the exchange ended before the whole request was sent")
		}
		n := min(int64(len(content)), s.window, c.window, h2FrameBytes)
		s.window, c.window = s.window-n, c.window-n
		var k int
		k, err = c.flush(c.writer.WriteData(s.id, n == int64(len(content)), content[:n]))
		total += k
		content = content[n:]
		// The reading side takes the lock for its own frames between two of ours.
		c.mu.Unlock()
		c.mu.Lock()
	}
	s.sent = err == nil
	return total, err
}

// writeHead fills out with the request's head.
func (s *h2Stream) writeHead(first string, headers []string, last bool) error {
	c := s.c
	c.packed.Reset()
	method, rest, _ := strings.Cut(first, " ")
	path, _, _ := strings.Cut(rest, " ")
	field := func(name, value string) error { return c.enc.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	err := errors.Join(field(":method", method), field(":scheme", c.scheme), field(":path", path))
	for i, line := range headers {
		name, value, _ := strings.Cut(line, ":")
		name, value = strings.ToLower(name), strings.TrimSpace(value)
		if i == 0 && name == "host" {
			name = ":authority"
		}
		if name != "connection" && name != "transfer-encoding" && name != "keep-alive" {
			err = errors.Join(err, field(name, value))
		}
	}
	block := c.packed.Bytes()
	for kind := 0; err == nil; kind++ {
		n := min(len(block), h2FrameBytes)
		all := n == len(block)
		if kind == 0 {
			err = c.writer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: block[:n], EndStream: last, EndHeaders: all})
		} else {
			err = c.writer.WriteContinuation(s.id, all, block[:n])
		}
		if all {
			break
		}
		block = block[n:]
	}
	return err
}

// feed takes the bytes of one read and passes on the frames that they complete.
func (s *h2Stream) feed(b []byte) error { return s.c.feed(b) }

func (c *h2Conn) feed(b []byte) error {
	c.in = append(c.in, b...)
	for {
		n, err := wholeFrames(c.in)
		if err != nil || n == 0 {
			return err
		}
		c.source.Reset(c.in[:n])
		for c.source.Len() > 0 {
			f, err := c.reader.ReadFrame()
			if err != nil {
				return fmt.Errorf("HTTP/2: %w", err)
			}
			if err := c.take(f); err != nil {
				return err
			}
		}
		c.in = append(c.in[:0], c.in[n:]...)
	}
}

// wholeFrames is the length of the first frame in b, with the frames that continue its headers; 0
// while it is not whole.
func wholeFrames(b []byte) (int, error) {
	for at := 0; ; {
		if len(b)-at < h2HeadBytes {
			return 0, nil
		}
		h := b[at : at+h2HeadBytes]
		size := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		if size > h2FrameBytes {
			return 0, fmt.Errorf("HTTP/2: a frame of %d bytes, at most %d were allowed", size, h2FrameBytes)
		}
		kind, flags := http2.FrameType(h[3]), http2.Flags(h[4])
		at += h2HeadBytes + size
		if at > len(b) {
			return 0, nil
		}
		if at > maxHeadLine*4 {
			return 0, errors.New("HTTP/2: a head longer than 256 KiB")
		}
		opens := kind == http2.FrameHeaders || kind == http2.FrameContinuation
		if !opens || flags.Has(http2.FlagHeadersEndHeaders) {
			return at, nil
		}
	}
}

// take applies one frame. Frames of other streams than the open one are late ones of a stream that
// was abandoned.
func (c *h2Conn) take(f http2.Frame) error {
	s := c.stream
	mine := s != nil && !s.ended && f.Header().StreamID == s.id
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		if mine {
			return s.headers(f)
		}
	case *http2.DataFrame:
		return c.takeData(f, mine)
	case *http2.RSTStreamFrame:
		if mine {
			s.stop()
			return &h2Refusal{f.ErrCode}
		}
	case *http2.GoAwayFrame:
		c.gone = true
		if s != nil && !s.ended && f.LastStreamID < s.id {
			s.stop()
			return &h2Refusal{http2.ErrCodeRefusedStream}
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.locked(func() error { return c.writer.WritePing(true, f.Data) })
		}
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.WindowUpdateFrame:
		c.mu.Lock()
		if f.StreamID == 0 {
			c.window += int64(f.Increment)
		} else if mine {
			s.window += int64(f.Increment)
		}
		c.mu.Unlock()
		c.room.Broadcast()
	}
	return nil
}

func (c *h2Conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	return c.locked(func() error {
		_ = f.ForeachSetting(func(v http2.Setting) error { // the function returns none
			switch v.ID {
			case http2.SettingInitialWindowSize:
				if c.stream != nil {
					c.stream.window += int64(v.Val) - c.initial
				}
				c.initial = int64(v.Val)
			case http2.SettingHeaderTableSize:
				c.enc.SetMaxDynamicTableSizeLimit(v.Val)
			}
			return nil
		})
		c.room.Broadcast()
		return c.writer.WriteSettingsAck()
	})
}

// takeData passes data on and gives its room back once half of the window is used.
func (c *h2Conn) takeData(f *http2.DataFrame, mine bool) error {
	size := int(f.Length)
	c.unread += size
	s := c.stream
	if mine {
		s.unread += size
		if !s.head {
			return errors.New("HTTP/2: data before the head of the reply")
		}
		s.data(f.Data())
		if f.StreamEnded() {
			s.finish()
		}
	}
	if c.unread < c.grant/2 {
		return nil
	}
	return c.locked(func() error {
		err := c.writer.WriteWindowUpdate(0, uint32(c.unread))
		c.unread = 0
		if mine && !s.ended && s.unread > 0 {
			err = errors.Join(err, c.writer.WriteWindowUpdate(s.id, uint32(s.unread)))
			s.unread = 0
		}
		return err
	})
}

// headers takes an interim head, the head, or the trailer.
func (s *h2Stream) headers(f *http2.MetaHeadersFrame) error {
	if !s.head {
		status, err := strconv.Atoi(f.PseudoValue("status"))
		if err != nil || status < 100 || status > 999 {
			return errors.New("HTTP/2: reply has no three-digit status")
		}
		if status < 200 {
			return nil
		}
		h := responseHead{status: status, length: -1}
		for _, field := range f.RegularFields() {
			value := strings.ToLower(field.Value)
			switch field.Name {
			case "content-type":
				h.setContentType(value)
			case "content-encoding":
				if value != "identity" {
					h.encoding = value
				}
			}
		}
		s.head = true
		s.begin(&h)
	}
	if f.StreamEnded() {
		s.finish()
	}
	return nil
}

func (s *h2Stream) finish() {
	s.ended = true
	s.stop()
}

// stop ends a request that is still being written.
func (s *h2Stream) stop() {
	s.c.mu.Lock()
	s.stopped = true
	s.c.mu.Unlock()
	s.c.room.Broadcast()
}

func (s *h2Stream) done() bool { return s.ended }

func (s *h2Stream) reusable() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.ended && s.sent && !s.c.gone && s.c.next < 1<<30
}

func (s *h2Stream) eof() error {
	if s.ended {
		return nil
	}
	return fmt.Errorf("connection closed inside the reply: %w", io.ErrUnexpectedEOF)
}

// abandon tells the server that the reply is no longer wanted.
func (s *h2Stream) abandon(io.Writer) {
	s.stop()
	if !s.ended {
		// The connection is closed right after: an error changes nothing.
		_ = s.c.locked(func() error { return s.c.writer.WriteRSTStream(s.id, http2.ErrCodeCancel) })
	}
}

// idle takes what waits on an idle connection and says whether it can still be used.
func (c *h2Conn) idle(nc net.Conn) bool {
	var b [4096]byte
	if nc.SetReadDeadline(time.Now().Add(h2Drain)) != nil {
		return false
	}
	n, err := nc.Read(b[:])
	return err == nil && c.feed(b[:n]) == nil && !c.gone && nc.SetReadDeadline(time.Time{}) == nil
}
