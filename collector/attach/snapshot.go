package attach

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/run"
)

// clockTicks is USER_HZ, fixed at 100 in the kernel's user interface on x86-64.
const clockTicks = 100

// NoProcess says that a PID names no process.
type NoProcess struct {
	PID   uint32
	Inner []uint32 // processes that have this PID in a namespace of their own
	Err   error
}

func (e *NoProcess) Error() string {
	s := fmt.Sprintf("no process has PID %d", e.PID)
	if n := len(e.Inner); n > 0 && n <= 5 {
		return s + fmt.Sprintf(" here; inside a container that is the PID of %s: name the PID that the host sees", strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Inner), " ", ", "), "[]"))
	}
	return s + ": look it up with `stageline ps` or pgrep, and name the engine's processes as this PID namespace sees them"
}

func (e *NoProcess) Unwrap() error { return e.Err }

// errExited is the reason for a process of which only the entry is left until its parent asks.
var errExited = errors.New("it has exited, and its parent has not yet taken note")

// errKernelThread is the reason for a thread that has no program and makes no system call.
var errKernelThread = errors.New("it is a thread of the kernel, which makes no system calls")

// Held is what the descriptors of a process say beside its sockets.
type Held struct {
	IOUring    bool     // it can send and receive without a system call
	Replaced   bool     // the file of its program is gone, or is another one now
	Stale      []string // libraries that it runs of which the same is true
	Unreadable bool     // they may not be looked at: bound sockets and this are unknown
}

// Describe reads what /proc says of a process: identity, command, and the sockets it has bound.
func Describe(pid uint32) (*run.Proc, error) { return new(Describer).Describe(pid) }

// Describer describes processes one after another and reads the sockets of each network namespace
// once: the kernel lists them in milliseconds, by the thousand, for every process anew.
type Describer struct {
	sockets map[string]*listening
}

// Describe as the function of that name.
func (d *Describer) Describe(pid uint32) (*run.Proc, error) {
	p, _, err := d.Inspect(pid)
	return p, err
}

// Inspect is Describe with what else the descriptors say.
func (d *Describer) Inspect(pid uint32) (*run.Proc, Held, error) {
	dir := procDir(pid)
	p, err := identify(dir, pid)
	if err != nil {
		return nil, Held{}, err
	}
	exe, _ := os.Readlink(dir + "/exe")
	gone := false
	p.Exe, gone = strings.CutSuffix(exe, " (deleted)")
	if b, err := os.ReadFile(dir + "/cmdline"); err == nil && len(b) > 0 {
		p.Cmdline = run.Redact(strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"))
	}
	sockets, held := descriptors(dir)
	held.Replaced = gone
	p.Bound = d.bound(dir, sockets)
	return p, held, nil
}

func procDir(pid uint32) string { return "/proc/" + strconv.FormatUint(uint64(pid), 10) }

// identify reads who a process is and refuses what cannot be recorded. It is cheap: nothing of the
// process's tables is read.
func identify(dir string, pid uint32) (*run.Proc, error) {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &NoProcess{PID: pid, Err: err}
		}
		return nil, fmt.Errorf("read process %d: %w", pid, err)
	}
	p := &run.Proc{AtNS: run.Mono(), Event: run.ProcSeen, TGID: pid, TID: pid}
	if err := parseStat(stat, p); err != nil {
		return nil, fmt.Errorf("read process %d: %w", pid, err)
	}
	if exited(stat) {
		return nil, fmt.Errorf("process %d cannot be recorded: %w", pid, errExited)
	}
	if kernelThread(stat) {
		return nil, fmt.Errorf("process %d (%s) cannot be recorded: %w; name the processes of an engine", pid, p.Comm, errKernelThread)
	}
	if tgid, ns := statusIDs(dir); tgid != 0 {
		if tgid != pid {
			return nil, fmt.Errorf("%d is a thread of process %d: name the process", pid, tgid)
		}
		p.NSPID = ns
	}
	return p, nil
}

// Exists says why a PID cannot be recorded, nil when it can.
func Exists(pid uint32) error {
	_, err := identify(procDir(pid), pid)
	var none *NoProcess
	if errors.As(err, &none) {
		none.Inner = innerPIDs(pid) // all processes are asked: only where a user is to read it
	}
	return err
}

