package run

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

const killSeed, killRecords = 41, 100_003

// killedWriter is the child of the tests below: it records, says how much it has flushed, goes on,
// and waits to be killed.
func killedWriter(dir string) int {
	w, err := create(dir, Metadata{RunID: "killed"}, 1<<20, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	records := randomRecords(killSeed, 5003)
	for k := range killRecords {
		put(w, records[k%len(records)])
		if k == killRecords/2 {
			if err := w.Request(&Request{ID: "first"}); err != nil {
				fmt.Println(err)
				return 1
			}
			w.Flush()
			fmt.Println("flushed", k+1)
		}
	}
	fmt.Println("end")
	io.Copy(io.Discard, os.Stdin) // ends when the parent does, at the latest
	return 0
}

// startWriter starts the child and returns how many records it had flushed when it said so.
func startWriter(t *testing.T, dir string) (child *exec.Cmd, out *bufio.Reader, flushed int) {
	t.Helper()
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "STAGELINE_TEST_WRITER="+dir)
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); child.Process.Kill(); child.Wait() })
	out = bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	flushed, err = strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "flushed ")))
	if err != nil {
		t.Fatalf("child said %q", line)
	}
	return child, out, flushed
}

func TestSealAfterKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	child, _, flushed := startWriter(t, dir)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait()

	report, err := Seal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Killed || report.RunID != "killed" {
		t.Errorf("report %+v", report)
	}
	r := mustOpen(t, dir)
	if !r.Sealed || r.Meta.Closed || r.Meta.Clocks.End != nil || len(r.Notes) != 1 || r.Notes[0].Code != "killed" {
		t.Errorf("sealed %v closed %v notes %+v", r.Sealed, r.Meta.Closed, r.Notes)
	}
	got := replayed(t, r)
	if report.Spool.TornBytes > 0 {
		l := got[len(got)-1].(Loss)
		if l.Reason != "spool" || l.What != "torn" || l.Bytes != uint64(report.Spool.TornBytes) {
			t.Errorf("torn tail is told as %+v", l)
		}
		got = got[:len(got)-1]
	}
	if len(got) < flushed || len(got) > killRecords {
		t.Errorf("%d records, %d had been flushed", len(got), flushed)
	}
	want := randomRecords(killSeed, 5003)
	for k := range got {
		if !reflect.DeepEqual(got[k], want[k%len(want)]) {
			t.Fatalf("record %d differs", k)
		}
	}
	var ids []string
	if err := r.Requests(func(q *Request) error { ids = append(ids, q.ID); return nil }); err != nil || len(ids) != 1 || ids[0] != "first" {
		t.Errorf("requests %v, %v", ids, err)
	}
	for _, name := range mustList(t, dir) {
		if strings.HasSuffix(name, suffixTemp) {
			t.Errorf("%s was left", name)
		}
	}
}

func TestSealRefusedWhileRecording(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	child, out, _ := startWriter(t, dir)
	if line, err := out.ReadString('\n'); err != nil || line != "end\n" {
		t.Fatalf("child said %q, %v", line, err)
	}
	_, err := Seal(dir)
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "stop that recorder first") {
		t.Errorf("seal of a live run: %v", err)
	}
	if _, err := Create(dir, Metadata{}); !errors.Is(err, ErrBusy) {
		t.Errorf("create in a live run: %v", err)
	}
	// Reading it meanwhile is allowed.
	r := mustOpen(t, dir)
	if n := len(replayed(t, r)); n < killRecords/2 || r.Notes[0].Code != "unsealed" {
		t.Errorf("%d records, notes %+v", n, r.Notes)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait()
	if _, err := Seal(dir); err != nil {
		t.Error(err)
	}
}

// The flush does not wait for a block to fill.
func TestTickFlushes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	tick := make(chan time.Time)
	w, err := create(dir, Metadata{}, segmentBytes, tick)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.IO(sampleIO())
	if err := w.Request(&Request{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, dir)
	if n := len(replayed(t, r)); n != 0 {
		t.Fatalf("%d records before the flush", n)
	}
	tick <- time.Time{}
	tick <- time.Time{} // taken only after the first was served
	n := 0
	if err := r.Requests(func(*Request) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	if got := len(replayed(t, r)); got != 1 || n != 1 {
		t.Errorf("%d records and %d requests after the flush, want 1 and 1", got, n)
	}
}

// Whoever paces a Writer flushes it, and it flushes itself again when that ends.
func TestPace(t *testing.T) {
	dir, tick := t.TempDir(), make(chan time.Time)
	w, err := create(dir, Metadata{}, segmentBytes, tick)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	size := func() int64 {
		t.Helper()
		st, err := os.Stat(filepath.Join(dir, segmentName(0)))
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	end := w.Pace()
	was := size()
	w.Note(&Note{AtNS: 1, Text: "paced"})
	for range 1000 {
		select {
		case tick <- time.Time{}:
			t.Fatal("it flushes while it is paced")
		default:
			runtime.Gosched()
		}
	}
	if now := size(); now != was {
		t.Errorf("%d bytes were written before the flush", now-was)
	}
	w.Flush()
	flushed := size()
	if flushed == was {
		t.Error("a flush wrote nothing")
	}
	end()
	w.Note(&Note{AtNS: 2, Text: "alone"})
	tick <- time.Time{}
	tick <- time.Time{} // taken only after the first was served
	if size() == flushed {
		t.Error("it does not flush after it was paced")
	}
}
