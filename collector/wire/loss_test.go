package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// traffic is a script with the calls that carried it.
type traffic struct {
	name string
	dir  run.Dir
	ep   run.Endpoint
	s    script
	ends []int
}

func unixEP() run.Endpoint { return run.Endpoint{ID: 7, Transport: run.TransportUnix} }
func tcpEP() run.Endpoint {
	return run.Endpoint{ID: 8, Transport: run.TransportTCP, PosAbsolute: true}
}

// zmtpTraffic is n messages as libzmq writes them: several in one write, long ones in 8192 and the
// rest.
func zmtpTraffic(n int, seed uint64) traffic {
	r := rnd(seed)
	s := script{{greeting(), "zmtp GREETING"}, {ready(), "zmtp READY"}}
	ends := []int{64, 64 + len(ready())}
	for i := range n {
		id := fmt.Sprintf("req-%016x", r.Uint64())
		text := strings.Repeat("lorem ipsum ", r.IntN(30))
		if i%17 == 5 {
			text = strings.Repeat("dolor sit amet ", 1000)
		}
		var b, want string
		switch i % 3 {
		case 0:
			b = zframe(0, mp(kv{"type", "submit", "request_id", id, "text", text}))
			want = "zmtp submit request_id=" + id
		case 1:
			b = zframe(1, "\x00") + zframe(1, mp([]any{id, text})) + zframe(0, strings.Repeat("\x00\x01", r.IntN(400)))
			want = "zmtp add [0]=" + id
		default:
			b = zframe(0, mp(kv{"type", "ack", "request_id", id}))
			want = "zmtp ack request_id=" + id
		}
		s = append(s, script{{b, want}}...)
		at := ends[len(ends)-1] + len(b)
		if i%7 == 3 && len(b) < 4000 { // shares the write of the one before
			ends = ends[:len(ends)-1]
		} else if len(b) > 8192 {
			ends = append(ends, at-len(b)+8192)
		}
		ends = append(ends, at)
	}
	return traffic{"zmtp", run.Send, unixEP(), s, ends}
}

func httpTraffic(n int, seed uint64) traffic {
	r := rnd(seed)
	var s script
	var ends []int
	at := 0
	add := func(b, want string, call bool) {
		s = append(s, script{{b, want}}...)
		if at += len(b); call {
			ends = append(ends, at)
		}
	}
	for i := range n {
		id := fmt.Sprintf("r%09d", r.IntN(1e9))
		if i%3 == 2 {
			add("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n"+strings.Repeat("x", 40), "http1 200 200 +first +last", true)
			continue
		}
		add("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", "http1 200 200 +first", true)
		for range 3 + r.IntN(20) {
			ev := delta(id, strings.Repeat("word ", r.IntN(20)))
			add(fmt.Sprintf("%x\r\n", len(ev)), "", false)
			kind := "content"
			if strings.Contains(ev, `"content":""`) {
				kind = "other"
			}
			add(ev, "sse "+kind+" id=chatcmpl-"+id, false)
			add("\r\n", "", true)
		}
		add("0\r\n\r\n", "http1 end +last", true)
	}
	return traffic{"http", run.Send, tcpEP(), s, ends}
}

func pickleTraffic(n int, seed uint64) traffic {
	r := rnd(seed)
	var s script
	var ends []int
	at := 0
	for range n {
		id := fmt.Sprintf("req-%09d", r.IntN(1e9))
		b := prefixed(4, pickled("request_id", id, "note"))
		s = append(s, script{{b, "pickle  #7 request_id=" + id}}...)
		at += len(b)
		ends = append(ends, at)
	}
	return traffic{"pickle", run.Recv, run.Endpoint{ID: 9, Transport: run.TransportPipe}, s, ends}
}

func traffics(n int) []traffic {
	return []traffic{zmtpTraffic(n, 1), httpTraffic(n/4, 2), pickleTraffic(n, 3)}
}

// essence is a row without flags and, when the message was cut, without what it held.
func essence(r string) string {
	cut := strings.Contains(r, "+truncated")
	for _, f := range []string{"truncated", "resynced", "coalesced", "guessed", "inflight"} {
		r = strings.ReplaceAll(r, " +"+f, "")
	}
	if w := strings.Fields(r); cut {
		return strings.Join(w[:3], " ")
	}
	return r
}

