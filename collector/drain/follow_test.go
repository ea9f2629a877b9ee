package drain_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/run"
)

// A shell that was attached to starts children: they are followed through fork and exec, and what
// they write is recorded.
func TestFollowChildren(t *testing.T) {
	needRoot(t)
	cmd := exec.Command("/bin/sh", "-c", "read x; for i in 1 2 3 4 5; do /bin/echo payload-$i | /bin/cat >/dev/null; done; echo done; read x")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	shell := uint32(cmd.Process.Pid)
	r := record(t, attach.Options{}, shell)
	fmt.Fprintln(in)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "done\n" {
		t.Fatalf("child said %q", line)
	}
	in.Close()
	_ = cmd.Wait()
	r.stop()
	events := map[run.ProcEvent]int{}
	for _, p := range r.sink.proc {
		if p.TGID != shell || p.Event == run.ProcExit {
			events[p.Event]++
		}
	}
	var sent, got int64
	for _, x := range r.sink.io {
		if x.TGID == shell || x.Ret <= 0 || r.sink.eps[x.EP].Transport != run.TransportPipe {
			continue
		}
		if x.Dir == run.Send {
			sent += x.Ret
		} else {
			got += x.Ret
		}
	}
	const each = int64(len("payload-1\n"))
	if events[run.ProcFork] < 10 || events[run.ProcExec] < 10 || events[run.ProcExit] < 11 {
		t.Errorf("fork %d exec %d exit %d, want at least 10, 10 and 11", events[run.ProcFork], events[run.ProcExec], events[run.ProcExit])
	}
	if sent != 5*each || got != 5*each {
		t.Errorf("children sent %d and received %d bytes, want %d", sent, got, 5*each)
	}
	if n := r.progs.Alive(); n != 0 {
		t.Errorf("%d targets left after all have exited", n)
	}
}

// A read that was already blocked when the probes came on is recorded, with its start unknown.
func TestCallInFlight(t *testing.T) {
	needRoot(t)
	pid, step, end := startChild(t) // blocked in read(0)
	r := record(t, attach.Options{}, pid)
	step()
	end()
	r.stop()
	for _, x := range r.sink.io {
		if x.FD == 0 && x.Dir == run.Recv && x.Ret == 1 && x.EnterNS == 0 {
			return
		}
	}
	t.Errorf("no read with unknown start: %+v", r.sink.io[:min(5, len(r.sink.io))])
}

// programs lists the ids of the system-call programs that are loaded on this host.
func programs(t *testing.T) map[ebpf.ProgramID]bool {
	t.Helper()
	out := map[ebpf.ProgramID]bool{}
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return out
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // freed since
		}
		if info, err := p.Info(); err == nil && strings.HasPrefix(info.Name, "sl_sys_") {
			out[id] = true
		}
		p.Close()
	}
}

// kill -9 of a recorder leaves no program behind.
func TestKilledRecorderLeavesNothing(t *testing.T) {
	needRoot(t)
	before := programs(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "STAGELINE_DRAIN_CHILD=attach")
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "attached\n" {
		t.Fatalf("child said %q", line)
	}
	mine := programs(t)
	for id := range before {
		delete(mine, id)
	}
	if len(mine) != 2 {
		t.Fatalf("%d new programs while attached, want 2: the test does not see them", len(mine))
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	// The kernel frees them after a grace period.
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		left := 0
		for id := range programs(t) {
			if mine[id] {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d programs outlive a killed recorder", left)
		}
	}
}
