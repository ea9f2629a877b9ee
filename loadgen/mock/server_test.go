package mock

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Listen(cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s
}

func dial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func stampsOf(t *testing.T, s *Server) []Record {
	t.Helper()
	resp, err := http.Get("http://" + s.Addr() + "/stamps")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out []Record
	for d := json.NewDecoder(resp.Body); ; {
		var r Record
		if err := d.Decode(&r); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
}

const request = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: r1\r\nContent-Length: 15\r\n\r\n{\"stream\":true}"

// A request that comes in pieces gets its tokens, none before its time, and each once in the stamps.
func TestStreamAndStamps(t *testing.T) {
	s := start(t, Config{TTFT: 20 * time.Millisecond, ITL: 2 * time.Millisecond, Tokens: 5, Stamps: true})
	c := dial(t, s)
	for _, part := range []string{request[:20], request[20:95], request[95:]} {
		if _, err := io.WriteString(c, part); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || bytes.Count(b, []byte(`"content":"word "`)) != 5 || !strings.HasSuffix(string(b), "data: [DONE]\n\n") {
		t.Fatalf("error %v, reply %s", err, b)
	}
	recs := stampsOf(t, s)
	if len(recs) != 1 || recs[0].ID != "r1" || len(recs[0].WriteNS) != 5 || recs[0].DueNS != recs[0].ArrivedNS+20e6 {
		t.Fatalf("stamps %+v", recs)
	}
	for i, w := range recs[0].WriteNS {
		if due := recs[0].DueNS + int64(i)*2e6; w < due {
			t.Errorf("token %d written %d ns before its time", i, due-w)
		}
	}
	if again := stampsOf(t, s); len(again) != 0 {
		t.Errorf("the stamps come a second time: %+v", again)
	}
}

// A client that leaves in the midst of its reply leaves nothing behind, and the others are answered.
func TestClientLeaves(t *testing.T) {
	s := start(t, Config{TTFT: time.Millisecond, ITL: time.Millisecond, Tokens: 1000, Stamps: true})
	c := dial(t, s)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	body := strings.NewReader(`{"stream":false}`)
	resp, err := http.Post("http://"+s.Addr()+"/v1/chat/completions", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || bytes.Count(b, []byte("word ")) != 1000 {
		t.Errorf("error %v, %d bytes", err, len(b))
	}
	for _, r := range stampsOf(t, s) {
		if r.ID == "r1" && len(r.WriteNS) == 1000 {
			t.Error("the abandoned reply is said to be whole")
		}
	}
}

func TestConfigRefused(t *testing.T) {
	for _, c := range []Config{{}, {Tokens: 1, TTFT: -1}, {Tokens: 1, ITL: -1}} {
		if _, err := Listen(c, 0); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
