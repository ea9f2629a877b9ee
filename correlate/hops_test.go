package correlate

import "testing"

const twoProcs = `
	proc 10 api
	proc 20 encoder
	client 1
	unix 2 3
	base 2 3 0
	base 3 2 0
`

func TestHops(t *testing.T) {
	for _, c := range []struct{ name, trace, want string }{
		{"both ends", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			send 2 10 150-160 0+50 submit id=req-1
			recv 3 20 155-170 0+50 submit id=req-1
			send 3 20 900-910 0+40 complete id=req-1
			recv 2 10 905-920 0+40 complete id=req-1
			send 1 10 1000-1010 0+99 200 x=1 status=200 flags=first,last`, `
			request req-1 success entry=110 exit=1010
			hop api[10]>encoder[20] submit unix 150>170 exact
			hop encoder[20]>api[10] complete unix 900>920 exact
			visit encoder[20] in=api@170 ready=170..900 start=170..900 finish=170..900 dep=900 exact`},
		{"receive record before its send record", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			recv 3 20 155-158 0+50 submit id=req-1
			send 2 10 150-900 0+50 submit id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>158 exact
			visit encoder[20] in=api@158 ready=? start=? finish=? dep=? exact`},
		{"receive lost: bounded by the call after it", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			send 2 10 150-160 0+50 submit id=req-1
			loss 100-200 debug-drop io 1
			io recv 3 20 300-310 50+20
			send 3 20 900-910 0+40 complete id=req-1
			recv 2 10 905-920 0+40 complete id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>150..310 paired (receive not seen)
			hop encoder[20]>api[10] complete unix 900>920 exact
			visit encoder[20] in=api@150..310 ready=150..900 start=150..900 finish=150..900 dep=900 paired`},
		{"send lost: bounded by the call before it", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			io send 2 10 120-130 0+20
			recv 3 20 155-170 20+50 submit id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 120..170>170 paired (send not seen)
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? paired`},
		{"call known at that position though the message was not decoded", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			send 2 10 150-160 0+50 submit id=req-1
			io recv 3 20 155-170 0+50`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>170 paired (receive not seen)
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? paired`},
		{"truncated at the receiver: paired by position", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			send 2 10 150-160 0+5000 submit id=req-1
			recv 3 20 155-170 0+5000 submit flags=trunc`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>170 paired (id not in the bytes captured at the receiver)
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? paired`},
		{"the call of the last byte was lost: the end's usual user", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			io send 2 10 120-130 0+20
			send 2 0 150-160 20+5000 submit id=req-1
			recv 3 20 155-170 20+5000 submit id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>170 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact`},
		{"positions agree, ids contradict: never one hop", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			send 2 10 150-160 0+50 submit id=req-1
			recv 3 20 155-170 0+50 submit id=other-9`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>? paired (receive not seen)
			visit encoder[20] in=api@? ready=? start=? finish=? dep=? paired`},
		{"coalesced: two messages, one call at each end", twoProcs + `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			send 2 10 150-160 0+50 a id=req-1 flags=coalesced
			send 2 10 150-160 50+30 b id=req-1
			recv 3 20 155-170 0+50 a id=req-1 flags=coalesced
			recv 3 20 155-170 50+30 b id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] a unix 150>170 exact
			hop api[10]>encoder[20] b unix 150>170 exact
			visit encoder[20] in=api@170,api@170 ready=? start=? finish=? dep=? exact`},
		{"partial batch: one hop for each known id, the unknown one counted", twoProcs + `
			client 4
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			recv 4 10 102-112 0+300 POST_/v1/x x=1 id=req-2 flags=first,last
			send 2 10 150-160 0+80 add batch=req-1,req-2,zombie-7
			recv 3 20 155-170 0+80 add batch=req-1,req-2,zombie-7`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] add unix 150>170 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact
			request req-2 unknown entry=112 exit=?
			hop api[10]>encoder[20] add unix 150>170 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact`},
		{"zero duration", twoProcs + `
			recv 1 10 100-100 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			send 2 10 100-100 0+50 submit id=req-1
			recv 3 20 100-100 0+50 submit id=req-1
			send 3 20 100-100 0+40 complete id=req-1
			recv 2 10 100-100 0+40 complete id=req-1`, `
			request req-1 unknown entry=100 exit=?
			hop api[10]>encoder[20] submit unix 100>100 exact
			hop encoder[20]>api[10] complete unix 100>100 exact
			visit encoder[20] in=api@100 ready=100..100 start=100..100 finish=100..100 dep=100 exact`},
		{"tcp and pipe", `
			proc 10 api
			proc 20 encoder
			proc 30 decoder
			client 1
			tcp 2 3
			pipe 4
			base 4 4 100
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
			send 2 10 150-160 4294967290+50 submit id=req-1  // the receiver unwrapped from a later start
			recv 3 20 155-170 8589934586+50 submit id=req-1
			send 4 20 300-310 500+60 data id=req-1
			recv 4 30 305-320 400+60 data id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit tcp 150>170 exact
			hop encoder[20]>decoder[30] data pipe 300>320 exact
			visit encoder[20] in=api@170 ready=170..300 start=170..300 finish=170..300 dep=300 exact
			visit decoder[30] in=encoder@320 ready=? start=? finish=? dep=? exact`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, c.trace)
			sameRows(t, rows(tl.Finish()), c.want)
		})
	}
}