// parseStat reads comm, ppid and start time. The name may hold spaces and parentheses.
func parseStat(b []byte, p *run.Proc) error {
	l, r := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if l < 0 || r < l {
		return errors.New("stat line without a name")
	}
	p.Comm = string(b[l+1 : r])
	f := strings.Fields(string(b[r+1:]))
	if len(f) < 20 {
		return errors.New("stat line is short")
	}
	ppid, err := strconv.ParseUint(f[1], 10, 32)
	if err != nil {
		return fmt.Errorf("parent in stat line: %w", err)
	}
	start, err := strconv.ParseInt(f[19], 10, 64)
	if err != nil {
		return fmt.Errorf("start time in stat line: %w", err)
	}
	p.PPID = uint32(ppid)
	p.StartNS = start * (1e9 / clockTicks)
	return nil
}

// exited tells a zombie from a process whose main thread alone has ended.
func exited(stat []byte) bool {
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(f) > 17 && (f[0] == "Z" || f[0] == "X") && (f[17] == "0" || f[17] == "1")
}

// kernelThread tells by the flags of the task, of which this one is fixed in the user interface of
// /proc/PID/stat (PF_KTHREAD).
func kernelThread(stat []byte) bool {
	const isKernelThread = 0x00200000
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(f[6], 10, 32)
	return err == nil && flags&isKernelThread != 0
}

func statusIDs(dir string) (tgid, nspid uint32) {
	b, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		key, rest, _ := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if len(f) == 0 {
			continue
		}
		switch key {
		case "Tgid":
			v, _ := strconv.ParseUint(f[0], 10, 32)
			tgid = uint32(v)
		case "NSpid":
			v, _ := strconv.ParseUint(f[len(f)-1], 10, 32)
			nspid = uint32(v)
		}
	}
	return tgid, nspid
}

// descriptors lists the socket inodes a process holds, and what else its descriptors say.
func descriptors(dir string) (sockets map[string]bool, held Held) {
	sockets = map[string]bool{}
	f, err := os.Open(dir + "/fd")
	if err != nil {
		return sockets, Held{Unreadable: errors.Is(err, fs.ErrPermission)}
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1) // in no order: sorting ten thousand is for nothing
	var buf [64]byte
	for _, name := range names {
		n, err := unix.Readlinkat(int(f.Fd()), name, buf[:])
		switch link := string(buf[:max(n, 0)]); {
		case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
			held.Unreadable = true
		case strings.HasPrefix(link, "socket:["):
			sockets[strings.TrimSuffix(link[len("socket:["):], "]")] = true
		case link == "anon_inode:[io_uring]":
			held.IOUring = true
		}
	}
	return sockets, held
}

// listening are the sockets of a network namespace that accept connections: names by inode.
type listening struct {
	unix, tcp []socketName
}

type socketName struct{ inode, name string }

// listen reads the sockets of the namespace of the process at dir.
func listen(dir string) *listening {
	l := &listening{}
	eachLine(dir+"/net/unix", func(f []string) {
		// Num RefCount Protocol Flags Type St Inode Path; flag 0x10000 = accepting connections.
		if len(f) >= 8 && f[3] == "00010000" {
			l.unix = append(l.unix, socketName{f[6], f[7]})
		}
	})
	for _, name := range []string{"/net/tcp", "/net/tcp6"} {
		eachLine(dir+name, func(f []string) {
			if len(f) > 9 && f[3] == "0A" {
				if a := hexAddr(f[1]); a != "" {
					l.tcp = append(l.tcp, socketName{f[9], "tcp:" + a})
				}
			}
		})
	}
	return l
}

// bound lists what the process has bound: unix paths of listening sockets, and listening TCP
// addresses as "tcp:ip:port".
func (d *Describer) bound(dir string, mine map[string]bool) []string {
	if len(mine) == 0 {
		return nil
	}
	ns, err := os.Readlink(dir + "/ns/net")
	l := d.sockets[ns]
	if l == nil {
		l = listen(dir)
		if err == nil {
			if d.sockets == nil {
				d.sockets = map[string]*listening{}
			}
			d.sockets[ns] = l
		}
	}
	var out []string
	for _, s := range append(l.unix[:len(l.unix):len(l.unix)], l.tcp...) {
		if mine[s.inode] {
			out = append(out, s.name)
		}
	}
	return out
}

