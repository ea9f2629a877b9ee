package drain_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
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
	if r.progs.Alive() {
		t.Error("targets are left after all have exited")
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

// programs lists the system-call programs that a process holds: those of other recorders come and go.
func programs(t *testing.T, pid int) map[ebpf.ProgramID]bool {
	t.Helper()
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	out := map[ebpf.ProgramID]bool{}
	for _, f := range infos {
		b, _ := os.ReadFile(f) // may be closed since
		for line := range strings.Lines(string(b)) {
			v, ok := strings.CutPrefix(line, "prog_id:")
			id, err := strconv.ParseUint(strings.TrimSpace(v), 10, 32)
			if ok && err == nil && strings.HasPrefix(nameOf(ebpf.ProgramID(id)), "sl_sys_") {
				out[ebpf.ProgramID(id)] = true
			}
		}
	}
	return out
}

// nameOf is the name of a loaded program, "" when there is none of that id.
func nameOf(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

// kill -9 of a recorder leaves no program behind.
func TestKilledRecorderLeavesNothing(t *testing.T) {
	needRoot(t)
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
	mine := programs(t, cmd.Process.Pid)
	if len(mine) != 2 {
		t.Errorf("the recorder holds %d programs of system calls, want 2: the test does not see them", len(mine))
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	// The kernel frees them after a grace period.
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		left := 0
		for id := range mine {
			if strings.HasPrefix(nameOf(id), "sl_sys_") {
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
