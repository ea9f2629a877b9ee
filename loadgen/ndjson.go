package loadgen

import (
	"bytes"
	"errors"
)

// lineParser splits a stream of one JSON object a line that arrives in pieces of any size. Empty
// lines are passed over; a last line without an end is given to the receiver by end.
type lineParser struct {
	line []byte
	emit func(line []byte) // valid during the call
}

func (p *lineParser) feed(b []byte) error {
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			p.line = append(p.line, b...)
			if len(p.line) > maxEvent {
				return errors.New("line of the stream is longer than 64 MiB")
			}
			return nil
		}
		p.line = append(p.line, b[:i]...)
		b = b[i+1:]
		p.end()
	}
}

func (p *lineParser) end() {
	if l := bytes.TrimSpace(p.line); len(l) > 0 {
		p.emit(l)
	}
	p.line = p.line[:0]
}
