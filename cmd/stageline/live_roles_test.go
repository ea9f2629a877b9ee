package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// liveRole names what a copy of the test program is to be instead of running tests.
const liveRole = "STAGELINE_LIVE_ROLE"

var liveRoles = map[string]func(){
	"quoting": beQuoting, "keeper": beKeeper, "worker": beWorker, "mock": beMock, "load": beLoad, "command": beCaught,
}

// beCaught is the command itself; it writes one byte once signals are caught.
func beCaught() {
	ctx := catchSignals()
	fmt.Print("x")
	os.Exit(dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// beQuoting is an engine whose replies and errors repeat what the request said. It prints its URL.
func beQuoting() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("http://" + ln.Addr().String())
	go endWithInput()
	http.Serve(ln, http.HandlerFunc(quote))
}

// endWithInput ends the process when its standard input does: it never outlives the test.
func endWithInput() {
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// quote answers by the last part of the path.
func quote(w http.ResponseWriter, req *http.Request) {
	b, _ := io.ReadAll(req.Body) // a short body shows in the reply
	var body struct {
		User     string
		Messages []struct{ Content string }
	}
	json.Unmarshal(b, &body)
	said := body.User
	for _, m := range body.Messages {
		said += " " + m.Content
	}
	if len(said) > 2000 {
		said = said[:2000]
	}
	text, _ := json.Marshal(said)
	switch filepath.Base(req.URL.Path) {
	case "openai":
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":{"message":"cannot serve this: %s","code":%s,"type":"invalid"}}`, strings.Trim(string(text), `"`), text)
	case "detail":
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, `{"detail":[{"type":"too_long","loc":["body","messages"],"input":%s}]}`, text)
	case "plain":
		w.Header().Set("X-Echo", strings.Join(strings.Fields(said), " "))
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "engine failed on %s", said)
	case "completions": // of what stands beside the body
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":{"message":"bad key %s, query %s"}}`, req.Header.Get("Authorization"), req.URL.RawQuery)
	default: // a stream that ends in an error
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", text)
		fmt.Fprintf(w, "data: {\"error\":{\"message\":%s}}\n\ndata: [DONE]\n\n", text)
	}
}

// beKeeper is an engine of two processes: it passes each request on to a worker over a unix socket,
// and starts another worker when that one dies. It prints its URL, then each worker's PID.
func beKeeper() {
	dir, err := os.MkdirTemp("", "keep")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	path := filepath.Join(dir, "worker.sock")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("http://" + ln.Addr().String())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.RemoveAll(dir)
		os.Exit(0)
	}()
	go keepWorker(path)
	http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { passOn(client, w, req) }))
}

// keepWorker starts one worker after the other.
func keepWorker(path string) {
	for {
		os.Remove(path)
		cmd := exec.Command(os.Args[0], path)
		cmd.Env = append(os.Environ(), liveRole+"=worker")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe() // its end ends the worker
		if err != nil {
			return
		}
		out, err := cmd.StdoutPipe()
		if err != nil || cmd.Start() != nil {
			return
		}
		bufio.NewReader(out).ReadString('\n')
		fmt.Println(cmd.Process.Pid)
		cmd.Wait()
		in.Close()
	}
}

func passOn(client *http.Client, w http.ResponseWriter, req *http.Request) {
	b, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	r, err := http.NewRequest(http.MethodPost, "http://worker/v1/work", strings.NewReader(string(b)))
	if err != nil {
		return
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Request-Id", req.Header.Get("X-Request-Id"))
	resp, err := client.Do(r)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", "application/json")
	io.Copy(w, resp.Body)
}

// beWorker answers on the unix socket named by its argument, and says when it listens.
func beWorker() {
	ln, err := net.Listen("unix", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("listening")
	go endWithInput()
	http.Serve(ln, http.HandlerFunc(answerWork))
}

func answerWork(w http.ResponseWriter, req *http.Request) {
	io.Copy(io.Discard, req.Body)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"chatcmpl-%s","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"done"},"finish_reason":"stop"}]}`, req.Header.Get("X-Request-Id"))
}
