package wire

import (
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
