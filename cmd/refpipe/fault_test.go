package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// median of the hops' or visits' durations that pass want.
func median(v []int64) time.Duration {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return time.Duration(v[len(v)/2])
}

func hopTimes(f *truthFile, from, to string) []int64 {
	var v []int64
	for _, h := range f.hops {
		if h.From == from && h.To == to && h.Type != "data_ack" {
			v = append(v, h.Recv-h.Send)
		}
	}
	return v
}

func TestSlowStage(t *testing.T) {
	service := func(args ...string) time.Duration {
		s := begin(t, append([]string{"--topology", "small", "--seed", "3"}, args...)...)
		for i := range 3 {
			s.chat(fmt.Sprintf("req-%d", i), nil)
		}
		var v []int64
		for _, x := range s.stop().visits {
			if x.Stage == s.top.Stages[1].Name {
				v = append(v, x.Finish-x.Start)
			}
		}
		return median(v)
	}
	base, slow := service(), service("--slow", "stage=preprocess:8")
	if slow < 4*base {
		t.Errorf("preprocess takes %v, eight times slower %v", base, slow)
	}
}

func TestSlowHop(t *testing.T) {
	const ms = 40
	top, err := Draw(4, "full")
	must(t, err)
	for _, e := range top.Edges {
		from, to := top.NameOf(e.From), top.NameOf(e.To)
		t.Run(carrierNames[e.Carrier]+"-"+from+"-"+to, func(t *testing.T) {
			s := begin(t, "--seed", "4", "--slow", fmt.Sprintf("hop=%s:%s:%d", from, to, ms))
			for i := range 6 { // the first message of each connection passes: it tells who sends there
				if r := s.chat(fmt.Sprintf("req-%d", i), nil); !r.done || r.failure != "" {
					t.Fatalf("reply: %+v", r)
				}
			}
			f := s.stop()
			want := ms * time.Millisecond * 8 / 10
			if e.To == 0 {
				want /= 4 // messages that come while one is held wait for the rest of its time only
			}
			if got := median(hopTimes(f, from, to)); got < want {
				t.Errorf("hop takes %v, want %v or more", got, want)
			}
			for _, o := range top.Edges {
				if o != e && median(hopTimes(f, top.NameOf(o.From), top.NameOf(o.To))) > ms*time.Millisecond/2 {
					t.Errorf("hop %s to %s is slow, too", top.NameOf(o.From), top.NameOf(o.To))
				}
			}
		})
	}
}

func TestStalledReader(t *testing.T) {
	s := begin(t, "--topology", "small", "--seed", "3", "--stall-reader", "think")
	think := s.top.Stages[5].Name
	for i, end := 0, time.Now().Add(4*time.Second); time.Now().Before(end); i++ {
		s.chat(fmt.Sprintf("req-%d", i), nil)
	}
	v := hopTimes(s.stop(), s.top.Stages[4].Name, think)
	if longest := time.Duration(slices.Max(v)); longest < 60*time.Millisecond || longest > 500*time.Millisecond {
		t.Errorf("longest of %d hops into the stalled reader is %v, want at most 300 ms and most of it", len(v), longest)
	}
}

// Its sender is done with the request and does not send; the receiver takes the payload off again, so
// that nothing after it is slow.
func TestBigPayload(t *testing.T) {
	top, err := Draw(1, "full")
	must(t, err)
	tried := map[string]bool{}
	for _, e := range top.Edges { // in shared memory by either name, inline on a socket, in a pipe
		kind := carrierNames[e.Carrier] + dataNames[e.Data]
		if e.From == 0 || e.To == 0 || e.Carrier == CarrierMemory || tried[kind] {
			continue
		}
		tried[kind] = true
		from, to := top.NameOf(e.From), top.NameOf(e.To)
		t.Run(fmt.Sprintf("%s-%s-%s", carrierNames[e.Carrier], dataNames[e.Data], from), func(t *testing.T) {
			s := begin(t, "--seed", "1", "--big-payload", from+":"+to+":20")
			for i := range 2 {
				if r := s.chat(fmt.Sprintf("req-%d", i), nil); !r.done || r.failure != "" || r.samples != r.chunks*s.top.Stages[7].Service.Filler/2 {
					t.Fatalf("reply: %+v", r)
				}
			}
			f := s.stop()
			late, others := []int64{}, []int64{}
			for _, v := range f.visits {
				if v.Stage == from && v.Chunk == nil {
					late = append(late, v.Departure-v.Finish)
				} else if v.Stage != from {
					others = append(others, v.Departure-v.Finish)
				}
			}
			if e.From != 6 && median(late) < 20*time.Millisecond { // a talker's visit goes on meanwhile
				t.Errorf("%s sends %v after its finish, want 20 ms or more", from, median(late))
			}
			if median(others) > 10*time.Millisecond {
				t.Errorf("the others send %v after their finish", median(others))
			}
		})
	}
}

func TestFaultsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--slow", "stage=api:3"}, "the entry computes nothing"},
		{[]string{"--slow", "hop=wave_out:frontend:20"}, "no edge between processes from wave_out to frontend"},
		{[]string{"--big-payload", "llm:api:20"}, "want two stages"},
		{[]string{"--big-payload", "llm:talker"}, "want FROM:TO:MB"},
		{[]string{"--big-payload", "llm:talker:9999"}, "want 1 to 256 megabytes"},
		{[]string{"--big-payload", "talker:llm:20"}, "no edge between processes from talker to llm"},
	} {
		o, err := parseOptions(append([]string{"--seed", "1"}, c.args...))
		must(t, err)
		top, err := Draw(o.seed, o.topology)
		must(t, err)
		if _, err := o.faults(top); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", c.args, err, c.says)
		}
	}
}