func eachLine(path string, fn func([]string)) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20) // a line of maps may hold a path and more than the default
	for sc.Scan() {
		fn(strings.Fields(sc.Text()))
	}
}

// Mapping is one shared mapping of a tmpfs file.
type Mapping struct {
	Addr, Size uint64
	Offset     uint64 // in the file
	Dev        uint32
	Inode      uint64
	Name       string // of the file, as a record of a call on it would have it
}

// Seen is the record of a mapping that was there before a call on it could be seen.
func (m Mapping) Seen(pid uint32, nowNS int64) run.Shm {
	return run.Shm{ExitNS: nowNS, TGID: pid, TID: pid, Op: run.ShmSeen, Dev: m.Dev, Inode: m.Inode, Name: m.Name, Addr: m.Addr, Size: int64(m.Size)}
}

// Mappings finds the shared mappings of tmpfs files that a process has now.
func Mappings(pid uint32) []Mapping {
	var out []Mapping
	eachLine(procDir(pid)+"/maps", func(f []string) {
		// addr-addr perms offset dev inode path
		if len(f) < 6 || len(f[1]) < 4 || f[1][3] != 's' || !isShm(f[5]) {
			return
		}
		lo, hi, _ := strings.Cut(f[0], "-")
		addr, err1 := strconv.ParseUint(lo, 16, 64)
		end, err5 := strconv.ParseUint(hi, 16, 64)
		off, err6 := strconv.ParseUint(f[2], 16, 64)
		ino, err2 := strconv.ParseUint(f[4], 10, 64)
		ma, mi, _ := strings.Cut(f[3], ":")
		major, err3 := strconv.ParseUint(ma, 16, 12)
		minor, err4 := strconv.ParseUint(mi, 16, 20)
		if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
			return
		}
		out = append(out, Mapping{Addr: addr, Size: end - addr, Offset: off, Inode: ino, Dev: uint32(major)<<20 | uint32(minor), Name: f[5][strings.LastIndexAny(f[5], "/:")+1:]})
	})
	return out
}

// stale lists the libraries that a process runs from files that were removed or replaced.
func stale(pid uint32) []string {
	var out []string
	eachLine(procDir(pid)+"/maps", func(f []string) {
		// addr-addr perms offset dev inode path (deleted); code that was never a library is no .so.
		if len(f) == 7 && strings.Contains(f[1], "x") && f[6] == "(deleted)" && strings.Contains(path.Base(f[5]), ".so") && !slices.Contains(out, f[5]) {
			out = append(out, f[5])
		}
	})
	return out
}

// isShm recognises a segment by its path, which begins with more than /dev/shm when the process
// lives in another root.
func isShm(path string) bool {
	return strings.Contains(path, "/dev/shm/") || strings.HasPrefix(path, "/memfd:")
}

// Processes lists the PIDs of all processes that run now.
func Processes() ([]uint32, error) {
	ents, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []uint32
	for _, e := range ents {
		if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil {
			out = append(out, uint32(n))
		}
	}
	return out, nil
}

// innerPIDs lists the processes that have a PID in a namespace of their own.
func innerPIDs(pid uint32) []uint32 {
	var out []uint32
	all, _ := Processes() // without a list there are none to name
	for _, n := range all {
		if tgid, ns := statusIDs(procDir(n)); tgid == n && ns == pid && tgid != pid {
			out = append(out, tgid)
		}
	}
	return out
}

// Children lists the descendants of a process that run now.
func Children(pid uint32) []uint32 {
	byParent := map[uint32][]uint32{}
	all, _ := Processes() // without a list there are none
	for _, n := range all {
		var p run.Proc
		if b, err := os.ReadFile(procDir(n) + "/stat"); err == nil && parseStat(b, &p) == nil {
			byParent[p.PPID] = append(byParent[p.PPID], n)
		}
	}
	var out []uint32
	for todo := []uint32{pid}; len(todo) > 0; todo = todo[1:] {
		out = append(out, byParent[todo[0]]...)
		todo = append(todo, byParent[todo[0]]...)
	}
	return out
}
