package loadgen

import (
	"bytes"
	"errors"
)

// maxEvent bounds one event: audio travels base64-coded in events of some megabytes.
const maxEvent = 64 << 20

// sseParser splits an event stream (WHATWG HTML §9.2.6) that arrives in pieces of any size. A line
// ends at CR, LF or CRLF; an event is complete at the CR or LF that ends its blank line, so that a
// CRLF cut between two reads does not date it to the second.
type sseParser struct {
	line    []byte
	data    []byte
	hasData bool
	event   string
	sawCR   bool
	started bool
	emit    func(name string, data []byte) // data is valid during the call
	comment func(n int)
}

func (s *sseParser) feed(b []byte) error {
	for len(b) > 0 {
		if s.sawCR {
			s.sawCR = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		i := bytes.IndexAny(b, "\r\n")
		if i < 0 {
			s.line = append(s.line, b...)
			return s.bounded()
		}
		s.line = append(s.line, b[:i]...)
		s.sawCR = b[i] == '\r'
		b = b[i+1:]
		if err := s.bounded(); err != nil {
			return err
		}
		s.takeLine()
	}
	return nil
}

func (s *sseParser) bounded() error {
	if len(s.line)+len(s.data) > maxEvent {
		return errors.New("event of the stream is longer than 64 MiB")
	}
	return nil
}

func (s *sseParser) takeLine() {
	l := s.line
	s.line = s.line[:0]
	if !s.started {
		s.started = true
		l = bytes.TrimPrefix(l, []byte("\xef\xbb\xbf"))
	}
	switch {
	case len(l) == 0:
		s.dispatch()
	case l[0] == ':':
		s.comment(len(l) - 1)
	default:
		name, value, _ := bytes.Cut(l, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if s.hasData {
				s.data = append(s.data, '\n')
			}
			s.data, s.hasData = append(s.data, value...), true
		case "event":
			s.event = string(value)
		}
	}
}

func (s *sseParser) dispatch() {
	if s.hasData {
		s.emit(s.event, s.data)
	}
	s.data, s.hasData, s.event = s.data[:0], false, ""
}

// end takes the end of the stream. Servers leave out the last blank line; what stands there is
// given to the receiver, which can tell whether it is whole.
func (s *sseParser) end() {
	if len(s.line) > 0 {
		s.takeLine()
	}
	s.dispatch()
}
