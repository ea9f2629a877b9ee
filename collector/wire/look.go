package wire

import "github.com/stageline/stageline/collector/run"

// Looker finds ids and fields in payloads that did not come through a call. It is used by one
// goroutine.
type Looker struct{ conn Conn }

// NewLooker returns one. ids may be shared with Conns; rules must not change.
func NewLooker(rules *Rules, ids *IDSet) *Looker {
	return &Looker{Conn{rules: compile(rules), ids: ids}}
}

// Payload puts what the head of a payload says into m; whole: b is all of it. Nothing of b is kept
// but what the package documentation allows.
func (l *Looker) Payload(b []byte, whole bool, m *run.Message) {
	if len(b) > maxBody {
		b, whole = b[:maxBody], false
	}
	f := l.conn.collect(false)
	if walkPayload(b, f) == walkCut || !whole {
		m.Flags |= run.MsgTruncated
	}
	f.fill(m)
	m.Decoder = l.conn.rules.name
}
