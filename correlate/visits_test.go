package correlate

import "testing"

const fourProcs = `
	proc 10 api
	proc 20 image
	proc 30 audio
	proc 40 join
	client 1
	unix 2 3
	unix 4 5
	unix 6 7
	unix 8 9
	base 2 3 0
	base 4 5 0
	base 6 7 0
	base 8 9 0
	base 9 8 0
	recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
	send 2 10 120-125 0+50 submit id=req-1
	recv 3 20 122-130 0+50 submit id=req-1
	send 4 10 126-129 0+50 submit id=req-1
	recv 5 30 128-135 0+50 submit id=req-1
`

func TestVisits(t *testing.T) {
	head := `
			request req-1 unknown entry=110 exit=?
			hop api[10]>image[20] submit unix 120>130 exact
			hop api[10]>audio[30] submit unix 126>135 exact
	`
	for _, c := range []struct{ name, trace, want string }{
		{"join: ready is the last of both", fourProcs + `
			send 6 20 200-205 0+60 data id=req-1
			recv 7 40 202-210 0+60 data id=req-1
			send 8 30 300-305 0+60 data id=req-1
			recv 9 40 302-310 0+60 data id=req-1
			send 9 40 400-405 0+40 complete id=req-1
			recv 8 10 402-410 0+40 complete id=req-1`, head + `
			hop image[20]>join[40] data unix 200>210 exact
			hop audio[30]>join[40] data unix 300>310 exact
			hop join[40]>api[10] complete unix 400>410 exact
			visit image[20] in=api@130 ready=130..200 start=130..200 finish=130..200 dep=200 exact
			visit audio[30] in=api@135 ready=135..300 start=135..300 finish=135..300 dep=300 exact
			visit join[40] join in=image@210,audio@310 ready=310..400 start=310..400 finish=310..400 dep=400 exact`},
		{"join lacking an input: one upstream only, nothing invented", fourProcs + `
			send 6 20 200-205 0+60 data id=req-1
			recv 7 40 202-210 0+60 data id=req-1
			send 9 40 400-405 0+40 complete id=req-1
			recv 8 10 402-410 0+40 complete id=req-1`, head + `
			hop image[20]>join[40] data unix 200>210 exact
			hop join[40]>api[10] complete unix 400>410 exact
			visit image[20] in=api@130 ready=130..200 start=130..200 finish=130..200 dep=200 exact
			visit audio[30] in=api@135 ready=? start=? finish=? dep=? exact
			visit join[40] in=image@210 ready=210..400 start=210..400 finish=210..400 dep=400 exact`},
		{"an input after the output does not make it ready", fourProcs + `
			send 6 20 200-205 0+60 data id=req-1
			recv 7 40 202-210 0+60 data id=req-1
			send 9 40 250-255 0+40 complete id=req-1
			recv 8 10 252-260 0+40 complete id=req-1
			send 8 30 300-305 0+60 data id=req-1
			recv 9 40 302-310 0+60 data id=req-1`, head + `
			hop image[20]>join[40] data unix 200>210 exact
			hop join[40]>api[10] complete unix 250>260 exact
			hop audio[30]>join[40] data unix 300>310 exact
			visit image[20] in=api@130 ready=130..200 start=130..200 finish=130..200 dep=200 exact
			visit audio[30] in=api@135 ready=135..300 start=135..300 finish=135..300 dep=300 exact
			visit join[40] in=image@210,audio@310 ready=210..250 start=210..250 finish=210..250 dep=250 exact`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, c.trace)
			sameRows(t, rows(tl.Finish()), c.want)
		})
	}
}