func TestDroppedChunk(t *testing.T) {
	s := begin(t, "--seed", "4", "--drop-chunk", "1")
	r := s.chat("req-0", nil)
	f := s.stop()
	seen := []int{}
	for _, v := range f.visits {
		if v.Chunk != nil {
			seen = append(seen, *v.Chunk)
		}
	}
	slices.Sort(seen)
	if slices.Contains(seen, 1) || !slices.Contains(seen, 0) || !slices.Contains(seen, 2) || r.chunks != len(seen) {
		t.Errorf("vocoder saw chunks %v, the client %d; want all but 1", seen, r.chunks)
	}
}

func TestRepeatedSamples(t *testing.T) {
	s := begin(t, "--seed", "4", "--repeat-samples")
	r := s.chat("req-0", nil)
	want := r.chunks*s.top.Stages[7].Service.Filler/2 + (r.chunks-1)*555
	if r.samples != want {
		t.Errorf("client got %d samples in %d chunks, want %d", r.samples, r.chunks, want)
	}
}

// The only worker of a stage dies: the request in flight fails, later ones are
// refused, and the dead worker's truth up to then is there.
func TestKilledWorker(t *testing.T) {
	for _, impl := range []string{"c", "python"} {
		t.Run(impl, func(t *testing.T) {
			s := begin(t, append(implArgs(t, impl), "--topology", "small", "--seed", "3", "--kill-worker", "join:2")...)
			if r := s.chat("req-0", nil); !r.done || r.failure != "" {
				t.Fatalf("first reply: %+v", r)
			}
			if r := s.chat("req-1", nil); r.failure == "" {
				t.Errorf("reply through the killed worker: %+v", r)
			}
			if r := s.chat("req-2", nil); r.status != http.StatusServiceUnavailable {
				t.Errorf("status after the kill %d, want 503", r.status)
			}
			f := s.stop()
			if f.requests["req-0"].State != "success" || f.requests["req-1"].State != "error" || f.requests["req-2"].State != "error" {
				t.Errorf("states: %+v", f.requests)
			}
			join := s.top.Stages[4].Name
			for _, v := range f.visits {
				if v.Stage == join && v.Request == "req-1" && (v.Start == 0 || v.Finish != 0) {
					t.Errorf("visit that killed its worker: %+v", v)
				}
			}
			leftover(t, s)
		})
	}
}

// With a second replica the pipeline goes on.
func TestKilledReplica(t *testing.T) {
	for _, impl := range []string{"c", "python"} {
		t.Run(impl, func(t *testing.T) {
			args := implArgs(t, impl)
			top, err := Draw(4, "full")
			must(t, err)
			i := slices.IndexFunc(top.Stages, func(s Stage) bool { return len(s.Procs) > 1 })
			s := begin(t, append(args, "--seed", "4", "--kill-worker", top.Stages[i].Name+":1")...)
			failed, ok := 0, 0
			for k := range 6 {
				if r := s.chat(fmt.Sprintf("req-%d", k), nil); r.failure != "" {
					failed++
				} else if r.done {
					ok++
				}
			}
			if failed != 1 || ok != 5 {
				t.Errorf("%d failed and %d succeeded, want 1 and 5", failed, ok)
			}
			s.stop()
			leftover(t, s)
		})
	}
}

func TestClientLeaves(t *testing.T) {
	for _, impl := range []string{"c", "python"} {
		t.Run(impl, func(t *testing.T) {
			s := begin(t, append(implArgs(t, impl), "--seed", "4")...)
			for i := range 3 { // more than there are credits
				ctx, cancel := context.WithCancel(t.Context())
				resp, err := s.post(ctx, "/v1/chat/completions", fmt.Sprintf("gone-%d", i), map[string]any{"stream": true})
				must(t, err)
				resp.Body.Read(make([]byte, 1))
				cancel()
				resp.Body.Close()
			}
			if r := s.chat("stays", nil); !r.done || r.failure != "" {
				t.Fatalf("reply after cancelled ones: %+v", r)
			}
			f := s.stop()
			for i := range 3 {
				id := fmt.Sprintf("gone-%d", i)
				aborts := 0
				for _, h := range f.hops {
					if h.Request == id && h.Type == "abort" {
						aborts++
					}
				}
				if f.requests[id].State != "cancelled" || aborts != len(s.top.Procs)-1 {
					t.Errorf("%s: state %q, %d aborts, want one for each of %d processes", id, f.requests[id].State, aborts, len(s.top.Procs)-1)
				}
			}
			leftover(t, s)
		})
	}
}

// When the parent is killed, its stages see their lifeline end.
func TestStagesDoNotOutliveTheParent(t *testing.T) {
	if os.Getenv("REFPIPE_TEST_PARENT") != "" {
		s := begin(t, "--topology", "small", "--seed", "3")
		for _, pid := range s.pids[1:] {
			fmt.Println(pid)
		}
		fmt.Println(0)
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestStagesDoNotOutliveTheParent$")
	cmd.Env = append(os.Environ(), "REFPIPE_TEST_PARENT=1")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var pids []int
	for {
		var pid int
		if _, err := fmt.Fscanln(out, &pid); err != nil {
			t.Fatalf("read pids: %v", err)
		}
		if pid == 0 {
			break
		}
		pids = append(pids, pid)
	}
	must(t, cmd.Process.Kill())
	cmd.Wait()
	for _, pid := range pids {
		if !gone(pid, 5*time.Second) {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// gone polls until the process is no more, or only waits for its new parent.
func gone(pid int, limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(b, []byte(") Z ")) {
			return true
		}
	}
	return false
}