// judge checks that every framed message is one of the script's and returns how many there were.
func (tr *traffic) judge(t *testing.T, shift uint64, msgs []run.Message) (found int) {
	t.Helper()
	truth, ends := make(map[string]bool), make(map[string]bool)
	for _, w := range tr.s.rows(tr.dir) {
		truth[w] = true
		truth[strings.Join(strings.Fields(w)[:3], " ")] = true
		// The later frames of a multipart message, when a call happens to begin with them, cannot be
		// told from a message. The end is right.
		_, end, _ := strings.Cut(strings.Fields(w)[1], "-")
		ends[end] = true
	}
	for i := range msgs {
		m := msgs[i]
		m.Exchange = 0
		if m.Proto == "burst" {
			continue
		}
		m.Pos, m.End = m.Pos+shift, m.End+shift
		tail := m.Proto == "zmtp" && m.Flags&(run.MsgGuessed|run.MsgResynced) != 0 && ends[fmt.Sprint(m.End)] && found == 0
		if e := essence(row(&m)); !truth[e] && !tail {
			t.Errorf("invented: %s", row(&m))
		}
		found++
	}
	return found
}

// chunks cuts the traffic into calls from byte from on; capture bytes of each are captured.
func (tr *traffic) chunks(f *feeder, from, capture int) (out []*Chunk) {
	text := tr.s.text()
	at := from
	for _, e := range tr.ends {
		if e > at {
			out = append(out, f.chunk(tr.dir, text[at:e], capture))
			at = e
		}
	}
	return out
}

func TestLostCalls(t *testing.T) {
	for _, tr := range traffics(400) {
		for seed := range uint64(20) {
			t.Run(fmt.Sprint(tr.name, seed), func(t *testing.T) {
				f := newFeeder(t, &tr.ep)
				r := rnd(seed)
				lost, said := 0, 0
				from, to := ^uint64(0), uint64(0)
				for _, k := range tr.chunks(f, 0, 8192) {
					switch {
					case r.IntN(20) > 0:
						f.c.Feed(tr.dir, k)
						from, to = min(from, k.Pos), k.Pos+k.Len
					case r.IntN(2) > 0:
						lost++
						said++
						f.c.Lost(tr.dir, k.Pos, k.Pos+k.Len)
						from, to = min(from, k.Pos), k.Pos+k.Len
					default:
						lost++
					}
				}
				f.c.Close(f.now)
				found, want := tr.judge(t, 0, f.out.msgs), len(tr.s.rows(tr.dir))
				t.Logf("%d of %d messages, %d calls lost (%d announced), %d resyncs", found, want, lost, said, f.c.Stats().Resyncs)
				if found < want*3/4 {
					t.Errorf("%d of %d messages after losing %d of %d calls", found, want, lost, len(tr.ends))
				}
				if f.c.Stats().Resyncs == 0 || f.c.Stats().Lost == 0 {
					t.Errorf("nothing counted: %+v", f.c.Stats())
				}
				tr.account(t, f, int(from), int(to))
			})
		}
	}
}

// account checks that every byte is in a message, in a gap, or framing between two messages.
func (tr *traffic) account(t *testing.T, f *feeder, from, to int) {
	t.Helper()
	n := len(tr.s.text())
	seen := make([]bool, n)
	mark := func(pos, end uint64) {
		for i := pos; i < end && i < uint64(n); i++ {
			seen[i] = true
		}
	}
	for i := range f.out.msgs {
		mark(f.out.msgs[i].Pos, f.out.msgs[i].End)
	}
	for _, g := range f.out.gaps {
		mark(g.Pos, g.End)
	}
	// What was lost before the first and after the last call that came is nobody's to know.
	at, missing, first := 0, 0, -1
	for _, e := range tr.s {
		for i := at; i < at+len(e.bytes); i++ {
			if i >= from && i < to && !seen[i] && e.want != "" {
				if missing++; first < 0 {
					first = i
				}
			}
		}
		at += len(e.bytes)
	}
	if missing > 0 {
		t.Errorf("%d bytes are in no message and no gap, first at %d", missing, first)
	}
}

