package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/run"
)

func init() { liveRoles["puppet"] = bePuppet }

// wordLen is the length of each message that a puppet sends to itself.
const wordLen = 61

// bePuppet does what the lines of its standard input say, and answers each with one line.
func bePuppet() {
	unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 20000, Max: 20000})
	acts := map[string]func(string) (string, error){
		"talk": talk, "tcp": talkTCP, "files": openMany, "threads": threadMany, "fork": forkMany, "spawn": spawnMany, "uring": openRing, "child": childAt,
		"segment": makeSegment, "serve": serveWork, "front": serveFront, "name": func(s string) (string, error) { return "", os.WriteFile("/proc/self/comm", []byte(s), 0o600) },
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		what, arg, _ := strings.Cut(in.Text(), " ")
		answer, err := acts[what](arg)
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Println(answer)
	}
}

// held is what a puppet keeps open.
var held []*os.File

func talk(arg string) (string, error) {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return "", err
	}
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	for range n {
		if _, err := unix.Write(p[0], make([]byte, wordLen)); err != nil {
			return "", err
		}
		if _, err := unix.Read(p[1], make([]byte, wordLen)); err != nil {
			return "", err
		}
	}
	return "talked", nil
}

// talkTCP sends from one port to another of an address: "ADDR FROM TO N".
func talkTCP(arg string) (string, error) {
	var addr string
	var from, to, n int
	if _, err := fmt.Sscan(arg, &addr, &from, &to, &n); err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(to)))
	if err != nil {
		return "", err
	}
	defer l.Close()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr), Port: from}}
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		return "", err
	}
	defer s.Close()
	for range n {
		if _, err := c.Write(make([]byte, wordLen)); err != nil {
			return "", err
		}
		if _, err := io.ReadFull(s, make([]byte, wordLen)); err != nil {
			return "", err
		}
	}
	return "talked", nil
}

func openMany(arg string) (string, error) {
	n, err := strconv.Atoi(arg)
	for range n {
		f, err := os.Open("/dev/null")
		if err != nil {
			return "", err
		}
		held = append(held, f)
	}
	return "opened", err
}

// threadMany starts threads that sleep.
func threadMany(arg string) (string, error) {
	n, err := strconv.Atoi(arg)
	up := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			up <- struct{}{}
			select {}
		}()
	}
	for range n {
		<-up
	}
	return "started", err
}

// forkMany starts processes that end at once, several at a time.
func forkMany(arg string) (string, error) {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return "", err
	}
	ended := make(chan error)
	for range n {
		go func() { ended <- exec.Command("/bin/true").Run() }()
	}
	for range n {
		if e := <-ended; e != nil {
			err = e
		}
	}
	return "forked", err
}

// spawnMany forks processes that live for 100 ms, 100 at once, and are taken note of.
func spawnMany(arg string) (string, error) {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return "", err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pause := unix.NsecToTimespec(100e6)
	for n > 0 {
		pids := make([]int, min(n, 100))
		for i := range pids {
			pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
			if errno != 0 {
				return "", errno
			}
			if pid == 0 { // one thread of a Go program: nothing but calls of the kernel
				unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
				unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
			pids[i] = int(pid)
		}
		for _, pid := range pids {
			if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
				return "", err
			}
		}
		n -= len(pids)
	}
	return "spawned", nil
}

// childAt starts a shell that talks to itself through a pipe and ends, and says its PID. With an
// argument it tries to get that PID.
func childAt(arg string) (string, error) {
	if arg != "" {
		n, err := strconv.Atoi(arg)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(n-1)), 0); err != nil {
			return "", err
		}
	}
	cmd := exec.Command("/bin/sh", "-c", "echo word | { read x; }")
	err := cmd.Run()
	return strconv.Itoa(cmd.ProcessState.Pid()), err
}

func openRing(string) (string, error) {
	var params [120]byte // struct io_uring_params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return "", errno
	}
	held = append(held, os.NewFile(fd, "ring"))
	return "ring", nil
}

