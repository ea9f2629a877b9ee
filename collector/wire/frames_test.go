package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// pickled is a dict of strings as pickle protocol 4 writes it, framed and memoised.
func pickled(pairs ...string) string {
	b := "}\x94("
	for _, s := range pairs {
		b += "\x8c" + string([]byte{byte(len(s))}) + s + "\x94"
	}
	b += "K\x05\x8c\x08chunk_id\x94K\x07u."
	var l [8]byte
	binary.LittleEndian.PutUint64(l[:], uint64(len(b)))
	return "\x80\x04\x95" + string(l[:]) + b
}

func prefixed(n int, b string) string {
	var l [8]byte
	binary.BigEndian.PutUint64(l[:], uint64(len(b)))
	return string(l[8-n:]) + b
}

func TestPickles(t *testing.T) {
	p := pickled("request_id", "req-77-abc", "type", "result", "text", "a longer text with words")
	p = strings.Replace(p, "K\x05", "\x8c\x01x\x94", 1) // keys and values alternate
	script{
		{prefixed(4, p), "pickle result #7 request_id=req-77-abc"},
		{prefixed(4, pickled("request_id", "req-78-abc", "k")), "pickle  #7 request_id=req-78-abc"},
		{prefixed(4, "raw bytes between pickles"), "pickle "},
		{"\xff\xff\xff\xff" + prefixed(8, p)[:0], ""},
	}[:3].test(t, run.Recv)
}

func TestPickleLargeHeader(t *testing.T) {
	b := append([]byte{0xff, 0xff, 0xff, 0xff}, 0, 0, 0, 0, 0x90, 0, 0, 0)
	h, got := parsePickleLen(b, true)
	if got != headerOK || h.size != 12 || h.body != 0x90000000 {
		t.Errorf("-1 and !Q: %+v %v", h, got)
	}
	if _, got := parsePickleLen([]byte{0xff, 0xff, 0xff, 0xfe}, false); got != headerBad {
		t.Errorf("-2 is no length: %v", got)
	}
}

func TestLines(t *testing.T) {
	script{
		{`{"type":"add","request_id":"r-1000"}` + "\n", "ndjson add request_id=r-1000"},
		{`{"type":"result","output":{"request_id":"r-1000"},"from_stage":"a","to_stage":"b"}` + "\n", "ndjson result a>b request_id=r-1000"},
		{`{"note":"about r-1000"}` + "\r\n", "ndjson "},
		{`{"note":"r-1000"}` + "\n", "ndjson  value=r-1000"},
	}.test(t, run.Send)
}

func TestLengthPrefixed(t *testing.T) {
	for _, n := range []int{4, 8} {
		f := newFeeder(t, nil)
		var want []string
		pos := 0
		for i := range 20 {
			b := prefixed(n, mp(kv{"type", "step", "request_id", fmt.Sprintf("r-%06d", i), "data", strings.Repeat("x", 10*i)}))
			f.call(run.Send, b, all)
			w := fmt.Sprintf("send %d-%d lenprefix step request_id=r-%06d", pos, pos+len(b), i)
			if i < confirmAfter {
				w += " +guessed"
			}
			want = append(want, w)
			pos += len(b)
		}
		same(t, f.rows(), want)
	}
}

func TestBursts(t *testing.T) {
	f := newFeeder(t, nil)
	f.call(run.Send, "mystery protocol A", all)
	f.call(run.Send, "mystery protocol B", all)
	f.call(run.Recv, "answer", all)
	f.call(run.Send, "mystery protocol C", all)
	f.call(run.Send, "mystery protocol D", all)
	f.now += int64(BurstIdle) + 1
	f.call(run.Send, "mystery protocol E", all)
	f.c.Expire(f.now + 1e9)
	f.call(run.Send, "F", all)
	same(t, f.rows(), []string{
		"send 0-36 burst ",
		"send 36-72 burst ",
		"send 72-90 burst ",
		"recv 0-6 burst ",
	})
}

func TestWakesAreNoMessages(t *testing.T) {
	for _, tr := range []run.Transport{run.TransportUnix, run.TransportPipe, run.TransportEventFD} {
		for _, b := range []string{"\x00", "x", "\x01\x02", "G", "{"} {
			f := newFeeder(t, &run.Endpoint{ID: 1, Transport: tr})
			for range 1009 {
				f.call(run.Send, b, all)
			}
			if rows := f.rows(); len(rows) != 0 || len(f.out.gaps) != 0 {
				t.Errorf("%s %q: messages %v, %d gaps", tr, b, rows, len(f.out.gaps))
			}
			if n := f.c.Stats().Noise; n != 1009 && tr != run.TransportEventFD {
				t.Errorf("%s %q: %d noise calls, want 1009", tr, b, n)
			}
		}
	}
	f := newFeeder(t, &run.Endpoint{ID: 1, Transport: run.TransportTCP, PosAbsolute: true})
	f.call(run.Send, "x", all)
	same(t, f.rows(), []string{"send 0-1 burst "})
}

func TestOpaqueStreamBecomesHTTP(t *testing.T) {
	// Attached in the middle of an upload.
	f := newFeeder(t, &run.Endpoint{ID: 1, Transport: run.TransportTCP, PosAbsolute: true})
	f.pos[run.Recv] = 1 << 33
	for range 10 {
		f.call(run.Recv, strings.Repeat("upload ", 100), 64)
	}
	f.call(run.Recv, httpReq("GET /a", "", ""), all)
	f.call(run.Send, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", all)
	rows := f.rows()
	same(t, rows, []string{
		fmt.Sprintf("recv %d-%d burst ", 1<<33, 1<<33+7000),
		fmt.Sprintf("recv %d-%d http1 GET /a x1 +first +last", 1<<33+7000, 1<<33+7000+len(httpReq("GET /a", "", ""))),
		"send 0-38 http1 200 x1 200 +first +last",
	})
}