func TestCapturedHeads(t *testing.T) {
	for _, tr := range traffics(400) {
		for _, capture := range []int{128, 256, 512, 1024, 8192} {
			f := newFeeder(t, &tr.ep)
			for _, k := range tr.chunks(f, 0, capture) {
				f.c.Feed(tr.dir, k)
			}
			f.c.Close(f.now)
			found, want := tr.judge(t, 0, f.out.msgs), len(tr.s.rows(tr.dir))
			t.Logf("%s, %d bytes: %d of %d messages, %d resyncs, %d gaps", tr.name, capture, found, want, f.c.Stats().Resyncs, len(f.out.gaps))
			if capture == 8192 && found != want || capture >= 512 && found < want*9/10 || found < want/2 {
				t.Errorf("%s, %d bytes captured: %d of %d messages", tr.name, capture, found, want)
			}
			tr.account(t, f, 0, len(tr.s.text()))
		}
	}
}

func TestAttachAtEveryOffset(t *testing.T) {
	for _, tr := range traffics(24) {
		text := tr.s.text()
		got, possible := 0, 0
		for from := 1; from < min(len(text), 6000); from += 1 + from/1000*2 {
			ep := tr.ep
			f := newFeeder(t, &ep)
			if ep.PosAbsolute {
				f.pos[tr.dir] = uint64(from)
			}
			shift := uint64(from) - f.pos[tr.dir]
			for _, k := range tr.chunks(f, from, 8192) {
				f.c.Feed(tr.dir, k)
			}
			f.c.Close(f.now)
			got += tr.judge(t, shift, f.out.msgs)
			for _, r := range tr.s.rows(tr.dir) {
				var at int
				fmt.Sscanf(strings.Fields(r)[1], "%d-", &at)
				if at >= from {
					possible++
				}
			}
			if t.Failed() {
				t.Fatalf("%s attached at byte %d", tr.name, from)
			}
		}
		t.Logf("%s: %d of %d messages after the attach, %.2f %%", tr.name, got, possible, 100*float64(got)/float64(possible))
		if got < possible*9/10 {
			t.Errorf("%s: only %d of %d messages after the attach", tr.name, got, possible)
		}
	}
}

func TestDuplicatesAndOverlaps(t *testing.T) {
	for _, tr := range traffics(100) {
		f := newFeeder(t, &tr.ep)
		ks := tr.chunks(f, 0, all)
		for i, k := range ks {
			f.c.Feed(tr.dir, k)
			f.c.Feed(tr.dir, ks[i/2])
			if i > 0 && i%5 == 0 { // the tail of the one before and this one again, as one call
				p := ks[i-1]
				o := *k
				o.Pos = p.Pos + p.Len/2
				o.Data = append(append([]byte(nil), p.Data[p.Len/2:]...), k.Data...)
				o.Len = uint64(len(o.Data))
				f.c.Feed(tr.dir, &o)
			}
		}
		f.c.Close(f.now)
		if n, want := tr.judge(t, 0, f.out.msgs), len(tr.s.rows(tr.dir)); n != want || len(f.out.gaps) > 0 {
			t.Errorf("%s: %d of %d messages, gaps %v", tr.name, n, want, f.out.gaps)
		}
		if f.c.Stats().Late == 0 {
			t.Errorf("%s: duplicates are not counted", tr.name)
		}
	}
}

func TestHoleExpiry(t *testing.T) {
	a, b := zframe(0, submit("a-1")), zframe(0, submit("b-2"))
	// By later calls.
	f := newFeeder(t, nil)
	f.call(run.Send, greeting()+ready(), all)
	f.chunk(run.Send, a, all) // lost
	for i := range MaxLaterCalls {
		f.call(run.Send, b, all)
		if n := len(f.out.gaps); n != 0 {
			t.Fatalf("hole given up after %d later calls", i+1)
		}
	}
	f.call(run.Send, b, all)
	if len(f.out.gaps) != 1 || f.out.gaps[0].Cause != run.GapLost || f.out.gaps[0].End-f.out.gaps[0].Pos != uint64(len(a)) {
		t.Fatalf("gaps %v, want one of %d lost bytes", f.out.gaps, len(a))
	}
	if n := len(f.rows()); n != 2+MaxLaterCalls+1 {
		t.Errorf("%d messages, want all %d but the lost one", n, 2+MaxLaterCalls+1)
	}
	if m := f.out.msgs[2]; m.Flags&run.MsgResynced == 0 {
		t.Errorf("first message after the hole: %s", row(&m))
	}
	// By time.
	f = newFeeder(t, nil)
	f.call(run.Send, greeting()+ready(), all)
	f.chunk(run.Send, a, all)
	f.call(run.Send, b, all)
	f.c.Expire(f.now + int64(HoleAge)/2)
	if len(f.out.gaps) != 0 {
		t.Error("hole given up too early")
	}
	f.c.Expire(f.now + int64(HoleAge) + 1000)
	if len(f.out.gaps) != 1 || len(f.out.msgs) != 3 {
		t.Errorf("%d gaps and %d messages after the hole expired, want 1 and 3", len(f.out.gaps), len(f.out.msgs))
	}
}

