package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

func httpReq(line, headers, body string) string {
	if body != "" {
		headers += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return line + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + body
}

func chunked(b string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(b), b) }

func delta(id, text string) string {
	return `data: {"id":"chatcmpl-` + id + `","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}` + "\n\n"
}

// sseReply is a streamed reply cut as a server writes it: head, then one chunk an event. What
// stands between two events (chunk ends and sizes) belongs to no message.
func sseReply(x int, id string) script {
	r := script{{"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n",
		fmt.Sprintf("http1 200 x%d 200 +first", x)}}
	ev := func(b, kind string) {
		r = append(r, script{{fmt.Sprintf("%x\r\n", len(b)), ""}, {b, kind}, {"\r\n", ""}}...)
	}
	ev(`data: {"id":"chatcmpl-`+id+`","choices":[{"delta":{"role":"assistant","content":""}}]}`+"\n\n",
		fmt.Sprintf("sse role x%d id=chatcmpl-%s", x, id))
	ev(delta(id, "Hello"), fmt.Sprintf("sse content x%d id=chatcmpl-%s", x, id))
	ev(delta(id, `line\nbreak`), fmt.Sprintf("sse content x%d id=chatcmpl-%s", x, id))
	ev(": keep-alive\n\n", fmt.Sprintf("sse comment x%d", x))
	ev(`data: {"id":"chatcmpl-`+id+`","choices":[{"delta":{"reasoning_content":"hm"}}]}`+"\r\n\r\n",
		fmt.Sprintf("sse reasoning x%d id=chatcmpl-%s", x, id))
	ev(`data: {"id":"chatcmpl-`+id+`","modality":"audio","choices":[{"delta":{"content":"UklGRg=="}}]}`+"\n\n",
		fmt.Sprintf("sse audio x%d id=chatcmpl-%s", x, id))
	ev(`data: {"id":"chatcmpl-`+id+`","choices":[{"delta":{},"finish_reason":"stop"}]}`+"\n\n",
		fmt.Sprintf("sse finish x%d id=chatcmpl-%s", x, id))
	ev(`data: {"id":"chatcmpl-`+id+`","choices":[],"usage":{"completion_tokens":3}}`+"\n\n",
		fmt.Sprintf("sse usage x%d id=chatcmpl-%s", x, id))
	ev("event: error\ndata: {\"error\":{\"message\":\"late\"}}\n\n", fmt.Sprintf("sse error x%d", x))
	ev("data: [DONE]\n\n", fmt.Sprintf("sse done x%d", x))
	r = append(r, script{{"0\r\n\r\n", fmt.Sprintf("http1 end x%d +last", x)}}...)
	for i := range r {
		r[i].want = strings.Replace(r[i].want, " x0", "", 1) // row leaves an unknown exchange out
	}
	return r
}

func requests() script {
	body := `{"model":"m","messages":[{"role":"user","content":"what is an \"id\": \"secret-1\"?","id":"nested-1"}],"request_id":"r-77","stream":true}`
	return script{
		{httpReq("POST /v1/chat/completions?key=private", "X-Request-Id: "+testID+"\r\nContent-Type: application/json\r\n", body),
			"http1 POST /v1/chat/completions x1 header x-request-id=" + testID + " request_id=r-77 +first +last"},
		{httpReq("GET /health", "", ""), "http1 GET /health x2 +first +last"},
		{"\r\n", ""},
		{httpReq("POST /v1/audio/speech", "Transfer-Encoding: chunked\r\nx-request-id: b-2\r\n", "")[0:] + chunked(`{"input":"hello `) + chunked(`you","id":"z-9"}`) + "0\r\nTrailer: x\r\n\r\n",
			"http1 POST /v1/audio/speech x3 header x-request-id=b-2 id=z-9 +first +last"},
		{httpReq("HEAD /v1/models", "", ""), "http1 HEAD /v1/models x4 +first +last"},
		{httpReq("POST /v1/x", "Expect: 100-continue\r\n", `{"id":1}`), "http1 POST /v1/x x5 +first +last"},
	}
}

