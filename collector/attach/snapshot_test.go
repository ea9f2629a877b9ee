package attach

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/run"
)

func TestParseStat(t *testing.T) {
	line := "4242 (a (b) c) S 17 4242 4242 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 9 9 9"
	var p run.Proc
	if err := parseStat([]byte(line), &p); err != nil {
		t.Fatal(err)
	}
	if p.Comm != "a (b) c" || p.PPID != 17 || p.StartNS != 1234560000000 {
		t.Errorf("got comm %q ppid %d start %d", p.Comm, p.PPID, p.StartNS)
	}
	for _, bad := range []string{"", "1 (x", "1 (x) S 1", "1 (x) S y 1 1 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 1"} {
		if err := parseStat([]byte(bad), &p); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestHexAddr(t *testing.T) {
	for in, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"00000000000000000000000001000000:0050": "[::1]:80",
		"0000000000000000FFFF00000100007F:0050": "127.0.0.1:80",
		"0100007F":                              "", "zz:1": "", "01:1": "",
	} {
		if got := hexAddr(in); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

func TestDescribeSelf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stage_x.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tl.Close()
	p, err := Describe(uint32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(p.Bound, path) || !slices.Contains(p.Bound, "tcp:"+tl.Addr().String()) {
		t.Errorf("bound %q lacks %s or %s", p.Bound, path, tl.Addr())
	}
	if int(p.PPID) != os.Getppid() || len(p.Cmdline) == 0 || p.Exe == "" || p.StartNS == 0 {
		t.Errorf("incomplete: %+v", p)
	}
}

func TestDescribeMissing(t *testing.T) {
	_, err := Describe(1 << 30)
	var none *NoProcess
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "1073741824") {
		t.Errorf("got %v", err)
	}
}

func TestLockOnce(t *testing.T) {
	const pid = 1<<30 + 1
	a, err := Lock([]uint32{pid})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock([]uint32{pid + 1, pid})
	var busy *Busy
	if !errors.As(err, &busy) || busy.PID != pid || busy.Holder != os.Getpid() {
		t.Errorf("second lock: %v", err)
	}
	if b, err := Lock([]uint32{pid + 1}); err != nil {
		t.Errorf("a refused lock kept another: %v", err)
	} else {
		b.Close()
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := Lock([]uint32{pid})
	if err != nil {
		t.Fatalf("after the first let go: %v", err)
	}
	b.Close()
}

// A process that has exited keeps its entry until its parent asks, and would never exit again.
func TestDescribeRefusesZombie(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if p, err := Describe(uint32(cmd.Process.Pid)); !errors.Is(err, errExited) {
		t.Errorf("got %+v, %v", p, err)
	}
	for stat, want := range map[string]bool{
		"1 (a) Z 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1": true,
		"1 (Z) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1": false,
		"1 (a) Z 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 5 0 1": false, // its other threads go on
	} {
		if got := exited([]byte(stat)); got != want {
			t.Errorf("%s: exited %v, want %v", stat, got, want)
		}
	}
}

// A thread of the kernel is told by its flags, whatever its name says.
func TestKernelThread(t *testing.T) {
	for line, want := range map[string]bool{
		"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0":       true,
		"9 (a) S 1) S 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 -20 0 1 0 5 0 0":       true,
		"700 ([kworker/0:1]) S 1 700 700 0 -1 4194560 90 0 0 0 0 0 0 0 20 0 1 0": false,
		"700 (short) S": false,
	} {
		if got := kernelThread([]byte(line)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
	if comm, err := os.ReadFile("/proc/2/comm"); err != nil || string(comm) != "kthreadd\n" {
		t.Skip("PID 2 is not the kernel's here: in a PID namespace")
	}
	if err := Exists(2); !errors.Is(err, errKernelThread) {
		t.Errorf("PID 2: %v", err)
	}
}
