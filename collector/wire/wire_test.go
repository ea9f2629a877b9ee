package wire

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

var testRules = &Rules{
	Name:           "test/1",
	IDFields:       []string{"request_id", "req_id", "object_id", "request_ids"},
	TypeFields:     []string{"type"},
	FromFields:     []string{"from_stage"},
	ToFields:       []string{"to_stage"},
	ChunkFields:    []string{"chunk_id"},
	ShmNameFields:  []string{"shm_name"},
	ShmSizeFields:  []string{"size"},
	ArrayIDIndex:   []int{0},
	ArrayIDPaths:   [][]int{{1, -1, 0}},
	ByteTypes:      []string{"add", "abort"},
	HTTPIDHeaders:  []string{"x-request-id"},
	HTTPBodyFields: []string{"id", "request_id"},
}

// sink keeps what a Conn emits and checks what must hold for any input: ranges go forward and do
// not overlap, every message is of the endpoint, ids are id-shaped.
type sink struct {
	t    testing.TB
	msgs []run.Message
	gaps []run.Gap
	end  [3]uint64
}

func (s *sink) Message(m *run.Message) {
	if m.Pos < s.end[m.Dir] || m.End < m.Pos {
		s.t.Errorf("%s message [%d, %d) %s after position %d", m.Dir, m.Pos, m.End, m.Proto, s.end[m.Dir])
	}
	s.end[m.Dir] = m.End
	for _, id := range m.IDs {
		if !IDShaped(id.Value) {
			s.t.Errorf("id %q is not id-shaped", id.Value)
		}
	}
	s.msgs = append(s.msgs, *m)
}

func (s *sink) Gap(g *run.Gap) {
	if g.End <= g.Pos {
		s.t.Errorf("gap [%d, %d)", g.Pos, g.End)
	}
	s.gaps = append(s.gaps, *g)
}

// row is one message in short form.
func row(m *run.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d-%d %s %s", m.Dir, m.Pos, m.End, m.Proto, m.Type)
	if m.Exchange != 0 {
		fmt.Fprintf(&b, " x%d", m.Exchange)
	}
	if m.Status != 0 {
		fmt.Fprintf(&b, " %d", m.Status)
	}
	if m.From != "" || m.To != "" {
		fmt.Fprintf(&b, " %s>%s", m.From, m.To)
	}
	if m.Chunk >= 0 {
		fmt.Fprintf(&b, " #%d", m.Chunk)
	}
	for _, id := range m.IDs {
		fmt.Fprintf(&b, " %s=%s", id.Field, id.Value)
	}
	for _, r := range m.Shm {
		fmt.Fprintf(&b, " shm:%s/%d", r.Name, r.Size)
	}
	for i, n := range []string{"truncated", "resynced", "coalesced", "guessed", "inflight", "first", "last", "more", "several"} {
		if m.Flags&(1<<i) != 0 {
			b.WriteString(" +" + n)
		}
	}
	return b.String()
}

// feeder feeds one Conn with calls at increasing times.
type feeder struct {
	c   *Conn
	out *sink
	now int64
	pos [3]uint64
}

func newFeeder(t testing.TB, ep *run.Endpoint) *feeder {
	f := &feeder{out: &sink{t: t}, now: 1e9}
	if ep == nil {
		ep = &run.Endpoint{ID: 7, Transport: run.TransportUnix}
	}
	f.c = NewConn(ep, testRules, NewIDSet(), f.out)
	return f
}

// call feeds data as one call of which at most capture bytes are captured.
func (f *feeder) call(dir run.Dir, data string, capture int) {
	f.c.Feed(dir, f.chunk(dir, data, capture))
}

func (f *feeder) chunk(dir run.Dir, data string, capture int) *Chunk {
	f.now += 1000
	k := &Chunk{Pos: f.pos[dir], Len: uint64(len(data)), Data: []byte(data[:min(capture, len(data))]),
		EnterNS: f.now, ExitNS: f.now + 500, TGID: 10, TID: 11}
	f.pos[dir] += k.Len
	return k
}

func (f *feeder) rows() (rows []string) {
	f.c.Close(f.now)
	for i := range f.out.msgs {
		rows = append(rows, row(&f.out.msgs[i]))
	}
	return rows
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "(none)", "(none)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("message %d\n got %s\nwant %s", i, g, w)
		}
	}
}

const all = 1 << 20

// Encoders of the protocols, for the tests only.

func greeting() string {
	return "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL" + strings.Repeat("\x00", 16+1+31)
}

func ready() string {
	body := "\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"
	return "\x04" + string(rune(len(body))) + body
}