func TestLostBytesInsideAFrame(t *testing.T) {
	// The frame's length is known: the message is complete but for what was in the lost call.
	f := newFeeder(t, nil)
	long := zframe(0, mp(kv{"type", "submit", "request_id", testID, "text", strings.Repeat("x", 30000)}))
	f.call(run.Send, greeting()+ready(), all)
	f.call(run.Send, long[:8192], all)
	f.chunk(run.Send, long[8192:16384], all) // lost
	f.call(run.Send, long[16384:], all)
	f.call(run.Send, zframe(0, submit("a-1")), all)
	rows := f.rows()
	want := fmt.Sprintf("send 92-%d zmtp submit request_id=%s +truncated", 92+len(long), testID)
	if len(rows) != 4 || rows[2] != want {
		t.Errorf("got %v\nwant %s", rows[2:], want)
	}
	if strings.Contains(rows[3], "resynced") || f.c.Stats().Resyncs != 0 {
		t.Errorf("framing was not lost: %s", rows[3])
	}
}

// libzmq turns a burst of 1000 messages of 200 bytes into writes of 8192 bytes.
func TestCoalescedBurst(t *testing.T) {
	const n = 1009
	var b strings.Builder
	for i := range n {
		b.WriteString(zframe(0, mp(kv{"type", "data", "request_id", fmt.Sprintf("req-%08d", i), "pad", strings.Repeat("p", 160)})))
	}
	for _, dir := range []run.Dir{run.Send, run.Recv} {
		f := newFeeder(t, nil)
		f.call(dir, greeting()+ready(), all)
		if f.c.CaptureHint() != 8192 {
			t.Errorf("capture hint %d on ZMTP", f.c.CaptureHint())
		}
		text, calls := b.String(), 0
		for len(text) > 0 {
			k := min(8192, len(text))
			f.call(dir, text[:k], f.c.CaptureHint())
			text, calls = text[k:], calls+1
		}
		rows := f.rows()
		ids := 0
		for i := range f.out.msgs {
			if m := f.out.msgs[i]; len(m.IDs) == 1 && m.IDs[0].Value == fmt.Sprintf("req-%08d", i-2) {
				ids++
			}
		}
		if len(rows) != n+2 || ids != n || len(f.out.gaps) != 0 || f.c.Stats().Resyncs != 0 {
			t.Errorf("%s: %d messages, %d ids, %d gaps from %d calls", dir, len(rows), ids, len(f.out.gaps), calls)
		}
	}
}

func TestInFlightAtAttach(t *testing.T) {
	f := newFeeder(t, nil)
	k := f.chunk(run.Send, greeting()+ready(), all)
	k.EnterNS = 0
	f.c.Feed(run.Send, k)
	f.call(run.Send, zframe(0, submit("a-1")), all)
	rows := f.rows()
	for i, want := range []bool{true, true, false} {
		if got := strings.Contains(rows[i], "+inflight"); got != want {
			t.Errorf("%s: in flight %v, want %v", rows[i], got, want)
		}
	}
}

func TestBudget(t *testing.T) {
	b := &Budget{Max: 64 << 10}
	var conns []*Conn
	out := &sink{t: t}
	for i := range 100 {
		c := NewConn(&run.Endpoint{ID: uint32(i + 1), Transport: run.TransportUnix}, testRules, NewIDSet(), &sink{t: t})
		c.Share(b)
		conns = append(conns, c)
		// A hole in front keeps this one waiting.
		c.Feed(run.Send, &Chunk{Pos: 10, Len: 8000, Data: make([]byte, 8000), EnterNS: 1, ExitNS: 2})
		if b.Used() > b.Max {
			t.Fatalf("%d bytes held, at most %d allowed", b.Used(), b.Max)
		}
	}
	_ = out
	for _, c := range conns {
		c.Close(3)
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes still counted after all are closed", b.Used())
	}
}