func TestStages(t *testing.T) {
	entry := `
			recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
	`
	for _, c := range []struct{ name, trace, want string }{
		{"acks and aborts are hops but no inputs", twoProcs + entry + `
			send 2 10 150-160 0+50 data_ready id=req-1 shm=psm_1:64
			recv 3 20 155-170 0+50 data_ready id=req-1 shm=psm_1:64
			send 3 20 180-190 0+30 data_ack id=req-1
			recv 2 10 185-195 0+30 data_ack id=req-1
			send 2 10 250-260 50+20 abort id=req-1
			recv 3 20 255-270 50+20 abort id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] data_ready unix+shm 150>170 exact
			hop encoder[20]>api[10] data_ack unix 180>195 exact
			hop api[10]>encoder[20] abort unix 250>270 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact`},
		{"an answer that names the same segment is an ack whatever its type", twoProcs + entry + `
			send 2 10 150-160 0+50 data id=req-1 shm=psm_1:64
			recv 3 20 155-170 0+50 data id=req-1 shm=psm_1:64
			send 3 20 180-190 0+30 done id=req-1 shm=psm_1:64
			recv 2 10 185-195 0+30 done id=req-1 shm=psm_1:64`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] data unix+shm 150>170 exact
			hop encoder[20]>api[10] done unix 180>195 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact`},
		{"two stages in one process, named by messages", `
			proc 10 api
			proc 20 python
			client 1
			unix 2 3
			base 2 3 0
			base 3 2 0` + entry + `
			send 2 10 150-160 0+50 data id=req-1 from=coordinator to=talker
			recv 3 20 155-170 0+50 data id=req-1 from=coordinator to=talker
			send 3 20 300-310 0+40 complete id=req-1 from=vocoder
			recv 2 10 305-320 0+40 complete id=req-1 from=vocoder`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>talker[20] data unix 150>170 exact
			hop vocoder[20]>api[10] complete unix 300>320 exact
			visit talker[20] in=api@170 ready=170..300 start=170..300 finish=170..300 dep=170..300 exact
			visit vocoder[20] in= ready=170..300 start=170..300 finish=170..300 dep=300 exact`},
		{"two stages in one process, a message that states none after one that does", `
			proc 10 api
			proc 20 join bound=/run/x/stage_join.sock
			proc 30 talker
			client 1
			unix 2 3
			unix 4 5
			base 2 3 0
			base 3 2 0
			base 4 5 0` + entry + `
			send 2 10 150-160 0+50 data id=req-1 to=join
			recv 3 20 155-170 0+50 data id=req-1 to=join
			send 3 20 300-310 0+40 stream id=req-1 from=thinker
			recv 2 10 305-320 0+40 stream id=req-1 from=thinker
			send 4 20 330-335 0+40 add id=req-1
			recv 5 30 332-340 0+40 add id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>join[20] data unix 150>170 exact
			hop thinker[20]>api[10] stream unix 300>320 exact
			hop thinker[20]>talker[30] add unix 330>340 exact
			visit join[20] in=api@170 ready=170..330 start=170..330 finish=170..330 dep=170..330 exact
			visit thinker[20] in= ready=170..330 start=170..330 finish=170..330 dep=330 exact
			visit talker[30] in=thinker@340 ready=? start=? finish=? dep=? exact`},
		{"replicas: one stage, two processes", `
			proc 10 api
			proc 20 encoder
			proc 21 encoder
			client 1
			client 6
			unix 2 3
			unix 4 5
			base 2 3 0
			base 4 5 0` + entry + `
			recv 6 10 101-111 0+300 POST_/v1/x x=1 id=req-2 flags=first,last
			send 2 10 150-160 0+50 submit id=req-1
			recv 3 20 155-170 0+50 submit id=req-1
			send 4 10 151-161 0+50 submit id=req-2
			recv 5 21 156-171 0+50 submit id=req-2`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>170 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact
			request req-2 unknown entry=111 exit=?
			hop api[10]>encoder[21] submit unix 151>171 exact
			visit encoder[21] in=api@171 ready=? start=? finish=? dep=? exact`},
		{"a reused process id is another process", `
			proc 10 api
			proc 20 encoder start=5
			client 1
			unix 2 3
			unix 4 5
			base 2 3 0
			base 4 5 0` + entry + `
			send 2 10 150-160 0+50 submit id=req-1
			recv 3 20 155-170 0+50 submit id=req-1
			exit 20 200
			fork 20 decoder at=300 start=9
			send 4 10 350-360 0+50 submit id=req-1
			recv 5 20 355-370 0+50 submit id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>170 exact
			hop api[10]>decoder[20] submit unix 350>370 exact
			visit encoder[20] in=api@170 ready=? start=? finish=? dep=? exact
			visit decoder[20] in=api@370 ready=? start=? finish=? dep=? exact`},
		{"chunks: a visit for each, the closing message with the last", twoProcs + `
			proc 30 vocoder
			unix 4 5
			base 4 5 0
			unix 6 7
			base 6 7 0` + entry + `
			send 2 10 150-160 0+50 submit id=req-1
			recv 3 20 155-170 0+50 submit id=req-1
			send 4 20 200-205 0+50 data id=req-1 chunk=0
			recv 5 30 202-210 0+50 data id=req-1 chunk=0
			send 4 20 300-305 50+50 data id=req-1 chunk=1
			recv 5 30 302-310 50+50 data id=req-1 chunk=1
			send 6 30 250-255 0+50 stream id=req-1 chunk=0
			recv 7 10 252-260 0+50 stream id=req-1 chunk=0
			send 6 30 350-355 50+50 stream id=req-1 chunk=1
			recv 7 10 352-360 50+50 stream id=req-1 chunk=1
			send 6 30 356-357 100+20 complete id=req-1
			recv 7 10 356-361 100+20 complete id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>170 exact
			hop encoder[20]>vocoder[30] data#0 unix 200>210 exact
			hop vocoder[30]>api[10] stream#0 unix 250>260 exact
			hop encoder[20]>vocoder[30] data#1 unix 300>310 exact
			hop vocoder[30]>api[10] stream#1 unix 350>360 exact
			hop vocoder[30]>api[10] complete unix 356>361 exact
			visit encoder[20] in=api@170 ready=170..200 start=170..200 finish=170..300 dep=300 exact
			visit vocoder[30]#0 in=encoder#0@210 ready=210..250 start=210..250 finish=210..250 dep=250 exact
			visit vocoder[30]#1 in=encoder#1@310 ready=310..350 start=310..350 finish=310..356 dep=356 exact`},
		{"chunks: numbers that were not captured are those before and between their neighbours", twoProcs + `
			proc 30 vocoder
			unix 4 5
			base 4 5 0
			unix 6 7
			base 6 7 0` + entry + `
			send 4 20 200-205 0+50 data id=req-1 chunk=0
			recv 5 30 202-210 0+50 data id=req-1 chunk=0
			send 4 20 211-212 50+50 data id=req-1 chunk=1
			recv 5 30 213-214 50+50 data id=req-1 chunk=1
			send 4 20 220-221 100+50 data id=req-1 chunk=2
			recv 5 30 222-223 100+50 data id=req-1 chunk=2
			send 4 20 224-225 150+50 data id=req-1 chunk=3
			recv 5 30 226-227 150+50 data id=req-1 chunk=3
			send 6 30 250-255 0+50 stream id=req-1
			recv 7 10 252-260 0+50 stream id=req-1
			send 6 30 350-355 50+50 stream id=req-1
			recv 7 10 352-360 50+50 stream id=req-1
			send 6 30 450-455 100+50 stream id=req-1
			recv 7 10 452-460 100+50 stream id=req-1
			send 6 30 550-555 150+50 stream id=req-1 chunk=3
			recv 7 10 552-560 150+50 stream id=req-1 chunk=3`, `
			request req-1 unknown entry=110 exit=?
			hop encoder[20]>vocoder[30] data#0 unix 200>210 exact
			hop encoder[20]>vocoder[30] data#1 unix 211>214 exact
			hop encoder[20]>vocoder[30] data#2 unix 220>223 exact
			hop encoder[20]>vocoder[30] data#3 unix 224>227 exact
			hop vocoder[30]>api[10] stream unix 250>260 exact
			hop vocoder[30]>api[10] stream unix 350>360 exact
			hop vocoder[30]>api[10] stream unix 450>460 exact
			hop vocoder[30]>api[10] stream#3 unix 550>560 exact
			visit encoder[20]#0 in= ready=? start=? finish=? dep=200 exact
			visit vocoder[30]#0 in=encoder#0@210 ready=210..250 start=210..250 finish=210..250 dep=250 exact
			visit encoder[20]#1 in= ready=? start=? finish=? dep=211 exact
			visit vocoder[30]#1 in=encoder#1@214 ready=214..350 start=214..350 finish=214..350 dep=350 exact
			visit encoder[20]#2 in= ready=? start=? finish=? dep=220 exact
			visit vocoder[30]#2 in=encoder#2@223 ready=223..450 start=223..450 finish=223..450 dep=450 exact
			visit encoder[20]#3 in= ready=? start=? finish=? dep=224 exact
			visit vocoder[30]#3 in=encoder#3@227 ready=227..550 start=227..550 finish=227..550 dep=550 exact`},
		{"chunks: what closes the stream, and answers of its own, is one visit more", twoProcs + `
			proc 30 vocoder
			unix 4 5
			base 4 5 0
			unix 6 7
			base 6 7 0` + entry + `
			send 2 10 150-160 0+50 submit id=req-1
			recv 3 20 155-170 0+50 submit id=req-1
			send 4 20 200-205 0+50 data id=req-1 chunk=0
			recv 5 30 202-210 0+50 data id=req-1 chunk=0
			send 4 20 212-213 50+50 data id=req-1 chunk=1
			recv 5 30 213-214 50+50 data id=req-1 chunk=1
			send 4 20 220-221 100+20 done id=req-1
			recv 5 30 222-223 100+20 done id=req-1
			send 6 30 250-255 0+50 stream id=req-1 chunk=0
			recv 7 10 252-260 0+50 stream id=req-1 chunk=0
			send 6 30 350-355 50+50 stream id=req-1 chunk=1
			recv 7 10 352-360 50+50 stream id=req-1 chunk=1
			send 6 30 456-457 100+20 complete id=req-1
			recv 7 10 456-461 100+20 complete id=req-1`, `
			request req-1 unknown entry=110 exit=?
			hop api[10]>encoder[20] submit unix 150>170 exact
			hop encoder[20]>vocoder[30] data#0 unix 200>210 exact
			hop encoder[20]>vocoder[30] data#1 unix 212>214 exact
			hop encoder[20]>vocoder[30] done unix 220>223 exact
			hop vocoder[30]>api[10] stream#0 unix 250>260 exact
			hop vocoder[30]>api[10] stream#1 unix 350>360 exact
			hop vocoder[30]>api[10] complete unix 456>461 exact
			visit encoder[20] in=api@170 ready=170..200 start=170..200 finish=170..220 dep=220 exact
			visit vocoder[30]#0 in=encoder#0@210 ready=210..250 start=210..250 finish=210..250 dep=250 exact
			visit vocoder[30]#1 in=encoder#1@214 ready=214..350 start=214..350 finish=214..350 dep=350 exact
			visit vocoder[30] in=encoder@223 ready=223..456 start=223..456 finish=223..456 dep=456 exact`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, c.trace)
			sameRows(t, rows(tl.Finish()), c.want)
		})
	}
}

func TestInsideOneProcessIsNamed(t *testing.T) {
	tl := New(Options{StageOf: byComm})
	feed(t, tl, `
		proc 10 api
		proc 20 python
		client 1
		unix 2 3
		base 2 3 0
		base 3 2 0
		recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
		send 2 10 150-160 0+50 data id=req-1 to=talker
		recv 3 20 155-170 0+50 data id=req-1 to=talker
		send 3 20 300-310 0+40 complete id=req-1 from=vocoder
		recv 2 10 305-320 0+40 complete id=req-1 from=vocoder`)
	r := tl.Finish()
	if len(r.Uncovered) != 1 || r.Uncovered[0].From != "talker" || r.Uncovered[0].To != "vocoder" || r.Uncovered[0].N != 1 {
		t.Errorf("uncovered hops: %+v", r.Uncovered)
	}
	var names []string
	for _, s := range r.Stages {
		names = append(names, s.Name)
	}
	if len(names) != 3 || names[0] != "api" || !r.Stages[0].Entry {
		t.Errorf("stages: %v", names)
	}
}
