package wire

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

func TestWholeMsgpack(t *testing.T) {
	m := "\x82\xa4type\xa6submit\xaarequest_id\xd9\x04abcd"
	for in, want := range map[string]bool{
		m:                                       true,
		m + "x":                                 false, // something behind it
		m[:len(m)-1]:                            false, // cut
		"\x80":                                  false, // an empty map is no evidence
		"{\"request_id\":\"abcdefgh\"}":         false,
		"\x93\xa6abcdef\xc4\x03xyz\xcd\x01\x02": true,
		"\xdd\xff\xff\xff\xff0123456789":        false,
		"\xdc\x00\x01\xc1aaaaaaaaaaaaaaaa":      false, // c1 is never used
	} {
		if got := wholeMsgpack([]byte(in)); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

// A stream attached in its middle is decoded from its first call when that call is one frame that
// holds one value: at low rates the next one may be seconds away.
func TestOneCallDecides(t *testing.T) {
	body := "\x82\xa4type\xa6submit\xaarequest_id\xaaone-by-one"
	frame := "\x00" + string(rune(len(body))) + body
	s := &sink{t: t}
	c := NewConn(&run.Endpoint{ID: 1, Transport: run.TransportUnix}, testRules, NewIDSet(), s)
	c.Feed(1, &Chunk{Pos: 0, Len: uint64(len(frame)), Data: []byte(frame), EnterNS: 10, ExitNS: 20, TGID: 1, TID: 1})
	c.Expire(int64(HoleAge) * 3)
	c.Close(int64(HoleAge) * 4)
	if len(s.msgs) != 1 || s.msgs[0].Proto != "zmtp" || s.msgs[0].Type != "submit" || len(s.msgs[0].IDs) == 0 {
		t.Errorf("got %+v", s.msgs)
	}
}

// libzmq writes the signature of its greeting first and the rest once it has seen the peer's. The
// direction that is still at the signature when the other one is recognised loses nothing.
func TestGreetingInTwoWrites(t *testing.T) {
	f := newFeeder(t, nil)
	g := greeting()
	f.call(run.Send, g[:10], 8192)
	f.call(run.Recv, g[:11], 8192)
	f.call(run.Send, g[10:], 8192)
	f.call(run.Recv, g[11:], 8192)
	f.call(run.Send, ready(), 8192)
	f.call(run.Recv, ready(), 8192)
	rows := f.rows()
	if len(f.out.gaps) > 0 {
		t.Errorf("bytes without frames: %+v", f.out.gaps)
	}
	if n := len(f.out.msgs); n != 4 {
		t.Errorf("%d messages, want a greeting and READY each way: %v", n, rows)
	}
}

// A message that is read in more calls than are held while the protocol is unknown leaves its stream
// opaque; the next one of its kind proves the framing by where its 64-bit length leads.
func TestLongFramesInManyCalls(t *testing.T) {
	const size = 70_000
	body := append([]byte("\x82\xa4type\xa3add\xa4data\xc6\x00\x01\x11\x70"), make([]byte, size)...)
	msg := append([]byte{1, 1, 0, 2}, binary.BigEndian.AppendUint64(nil, uint64(len(body)))...)
	msg = append(msg, body...)
	s := &sink{t: t}
	c := NewConn(&run.Endpoint{ID: 1, Transport: run.TransportUnix}, testRules, NewIDSet(), s)
	var pos uint64
	now := int64(10)
	for range 5 {
		for at := 0; at < len(msg); at += 8192 {
			n := min(8192, len(msg)-at)
			seen := min(n, 1024)
			if pos < uint64(len(msg)) {
				seen = n // as long as nothing is known of an endpoint, its calls are captured whole
			}
			c.Feed(2, &Chunk{Pos: pos, Len: uint64(n), Data: msg[at : at+seen], EnterNS: now, ExitNS: now + 5, TGID: 1, TID: 1})
			pos, now = pos+uint64(n), now+10
		}
		now += 2 * int64(BurstIdle)
		c.Expire(now)
	}
	c.Close(now)
	var got []string
	for _, m := range s.msgs {
		got = append(got, m.Proto)
		if m.Proto == "zmtp" && (m.Type != "add" || m.End-m.Pos != uint64(len(msg))) {
			t.Errorf("%+v", m)
		}
	}
	if want := []string{"burst", "zmtp", "zmtp", "zmtp", "zmtp"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
