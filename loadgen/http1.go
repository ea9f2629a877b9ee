package loadgen

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// responseHead is what the client needs of a reply's head.
type responseHead struct {
	status      int
	contentType string // lower case, without parameters
	parameters  string // of the content type
	encoding    string // Content-Encoding other than identity
	length      int64  // -1: not stated
	chunked     bool
	close       bool // the connection cannot be used again
}

type httpState uint8

const (
	httpStatus httpState = iota
	httpHeader
	httpBodyLength
	httpBodyEOF
	httpChunkSize
	httpChunkData
	httpChunkEnd
	httpTrailer
	httpDone
)

// afterData is the state once the stated number of body bytes has come.
var afterData = map[httpState]httpState{httpBodyLength: httpDone, httpChunkData: httpChunkEnd}

const maxHeadLine = 64 << 10

// httpParser takes one HTTP/1.1 reply as it arrives, in pieces of any size. Interim 1xx replies are
// skipped.
type httpParser struct {
	head    responseHead
	state   httpState
	line    []byte
	left    int64
	surplus bool // bytes came after the end of the reply
	begin   func(*responseHead)
	data    func([]byte)
}

func (p *httpParser) done() bool { return p.state == httpDone }

// reusable says whether the connection can carry another request after this reply.
func (p *httpParser) reusable() bool { return p.done() && !p.head.close && !p.surplus }

// write sends a rendered request as it is.
func (p *httpParser) write(w io.Writer, request []byte) (int, error) { return w.Write(request) }

// stop has nothing to do: a write ends with its deadline.
func (p *httpParser) stop() {}

// abandon has nothing to say: HTTP/1.1 ends an exchange by closing the connection.
func (p *httpParser) abandon(io.Writer) {}

// feed takes the next bytes. An error means that the peer does not speak HTTP/1.1.
func (p *httpParser) feed(b []byte) error {
	for len(b) > 0 {
		switch p.state {
		case httpBodyEOF:
			p.data(b)
			return nil
		case httpBodyLength, httpChunkData:
			n := min(int64(len(b)), p.left)
			p.data(b[:n])
			p.left -= n
			b = b[n:]
			if p.left == 0 {
				p.state = afterData[p.state]
			}
		case httpDone:
			p.surplus = true
			return nil
		default:
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				i = len(b) - 1
			}
			p.line = append(p.line, b[:i+1]...)
			b = b[i+1:]
			if len(p.line) > maxHeadLine {
				return errors.New("a line of the reply's head is longer than 64 KiB")
			}
			if p.line[len(p.line)-1] != '\n' {
				return nil
			}
			if err := p.takeLine(string(bytes.TrimRight(p.line, "\r\n"))); err != nil {
				return err
			}
			p.line = p.line[:0]
		}
	}
	return nil
}

func (p *httpParser) takeLine(l string) error {
	switch p.state {
	case httpStatus:
		return p.statusLine(l)
	case httpHeader:
		if l == "" {
			return p.endOfHead()
		}
		return p.header(l)
	case httpChunkSize:
		size, _, _ := strings.Cut(l, ";")
		n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 62)
		if err != nil {
			return errors.New("chunk size of the reply is no hexadecimal number")
		}
		p.left, p.state = int64(n), httpChunkData
		if n == 0 {
			p.state = httpTrailer
		}
	case httpChunkEnd:
		if l != "" {
			return errors.New("chunk of the reply is longer than its stated size")
		}
		p.state = httpChunkSize
	case httpTrailer:
		if l == "" {
			p.state = httpDone
		}
	}
	return nil
}

func (p *httpParser) statusLine(l string) error {
	rest, ok := strings.CutPrefix(l, "HTTP/1.")
	if !ok || len(rest) < 5 || rest[1] != ' ' {
		return errors.New("reply does not begin with an HTTP/1.1 status line")
	}
	n, err := strconv.Atoi(rest[2:5])
	if err != nil || n < 100 {
		return errors.New("reply has no three-digit HTTP status")
	}
	p.head = responseHead{status: n, length: -1, close: rest[0] == '0'}
	p.state = httpHeader
	return nil
}

func (p *httpParser) header(l string) error {
	name, value, ok := strings.Cut(l, ":")
	if !ok {
		return errors.New("header line of the reply has no colon")
	}
	value = strings.ToLower(strings.TrimSpace(value))
	switch strings.ToLower(name) {
	case "content-length":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return errors.New("content-length of the reply is no number")
		}
		p.head.length = n
	case "transfer-encoding":
		if value != "chunked" {
			return fmt.Errorf("transfer-encoding %q is not supported", value)
		}
		p.head.chunked = true
	case "content-type":
		p.head.setContentType(value)
	case "content-encoding":
		if value != "identity" {
			p.head.encoding = value
		}
	case "connection":
		p.head.close = strings.Contains(value, "close") || p.head.close && !strings.Contains(value, "keep-alive")
	}
	return nil
}

func (h *responseHead) setContentType(value string) {
	value, parameters, _ := strings.Cut(value, ";")
	h.contentType, h.parameters = strings.TrimSpace(value), parameters
}

func (p *httpParser) endOfHead() error {
	h := &p.head
	if h.status < 200 {
		p.state = httpStatus
		if h.status == 101 {
			return errors.New("server switched protocols though nobody asked")
		}
		return nil
	}
	switch {
	case h.status == 204 || h.status == 304:
		p.state = httpDone
	case h.chunked:
		p.state = httpChunkSize
	case h.length == 0:
		p.state = httpDone
	case h.length > 0:
		p.left, p.state = h.length, httpBodyLength
	default:
		h.close = true
		p.state = httpBodyEOF
	}
	p.begin(h)
	return nil
}

// eof says whether the reply may end with the connection.
func (p *httpParser) eof() error {
	switch p.state {
	case httpDone:
		return nil
	case httpBodyEOF:
		p.state = httpDone
		return nil
	case httpStatus:
		if len(p.line) == 0 {
			return fmt.Errorf("connection closed before the reply: %w", io.ErrUnexpectedEOF)
		}
	}
	return fmt.Errorf("connection closed inside the reply: %w", io.ErrUnexpectedEOF)
}
