package correlate

import (
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

func TestWraps(t *testing.T) {
	for _, c := range []struct {
		outer, inner string
		want         bool
	}{
		{"chatcmpl-req-1", "req-1", true},
		{"req-1-0a1b2c3d", "req-1", true},
		{"0_req-1", "req-1", true},
		{"chatcmpl-req-1-0a1b2c3d", "req-1", true},
		{"req-1__cfg_text", "req-1", true},
		{"req-1-0a1b2c3d__cfg_text", "req-1", true},
		{"req-1:payload:a:b", "req-1", true},
		{"speech-5f0c1f6e-0000-4000-8000-1234567890ab", "5f0c1f6e-0000-4000-8000-1234567890ab", true},
		{"req-12", "req-1", false},
		{"req-1-2", "req-1", false},
		{"req-1-attempt2", "req-1", false},
		{"xreq-1", "req-1", false},
		{"7777_req-1", "req-1", false},
		{"req-1", "req-1", false},
		{"1-0a1b2c3d", "1", true},
	} {
		if got := wraps(c.outer, c.inner); got != c.want {
			t.Errorf("wraps(%q, %q) = %v", c.outer, c.inner, got)
		}
	}
}

func TestIdentities(t *testing.T) {
	for _, c := range []struct{ name, trace, want string }{
		{"ids that contain one another", twoProcs + `
			client 4
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=r-1 flags=first,last
			recv 4 10 102-112 0+300 POST_/v1/x x=1 id=r-1-2 flags=first,last
			send 2 10 150-160 0+50 submit id=r-1-2
			recv 3 20 155-170 0+50 submit id=r-1-2
			send 2 10 180-190 50+50 submit id=r-1-0a1b2c3d
			recv 3 20 185-200 50+50 submit id=r-1-0a1b2c3d
			send 2 10 280-290 100+50 submit id=r-12
			recv 3 20 285-300 100+50 submit id=r-12`, `
			request r-1 unknown entry=110 exit=? r-1-0a1b2c3d(contains)
			hop api[10]>encoder[20] submit unix 180>200 exact
			visit encoder[20] in=api@200 ready=? start=? finish=? dep=? exact
			request r-1-2 unknown entry=112 exit=?
			hop api[10]>encoder[20] submit unix 150>170 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact`},
		{"the reply names it, after its messages", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/audio x=1 flags=first,last
			send 2 10 150-160 0+50 submit id=5f0c1f6e-aaaa
			recv 3 20 155-170 0+50 submit id=5f0c1f6e-aaaa
			send 1 10 1000-1010 0+99 200 x=1 status=200 id=speech-5f0c1f6e-aaaa flags=first,last`, `
			request 5f0c1f6e-aaaa success entry=110 exit=1010 speech-5f0c1f6e-aaaa(same-exchange)
			hop api[10]>encoder[20] submit unix 150>170 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact`},
		{"two ids in one message", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			send 2 10 150-160 0+50 submit id=req-1,internal-77aa
			recv 3 20 155-170 0+50 submit id=req-1,internal-77aa
			send 3 20 300-310 0+50 complete id=internal-77aa
			recv 2 10 305-320 0+50 complete id=internal-77aa`, `
			request req-1 unknown entry=110 exit=? internal-77aa(same-message)
			hop api[10]>encoder[20] submit unix 150>170 exact
			hop encoder[20]>api[10] complete unix 300>320 ordered (id known by circumstance only)
			visit encoder[20] in=api@170 ready=170..300 start=170..300 finish=170..300 dep=300 ordered`},
		{"an id shared by two requests is no alias", twoProcs + `
			client 4
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			recv 4 10 102-112 0+300 POST_/v1/x x=1 id=req-2 flags=first,last
			send 2 10 150-160 0+50 submit id=req-1,session-5
			recv 3 20 155-170 0+50 submit id=req-1,session-5
			send 2 10 180-190 50+50 submit id=req-2,session-5
			recv 3 20 185-200 50+50 submit id=req-2,session-5`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>170 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact
			request req-2 unknown entry=112 exit=?
			hop api[10]>encoder[20] submit unix 180>200 exact
			visit encoder[20] in=api@200 ready=? start=? finish=? dep=? exact`},
		{"no id on the wire: the only request in flight", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 flags=first,last
			send 2 10 150-160 0+50 submit id=minted-0001
			recv 3 20 155-170 0+50 submit id=minted-0001
			send 1 10 1000-1010 0+99 200 x=1 status=200 flags=first,last`, `
			request minted-0001 success entry=110 exit=1010
			hop api[10]>encoder[20] submit unix 150>170 ordered (id known by circumstance only)
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? ordered`},
		{"no id on the wire, two in flight: no guess", twoProcs + `
			client 4
			recv 1 10 100-110 0+300 POST_/v1/x x=1 flags=first,last
			recv 4 10 102-112 0+300 POST_/v1/x x=1 flags=first,last
			send 2 10 150-160 0+50 submit id=minted-0001
			recv 3 20 155-170 0+50 submit id=minted-0001`, ``},
		{"an id of nobody is counted, not made a request", twoProcs + `
			send 2 10 150-160 0+50 submit id=stray-0001
			recv 3 20 155-170 0+50 submit id=stray-0001`, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, c.trace)
			sameRows(t, rows(tl.Finish()), c.want)
		})
	}
}