// makeSegment makes, maps and fills a segment by a name quoted as in Go, and leaves it there.
func makeSegment(arg string) (string, error) {
	name, err := strconv.Unquote(arg)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile("/dev/shm/"+name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	held = append(held, f)
	if err := f.Truncate(8192); err != nil {
		return "", err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return "", err
	}
	b[0] = 1
	return "mapped", nil
}

// puppet is such a process.
type puppet struct {
	cmd   *exec.Cmd
	pid   int
	in    io.WriteCloser
	lines *lineReader
}

// startPuppet starts one, by default on the plain host.
func startPuppet(t *testing.T, attr *syscall.SysProcAttr, args ...string) *puppet {
	t.Helper()
	return startPuppetBy(t, exec.Command(os.Args[0], args...), attr)
}

// startPuppetOf starts one from a copy of this program.
func startPuppetOf(t *testing.T, program string) *puppet {
	t.Helper()
	return startPuppetBy(t, exec.Command(program), nil)
}

// startPuppetBy starts one by a command that ends in running this program.
func startPuppetBy(t *testing.T, cmd *exec.Cmd, attr *syscall.SysProcAttr) *puppet {
	t.Helper()
	cmd.Env = append(os.Environ(), liveRole+"=puppet")
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	in, out := startPiped(t, cmd)
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	p := &puppet{cmd, cmd.Process.Pid, in, followLines(out)}
	if s := p.lines.next(t); s != "ready" {
		t.Fatalf("the puppet says %q", s)
	}
	return p
}

// end has the puppet exit.
func (p *puppet) end(t *testing.T) {
	t.Helper()
	p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// do has the puppet act and returns its answer.
func (p *puppet) do(t *testing.T, format string, args ...any) string {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		t.Fatal(err)
	}
	s := p.lines.next(t)
	if strings.HasPrefix(s, "error: ") {
		t.Fatalf("%s: %s", line, s)
	}
	return s
}

// launchRecord starts a recorder and does not wait for it.
func launchRecord(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(built(t, "stageline"), append([]string{"record"}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd
}

// sendSignal stops or resumes a process; it returns once that has been done.
func sendSignal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
	for sig == syscall.SIGSTOP {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(b[strings.LastIndexByte(string(b), ')'):]), ") T") {
			return
		}
		runtime.Gosched()
	}
}

// records are those of a run that these tests ask for.
type records struct {
	io    []run.IO
	procs []run.Proc
	shm   []run.Shm
	loss  []run.Loss
	notes []run.Note
	eps   map[uint32]run.Endpoint

	messages []run.Message
	gaps     []run.Gap
}

func recordsOf(t *testing.T, dir string) *records {
	t.Helper()
	o := stageline(t, "dump", dir)
	o.want(t, exitOK)
	r := &records{eps: map[uint32]run.Endpoint{}}
	for line := range strings.Lines(o.stdout) {
		var head struct {
			Kind   string          `json:"kind"`
			Record json.RawMessage `json:"record"`
		}
		err := json.Unmarshal([]byte(line), &head)
		if err == nil {
			err = r.add(head.Kind, head.Record)
		}
		if err != nil {
			t.Fatalf("dump line %.200s: %v", line, err)
		}
	}
	return r
}

func (r *records) add(kind string, b []byte) error {
	switch kind {
	case "io":
		return appendJSON(&r.io, b)
	case "proc":
		return appendJSON(&r.procs, b)
	case "shm":
		return appendJSON(&r.shm, b)
	case "loss":
		return appendJSON(&r.loss, b)
	case "note":
		return appendJSON(&r.notes, b)
	case "message":
		return appendJSON(&r.messages, b)
	case "gap":
		return appendJSON(&r.gaps, b)
	case "endpoint":
		var e run.Endpoint
		err := json.Unmarshal(b, &e)
		r.eps[e.ID] = e
		return err
	}
	return nil
}

// words counts the calls of a process that moved one message of a puppet.
func (r *records) words(pid int) (sent, received int) {
	for _, x := range r.io {
		if x.TGID != uint32(pid) || x.Ret != wordLen {
			continue
		}
		if x.Dir == run.Send {
			sent++
		} else {
			received++
		}
	}
	return sent, received
}

func (r *records) noted(code string) bool {
	for _, n := range r.notes {
		if n.Code == code {
			return true
		}
	}
	return false
}
