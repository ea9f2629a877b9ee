package wire

import (
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// program reads calls out of fuzz input: each takes a few control bytes that say direction, size,
// how much of it is captured, and whether it is lost, comes twice or comes late.
func program(t *testing.T, ctl, text []byte, ep run.Endpoint) {
	f := newFeeder(t, &ep)
	f.c.Share(&Budget{Max: 1 << 20})
	if ep.PosAbsolute {
		f.pos[run.Recv], f.pos[run.Send] = 1<<32-5, 1<<40
	}
	var late []*Chunk
	var lateDir []run.Dir
	for i := 0; len(text) > 0; i++ {
		c := byte(7)
		if len(ctl) > 0 {
			c = ctl[i%len(ctl)]
		}
		dir := run.Send + run.Dir(c>>7)
		n := min(len(text), 1+int(c&0x3f)*(1+i%5))
		capture := n
		if c&0x40 != 0 {
			capture = n / 2
		}
		k := f.chunk(dir, string(text[:n]), capture)
		text = text[n:]
		switch (int(c) + i) % 16 {
		case 3: // lost
		case 5:
			f.c.Lost(dir, k.Pos, k.Pos+k.Len)
		case 7:
			late, lateDir = append(late, k), append(lateDir, dir)
		case 9:
			f.c.Feed(dir, k)
			f.c.Feed(dir, k)
		case 11:
			f.c.Feed(dir, k)
			f.c.Expire(f.now)
		default:
			f.c.Feed(dir, k)
		}
		if len(late) > 3 {
			f.c.Feed(lateDir[0], late[0])
			late, lateDir = late[1:], lateDir[1:]
		}
		if f.c.held > 4*maxUndecided+2*MaxReorder {
			t.Fatalf("%d bytes held", f.c.held)
		}
	}
	f.c.Expire(f.now + 2*int64(HoleAge))
	f.c.Close(f.now)
	for _, m := range f.out.msgs {
		if m.LastExitNS != 0 && m.LastExitNS < m.FirstEnterNS {
			t.Errorf("ends before it begins: %s", row(&m))
		}
	}
}

func fuzz(f *testing.F, ep run.Endpoint, seeds ...string) {
	for _, s := range seeds {
		for _, ctl := range []string{"", "\x3f", "\x07\x81\x44", "\x01", "\xff\x20\x13\x85\x03"} {
			f.Add([]byte(ctl), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, ctl, text []byte) {
		if len(text) < 1<<16 {
			program(t, ctl, text, ep)
		}
	})
}

func FuzzZMTP(f *testing.F) { fuzz(f, unixEP(), zmtpScript().text(), zmtpTraffic(12, 1).s.text()) }

func FuzzHTTP(f *testing.F) {
	fuzz(f, tcpEP(), requests().text(), replies().text(), requests().text()+replies().text(), httpTraffic(4, 1).s.text())
}

func FuzzPickle(f *testing.F) {
	fuzz(f, run.Endpoint{ID: 1, Transport: run.TransportPipe}, pickleTraffic(5, 1).s.text(), prefixed(4, "\x80\x05N."))
}

func FuzzLines(f *testing.F) {
	fuzz(f, unixEP(), `{"type":"a","request_id":"r-1"}`+"\n"+`{"a":[1,{"b":"c"}]}`+"\n", prefixed(8, "abc")+prefixed(8, "defg")+prefixed(8, "h")+prefixed(8, "ij"))
}

// FuzzWalkers gives the payload parsers arbitrary bytes; whatever they say, ids are id-shaped.
func FuzzWalkers(f *testing.F) {
	for _, s := range []string{submit("r-1"), mp([]any{0, []any{[]any{"chatcmpl-a1b2c3", 5}}}), pickled("request_id", "r-1", "x"),
		`{"request_id":"r-1","a":[1,2.5e3,null,true,"é\n"]}`, "\xdf\xff\xff\xff\xff", "\xdd\xff\xff\xff\xff\xdd\xff\xff\xff\xff", "\x80\x04r\xff\xff\xff\x7f."} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := NewConn(&run.Endpoint{ID: 1}, testRules, NewIDSet(), &sink{t: t})
		for _, http := range []bool{false, true} {
			for _, walk := range []func([]byte, *fields) walked{walkMsgpack, walkJSON, walkPickle, walkPayload} {
				g := c.collect(http)
				walk(b, g)
				if g.depth != 0 {
					t.Errorf("%d containers left open", g.depth)
				}
				var m run.Message
				g.fill(&m)
				for _, id := range m.IDs {
					if !IDShaped(id.Value) {
						t.Errorf("id %q", id.Value)
					}
				}
				for _, s := range []string{m.Type, m.From, m.To} {
					if s != "" && !IDShaped(s) {
						t.Errorf("name %q", s)
					}
				}
			}
		}
	})
}

// FuzzTape compares the tape's reads with a plain copy of the stream.
func FuzzTape(f *testing.F) {
	f.Add([]byte("\x05\x03\x02\x07\x01\x01"), uint16(3))
	f.Fuzz(func(t *testing.T, sizes []byte, step uint16) {
		var tp tape
		var plain []int // byte value, -1 for a hole
		for i, n := range sizes {
			length := uint64(n&0x1f) + 1
			data := make([]byte, int(length)*(i%3)/2)
			for j := range data {
				data[j] = byte(len(plain) + j)
			}
			data = data[:min(uint64(len(data)), length)]
			tp.add(segment{call: call{pos: tp.end, end: tp.end + length}, data: data})
			for j := range length {
				v := -1
				if j < uint64(len(data)) {
					v = int(data[j])
				}
				plain = append(plain, v)
			}
		}
		for tp.pos < tp.end {
			at := tp.pos
			b, _ := tp.peek(int(step%40) + 1)
			for j, v := range b {
				if plain[int(at)+j] != int(v) {
					t.Fatalf("peek at %d+%d", at, j)
				}
			}
			k, ok := tp.take(at + uint64(step%40) + 1)
			if !ok || k.pos != at || tp.pos != at+k.n || (k.data != nil) != (plain[at] >= 0) {
				t.Fatalf("take at %d: %+v %v", at, k, ok)
			}
			step = step*31 + 7
		}
	})
}