func replies() script {
	s := sseReply(0, "r-77")
	s = append(s, script{
		{"HTTP/1.1 204 No Content\r\n\r\n", "http1 204 204 +first +last"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 22\r\nX-Request-ID: b-2\r\n\r\n" + `{"id":"speech-123456"}`,
			"http1 200 200 header x-request-id=b-2 id=speech-123456 +first +last"},
		{"HTTP/1.1 100 Continue\r\n\r\n", "http1 100 100"},
		{"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found", "http1 404 404 +first +last"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: audio/wav\r\n\r\n", "http1 200 200 +first"},
		{"5\r\n", ""}, {"RIFF1", "http1 chunk"}, {"\r\n", ""},
		{"a;ext=1\r\n", ""}, {"0123456789", "http1 chunk"}, {"\r\n", ""},
		{"0\r\n\r\n", "http1 end +last"},
	}...)
	return s
}

func TestHTTPRequests(t *testing.T) { requests().test(t, run.Recv) }

// Alone, without the requests, replies have no exchange number.
func TestHTTPReplies(t *testing.T) { replies().test(t, run.Send) }

func TestHTTPExchanges(t *testing.T) {
	f := newFeeder(t, nil)
	get := httpReq("GET /a", "", "")
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	f.call(run.Recv, get, all)
	f.call(run.Send, ok, all)
	f.call(run.Recv, httpReq("HEAD /b", "", ""), all)
	f.call(run.Send, "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n", all)
	f.call(run.Recv, get+get, all) // pipelined
	f.call(run.Send, ok+ok, all)
	f.call(run.Recv, httpReq("GET /up", "Upgrade: websocket\r\n", ""), all)
	f.call(run.Send, "HTTP/1.1 101 Switching Protocols\r\n\r\n", all)
	f.call(run.Recv, "\x81\x85abcdefghi", all)
	f.call(run.Send, "\x81\x05hello", all)
	n := len(get)
	same(t, f.rows(), []string{
		fmt.Sprintf("recv 0-%d http1 GET /a x1 +first +last", n),
		"send 0-40 http1 200 x1 200 +first +last",
		fmt.Sprintf("recv %d-%d http1 HEAD /b x2 +first +last", n, 2*n+1),
		"send 40-81 http1 200 x2 200 +first +last",
		fmt.Sprintf("recv %d-%d http1 GET /a x3 +coalesced +first +last", 2*n+1, 3*n+1),
		fmt.Sprintf("recv %d-%d http1 GET /a x4 +first +last", 3*n+1, 4*n+1),
		"send 81-121 http1 200 x3 200 +coalesced +first +last",
		"send 121-161 http1 200 x4 200 +first +last",
		fmt.Sprintf("recv %d-%d http1 GET /up x5 +first +last", 4*n+1, 5*n+1+len("p")+len("Upgrade: websocket\r\n")),
		"send 161-197 http1 101 x5 101",
		fmt.Sprintf("recv %d-%d burst ", 5*n+22, 5*n+33),
		"send 197-204 burst ",
	})
}

func TestHTTPLateRequestRecord(t *testing.T) {
	// The request's first call was lost; its hole is given up when the reply shows up.
	f := newFeeder(t, nil)
	get := httpReq("GET /a", "", "")
	f.call(run.Recv, get, all)
	f.chunk(run.Recv, get, all) // lost
	f.call(run.Recv, get, all)
	f.call(run.Send, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", all)
	f.call(run.Send, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", all)
	rows := f.rows()
	if !strings.Contains(strings.Join(rows, "\n"), "GET /a x2 +resynced") {
		t.Errorf("second request not recovered:\n%s", strings.Join(rows, "\n"))
	}
	if !strings.Contains(rows[len(rows)-1], "x2") {
		t.Errorf("second reply is not of exchange 2:\n%s", strings.Join(rows, "\n"))
	}
}

func TestHTTPStreamedReplyTimes(t *testing.T) {
	f := newFeeder(t, nil)
	f.call(run.Recv, httpReq("POST /v1/chat/completions", "X-Request-Id: "+testID+"\r\n", `{"stream":true}`), all)
	f.call(run.Send, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", all)
	a, b := delta("r-1", "a"), delta("r-1", "b")
	f.call(run.Send, chunked(a), all)
	f.call(run.Send, chunked(b)+chunked("data: [DONE]\n\n"), all)
	f.call(run.Send, "0\r\n\r\n", all)
	rows := f.rows()
	want := []int64{1e9 + 1000, 1e9 + 2000, 1e9 + 3000, 1e9 + 4000, 1e9 + 4000, 1e9 + 5000}
	for i, w := range want {
		if m := f.out.msgs[i]; m.FirstEnterNS != w || m.LastExitNS != w+500 {
			t.Errorf("%s: [%d, %d], want [%d, %d]", rows[i], m.FirstEnterNS, m.LastExitNS, w, w+500)
		}
		if c := strings.Contains(rows[i], "+coalesced"); c != (i == 3) {
			t.Errorf("%s: coalesced %v", rows[i], c)
		}
	}
}

func TestSSEUntilClose(t *testing.T) {
	script{
		{"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n", "http1 200 200 +first"},
		{delta("r-1", "a"), "sse content id=chatcmpl-r-1"},
		{delta("r-1", "b"), "sse content id=chatcmpl-r-1"},
		{"data: [DONE]\n\n", "sse done +last"},
	}.test(t, run.Send)
}

func TestOllamaLines(t *testing.T) {
	s := script{{"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n", "http1 200 200 +first"}}
	for _, l := range [][2]string{
		{`{"model":"m","response":"Hel","done":false}` + "\n", "ndjson content"},
		{`{"model":"m","response":"lo","done":false}` + "\n", "ndjson content"},
		{`{"model":"m","message":{"role":"assistant","content":"x"},"done":false}` + "\n", "ndjson content"},
		{`{"model":"m","response":"","done":true,"eval_count":2}` + "\n", "ndjson finish"},
	} {
		s = append(s, script{{fmt.Sprintf("%x\r\n", len(l[0])), ""}, {l[0], l[1]}, {"\r\n", ""}}...)
	}
	append(s, script{{"0\r\n\r\n", "http1 end +last"}}...).test(t, run.Send)
}

func TestSSECaptureCuts(t *testing.T) {
	// Audio events far longer than the captured head, one chunk and one write each.
	f := newFeeder(t, nil)
	f.call(run.Send, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", 1024)
	var want []string
	want = append(want, "send 0-80 http1 200 200 +first")
	pos := 80
	for i := range 3 {
		ev := fmt.Sprintf(`data: {"id":"chatcmpl-r-1","audio":{"n":%d,"data":"%s"}}`+"\n\n", i, strings.Repeat("QUFB", 5000))
		f.call(run.Send, chunked(ev), 1024)
		pos += 6 // size line
		want = append(want, fmt.Sprintf("send %d-%d sse audio id=chatcmpl-r-1 +truncated", pos, pos+len(ev)))
		pos += len(ev) + 2
	}
	f.call(run.Send, "0\r\n\r\n", 1024)
	want = append(want, fmt.Sprintf("send %d-%d http1 end +last", pos, pos+5))
	same(t, f.rows(), want)
}

func TestSSECutCoalesced(t *testing.T) {
	// Two events in one write: the second lies beyond the head; the stream goes on after it.
	f := newFeeder(t, nil)
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	long := delta("r-1", strings.Repeat("a", 2000))
	f.call(run.Send, head, 1024)
	f.call(run.Send, chunked(long)+chunked(long), 1024)
	f.call(run.Send, chunked(delta("r-1", "b")), 1024)
	f.call(run.Send, "0\r\n\r\n", 1024)
	at := len(head) + 5
	rest := at + len(long) + 2
	next := rest + 5 + len(long) + 2
	b := len(delta("r-1", "b"))
	same(t, f.rows(), []string{
		fmt.Sprintf("send 0-%d http1 200 200 +first", len(head)),
		fmt.Sprintf("send %d-%d sse content id=chatcmpl-r-1 +truncated +coalesced", at, at+len(long)),
		fmt.Sprintf("send %d-%d sse content id=chatcmpl-r-1 +resynced", next+4, next+4+b),
		fmt.Sprintf("send %d-%d http1 end +last", next+4+b+2, next+4+b+7),
	})
	if len(f.out.gaps) != 1 || f.out.gaps[0].Pos != uint64(rest) || f.out.gaps[0].End != uint64(next) || f.out.gaps[0].Cause != run.GapCapture {
		t.Errorf("gaps %v, want [%d, %d) beyond the captured head", f.out.gaps, rest, next)
	}
}

// With calls lost on both sides of a keep-alive connection, a reply is numbered like its own
// request, or not at all, or says that the number is a guess.
func TestExchangesUnderLoss(t *testing.T) {
	right, guessed, unknown, wrong := 0, 0, 0, 0
	for seed := range uint64(60) {
		r := rnd(seed)
		f := newFeeder(t, &run.Endpoint{ID: 1, Transport: run.TransportTCP, PosAbsolute: true})
		call := func(dir run.Dir, b string) {
			if k := f.chunk(dir, b, all); r.IntN(12) > 0 {
				f.c.Feed(dir, k)
			}
		}
		for i := range 60 {
			id := fmt.Sprintf("r%06d", i)
			call(run.Recv, httpReq("POST /v1/chat/completions", "X-Request-Id: "+id+"\r\n", `{"stream":true}`))
			if i%4 == 3 {
				b := `{"id":"chatcmpl-` + id + `"}`
				call(run.Send, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(b))+b)
				continue
			}
			call(run.Send, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
			for range 4 {
				call(run.Send, chunked(delta(id, "x")))
			}
			call(run.Send, chunked("data: [DONE]\n\n")+"0\r\n\r\n")
		}
		f.c.Close(f.now)
		of := map[string]uint32{}
		for _, m := range f.out.msgs {
			if m.Dir == run.Recv {
				for _, id := range m.IDs {
					of[id.Value] = m.Exchange
				}
			}
		}
		for _, m := range f.out.msgs {
			if m.Dir == run.Recv || len(m.IDs) == 0 {
				continue
			}
			switch n := of[strings.TrimPrefix(m.IDs[0].Value, "chatcmpl-")]; {
			case m.Exchange == 0:
				unknown++
			case m.Exchange == n:
				right++
			case m.Flags&run.MsgGuessed != 0:
				guessed++
			default:
				wrong++
				t.Logf("seed %d: %s is of exchange %d", seed, row(&m), n)
			}
		}
	}
	t.Logf("%d right, %d wrong but marked as guessed, %d unknown, %d wrong", right, guessed, unknown, wrong)
	if wrong > 0 || right < 10*unknown || guessed > right/100 {
		t.Errorf("%d right, %d unknown, %d wrong", right, unknown, wrong)
	}
}