func zframe(flags byte, body string) string {
	if len(body) < 256 {
		return string([]byte{flags, byte(len(body))}) + body
	}
	var l [8]byte
	binary.BigEndian.PutUint64(l[:], uint64(len(body)))
	return string([]byte{flags | 2}) + string(l[:]) + body
}

// mp encodes strings, ints, []any (list) and kv (map) as msgpack.
type kv []any

func mp(v any) string {
	switch v := v.(type) {
	case string:
		switch {
		case len(v) < 32:
			return string([]byte{0xa0 | byte(len(v))}) + v
		case len(v) < 256:
			return string([]byte{0xd9, byte(len(v))}) + v
		}
		var l [4]byte
		binary.BigEndian.PutUint32(l[:], uint32(len(v)))
		return "\xdb" + string(l[:]) + v
	case int:
		if v >= 0 && v < 128 {
			return string([]byte{byte(v)})
		}
		var l [8]byte
		binary.BigEndian.PutUint64(l[:], uint64(v))
		return "\xd3" + string(l[:])
	case nil:
		return "\xc0"
	case bool:
		if v {
			return "\xc3"
		}
		return "\xc2"
	case []any:
		b := string([]byte{0xdc, byte(len(v) >> 8), byte(len(v))})
		for _, e := range v {
			b += mp(e)
		}
		return b
	case kv:
		b := string([]byte{0x80 | byte(len(v)/2)})
		for _, e := range v {
			b += mp(e)
		}
		return b
	}
	panic("mp: type")
}

func submit(id string) string {
	return mp(kv{"type", "submit", "request_id", id, "payload", kv{"text", "tell me a story"}})
}

func rnd(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// script is one direction of a connection: bytes beside the message that they make, in the form of
// row without direction and range; "" makes none.
type script []struct{ bytes, want string }

func (s script) text() string {
	var b strings.Builder
	for _, e := range s {
		b.WriteString(e.bytes)
	}
	return b.String()
}

// rows are the expected messages with their ranges.
func (s script) rows(dir run.Dir) (rows []string) {
	pos := 0
	for _, e := range s {
		end := pos + len(e.bytes)
		if e.want != "" {
			rows = append(rows, fmt.Sprintf("%s %d-%d %s", dir, pos, end, e.want))
		}
		pos = end
	}
	return rows
}

// plain drops what depends on where calls begin and end.
func plain(rows []string) (out []string) {
	for _, r := range rows {
		r = strings.ReplaceAll(r, " +coalesced", "")
		r = strings.ReplaceAll(r, " +inflight", "")
		out = append(out, strings.ReplaceAll(r, " +guessed", ""))
	}
	return out
}

// cuts splits n bytes at random places, on average every mean bytes.
func cuts(n, mean int, seed uint64) (ends []int) {
	r := rnd(seed)
	for at := 0; at < n; {
		at = min(n, at+1+r.IntN(2*mean))
		ends = append(ends, at)
	}
	return ends
}

// test decodes the script whole, message by message, byte by byte, in random splits, and out of
// order, and expects the same messages each time.
func (s script) test(t *testing.T, dir run.Dir) {
	text, want := s.text(), s.rows(dir)
	try := func(name string, ends []int, shuffle bool) {
		t.Run(name, func(t *testing.T) {
			f := newFeeder(t, nil)
			var chunks []*Chunk
			at := 0
			for _, e := range ends {
				chunks = append(chunks, f.chunk(dir, text[at:e], all))
				at = e
			}
			if shuffle { // neighbours up to 8 apart
				r := rnd(uint64(len(chunks)))
				for i := range chunks {
					j := min(len(chunks)-1, i+r.IntN(8))
					chunks[i], chunks[j] = chunks[j], chunks[i]
				}
			}
			for _, k := range chunks {
				f.c.Feed(dir, k)
			}
			same(t, plain(f.rows()), want)
			if len(f.out.gaps) != 0 {
				t.Errorf("gaps: %v", f.out.gaps)
			}
		})
	}
	try("whole", []int{len(text)}, false)
	var one, each []int
	for i := range len(text) {
		one = append(one, i+1)
	}
	at := 0
	for _, e := range s {
		at += len(e.bytes)
		each = append(each, at)
	}
	try("byte by byte", one, false)
	try("a call a message", each, false)
	for seed := range uint64(20) {
		try(fmt.Sprint("random splits ", seed), cuts(len(text), 40, seed), false)
		try(fmt.Sprint("random splits out of order ", seed), cuts(len(text), 25, seed), true)
	}
}
