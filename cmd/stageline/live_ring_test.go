package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
)

// ringTruth is what testdata/ring.py says of one message: the moments before and after each step.
type ringTruth struct {
	ID    string   `json:"id"`
	Put   [2]int64 `json:"put"`
	Taken [2]int64 `json:"taken"`
	Got   [2]int64 `json:"got"`
}

// runRing records testdata/ring.py passing n messages and returns its two processes and its truth.
// The rings are there before the recorder attaches.
func runRing(t *testing.T, dir string, n int, args ...string) (pids []int, truth []ringTruth) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("%v: install python3", err)
	}
	cmd := exec.Command(python, filepath.Join("testdata", "ring.py"), fmt.Sprint(n))
	var notes strings.Builder
	cmd.Stderr = &notes
	in, out := startPiped(t, cmd)
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the ring's processes ended with %v: %s", err, notes.String())
		}
	})
	lines := followLines(out)
	var head struct {
		PIDs []int `json:"pids"`
	}
	if err := json.Unmarshal([]byte(lines.next(t)), &head); err != nil {
		t.Fatal(err)
	}
	rec := startRecord(t, append([]string{"-p", pidList(head.PIDs...), "-o", dir}, args...)...)
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	for range n {
		var m ringTruth
		if err := json.Unmarshal([]byte(lines.next(t)), &m); err != nil {
			t.Fatal(err)
		}
		truth = append(truth, m)
	}
	rec.interrupt(t).want(t, exitOK)
	return head.PIDs, truth
}

// ringRecords keeps the records of a run that speak of rings.
type ringRecords struct {
	run.Sink
	t        *correlate.Timeline
	messages map[string]run.Message // by writer or reader, direction and id
	others   int
	notes    []string
}

func (r *ringRecords) Message(m *run.Message) {
	if m.Proto == run.ProtoRing {
		if len(m.IDs) != 1 {
			r.others++
		} else {
			r.messages[fmt.Sprint(m.TGID, m.Dir, m.IDs[0].Value)] = *m
		}
	}
	r.Sink.Message(m)
}

func (r *ringRecords) Note(n *run.Note) {
	if strings.HasPrefix(n.Code, "shadow") || strings.HasPrefix(n.Code, "ring") {
		r.notes = append(r.notes, n.Code+": "+n.Text)
	}
	r.Sink.Note(n)
}

func readRings(t *testing.T, dir string) *ringRecords {
	t.Helper()
	r, err := run.Open(dir, run.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tl := correlate.New(correlate.Options{})
	rec := &ringRecords{Sink: tl, t: tl, messages: map[string]run.Message{}}
	if err := r.Replay(rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

// ringMessages is a prime, so that a lap or a batch of another size does not give it by chance.
const ringMessages = 53

func TestLiveShadowedRing(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	pids, truth := runRing(t, dir, ringMessages, "--shadow-rings", "--no-watchpoints")
	if exact := checkRing(t, dir, pids, truth); exact != 0 {
		t.Errorf("%d ends have an exact time without watchpoints", exact)
	}
}

// The two rings share four registers a process: each has those of its first 8 chunks of 10 watched at
// both ends.
func TestLiveWatchedRing(t *testing.T) {
	needLive(t)
	if err := attach.TryWatchpoints(); err != nil {
		t.Skipf("hardware watchpoints: %v", err)
	}
	dir := filepath.Join(workDir(t), "run")
	pids, truth := runRing(t, dir, ringMessages, "--shadow-rings")
	want := 0
	for i := range truth {
		if i%10 < 8 {
			want += 3 // put, taken, got: the truth does not have the put of the reply
		}
	}
	if exact := checkRing(t, dir, pids, truth); exact != want {
		t.Errorf("%d ends of those that the truth has are exact, want %d", exact, want)
	}
}

// checkRing compares the ends of a ring's messages with the truth, and counts those with an exact
// time, which has to lie between the moments before and after the write, as the trap does.
func checkRing(t *testing.T, dir string, pids []int, truth []ringTruth) (exact int) {
	t.Helper()
	rec := readRings(t, dir)
	if len(rec.messages) != 4*ringMessages || rec.others != 0 {
		t.Errorf("%d ends of ring messages with an id and %d without, want %d and 0", len(rec.messages), rec.others, 4*ringMessages)
	}
	widest := int64(0)
	for _, m := range truth {
		core, worker := pids[0], pids[1]
		for _, end := range []struct {
			key  string
			true [2]int64
		}{
			{fmt.Sprint(core, run.Send, m.ID), m.Put}, {fmt.Sprint(worker, run.Recv, m.ID), m.Taken},
			{fmt.Sprint(core, run.Recv, m.ID), m.Got},
		} {
			got, ok := rec.messages[end.key]
			if !ok {
				t.Errorf("no record of %s", end.key)
				continue
			}
			if got.LastExitNS < end.true[0] || got.FirstEnterNS > end.true[1] {
				t.Errorf("%s: true %v, found %d..%d", end.key, end.true, got.FirstEnterNS, got.LastExitNS)
			}
			if got.FirstEnterNS == got.LastExitNS {
				exact++
			}
			widest = max(widest, got.LastExitNS-got.FirstEnterNS)
		}
	}
	t.Logf("widest interval %d µs; %v", widest/1000, rec.notes)
	for _, c := range rec.t.Finish().Channels {
		if c.Transport == run.TransportShm.String() && (c.Messages != ringMessages || c.Received != ringMessages || !c.Covered) {
			t.Errorf("channel %+v, want %d messages at both ends", c, ringMessages)
		}
	}
	return exact
}

// Without the shadow the ring shows by its notices alone, and the report says that it is not covered.
func TestLiveRingNotices(t *testing.T) {
	needLive(t)
	dir := filepath.Join(workDir(t), "run")
	pids, _ := runRing(t, dir, ringMessages)
	rec := readRings(t, dir)
	if len(rec.messages)+rec.others != 0 {
		t.Errorf("%d messages of rings without --shadow-rings", len(rec.messages)+rec.others)
	}
	r := rec.t.Finish()
	found := false
	for _, c := range r.Channels {
		if c.Transport == "shm ring (notices)" {
			found = true
			if c.Notices != ringMessages || c.FromTGID != uint32(pids[0]) || c.Covered {
				t.Errorf("channel %+v, want %d notices of process %d, not covered", c, ringMessages, pids[0])
			}
		}
	}
	n := 0
	for _, u := range r.Uncovered {
		if strings.Contains(u.Why, "one-byte notices") {
			n += u.N
		}
	}
	if !found || n != ringMessages {
		t.Errorf("channel told: %v; %d messages told as not covered, want %d", found, n, ringMessages)
	}
}