func TestUnownedIDsAreCounted(t *testing.T) {
	tl := New(Options{StageOf: byComm})
	feed(t, tl, twoProcs+`
		send 2 10 150-160 0+50 submit id=stray-0001
		recv 3 20 155-170 0+50 submit id=stray-0001`)
	for _, n := range tl.Finish().Notes {
		if n.Code == "ids-unowned" && n.Text == "1 ids in 2 messages belong to no request seen at the entry" {
			return
		}
	}
	t.Error("no note of the id that nobody owns")
}

// A load generator's record may come before, between and after the records; and one whose id the
// engine never shows is tied by its connection and time.
func TestClientRecords(t *testing.T) {
	at := func(us int64) *int64 { return ptr(baseNS + us*1000) }
	exchange := twoProcs + `
		recv 1 10 100-110 0+300 POST_/v1/x x=1 ID flags=first,last
		send 2 10 150-160 0+50 submit id=SENT
		recv 3 20 155-170 0+50 submit id=SENT
		send 1 10 1000-1010 0+99 200 x=1 status=200 flags=first,last`
	q := run.Request{Source: "loadgen", ID: "load-7", State: run.StateSuccess, Local: "127.0.0.1:40001", Remote: "127.0.0.1:8000", SentNS: at(90), EndNS: at(1020)}
	withID := strings.NewReplacer("ID", "id=load-7", "SENT", "load-7").Replace(exchange)
	without := strings.NewReplacer("ID", "", "SENT", "minted-0001").Replace(exchange)
	hop := "hop api[10]>encoder[20] submit unix 150>170 "
	visit := "visit encoder[20] in=api@170 ready=? start=? finish=? dep=? "
	for _, c := range []struct{ name, before, after, want string }{
		{"before", "", withID, "request load-7 success entry=110 exit=1010\n" + hop + "exact\n" + visit + "exact"},
		{"after", withID, "", "request load-7 success entry=110 exit=1010\n" + hop + "exact\n" + visit + "exact"},
		{"by connection", without, "", "request load-7 success entry=110 exit=1010 minted-0001(same-exchange)\n" +
			hop + "ordered (id known by circumstance only)\n" + visit + "ordered"},
		{"never seen", twoProcs, "", "request load-7 success entry=? exit=?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, c.before)
			tl.Request(&q)
			feed(t, tl, c.after)
			r := tl.Finish()
			sameRows(t, rows(r), c.want)
			if len(r.Requests) != 1 || r.Requests[0].Client == nil || r.Requests[0].Source != "loadgen" {
				t.Errorf("client record not linked")
			}
		})
	}
}
