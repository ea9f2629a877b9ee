package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
)

// zmqSent is one message as the sending program tells it.
type zmqSent struct {
	ID    string `json:"request_id"`
	Bytes int64  `json:"bytes"`
}

// zmqBurst runs the burst program under a recorder and returns what it says it sent.
func zmqBurst(t *testing.T, dir string, count, size int) []zmqSent {
	t.Helper()
	python, _ := venvPython(t)
	cmd := exec.Command(python, filepath.Join("..", "..", "scripts", "zmq-burst.py"), "--count", fmt.Sprint(count), "--size", fmt.Sprint(size))
	in, out := startPiped(t, cmd)
	timer := time.AfterFunc(liveLimit, func() { cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewReader(out)
	var up struct{ Sender, Receiver int }
	readLine(t, lines, &up)
	r := startRecord(t, "-p", pidList(up.Sender, up.Receiver), "-o", dir)
	fmt.Fprintln(in)
	var said struct {
		InOrder        bool      `json:"in_order"`
		Sent, Received []zmqSent `json:",omitempty"`
	}
	readLine(t, lines, &said)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !said.InOrder || len(said.Sent) != count || !slices.Equal(said.Sent, said.Received) {
		t.Fatalf("the burst itself went wrong: %d sent, %d received, in order %v", len(said.Sent), len(said.Received), said.InOrder)
	}
	r.wait(t).want(t, exitOK, "all recorded processes have exited")
	return said.Sent
}

func readLine(t *testing.T, r *bufio.Reader, v any) {
	t.Helper()
	line, err := r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		t.Fatalf("line %q: %v", line, err)
	}
}

func appendJSON[T any](to *[]T, b []byte) error {
	var v T
	err := json.Unmarshal(b, &v)
	*to = append(*to, v)
	return err
}

// libzmq packs many small messages into one write: each of them is framed, at both ends, in order.
func TestLiveBurst(t *testing.T) {
	needLive(t)
	for _, c := range []struct{ count, size int }{{1000, 200}, {1000, 700}} {
		t.Run(fmt.Sprintf("%d-of-%d-bytes", c.count, c.size), func(t *testing.T) {
			dir := filepath.Join(workDir(t), "run")
			sent := zmqBurst(t, dir, c.count, c.size)
			d := recordsOf(t, dir)
			for _, end := range []run.Dir{run.Send, run.Recv} {
				checkBurst(t, d, end, sent)
			}
			if len(d.loss) > 0 || len(d.gaps) > 0 {
				t.Errorf("losses %+v, gaps %+v; want none", d.loss, d.gaps)
			}
		})
	}
}

// checkBurst compares the messages of one end with those sent.
func checkBurst(t *testing.T, d *records, end run.Dir, sent []zmqSent) {
	t.Helper()
	type stream struct {
		ep  uint32
		pid uint32
	}
	var got []zmqSent
	from := map[stream]bool{}
	coalesced := 0
	for i := range d.messages {
		m := &d.messages[i]
		if m.Proto != "zmtp" || m.Dir != end || m.Type != "stream" {
			continue
		}
		var ids []string
		for _, id := range m.IDs {
			ids = append(ids, id.Value)
		}
		got = append(got, zmqSent{strings.Join(ids, " "), m.Bytes})
		from[stream{m.EP, m.TGID}] = true
		if m.Flags&run.MsgCoalesced != 0 {
			coalesced++
		}
		if m.Flags&(run.MsgTruncated|run.MsgResynced) != 0 {
			t.Errorf("%v of message %d has flags %b", end, len(got), m.Flags)
		}
	}
	if len(got) != len(sent) || len(from) != 1 {
		t.Fatalf("%v: %d messages on %d streams, want %d on one", end, len(got), len(from), len(sent))
	}
	for i := range got {
		// The frame has a header of 2 or 9 bytes before the body.
		if h := got[i].Bytes - sent[i].Bytes; got[i].ID != sent[i].ID || h != 0 && h != 2 && h != 9 {
			t.Fatalf("%v: message %d is %+v, sent was %+v", end, i, got[i], sent[i])
		}
	}
	if coalesced == 0 {
		t.Errorf("%v: no two messages shared a call: the test does not test", end)
	}
}
