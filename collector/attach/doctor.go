package attach

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	"github.com/stageline/stageline/bpf"
)

// Finding is one row of `stageline doctor`.
type Finding struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Required bool   `json:"required"`          // recording cannot work without it
	Untried  bool   `json:"untried,omitempty"` // cannot be told without permission; not ok
	Detail   string `json:"detail"`
	Fix      string `json:"fix,omitempty"`
}

// findings collects rows.
type findings struct {
	rows []Finding
	deaf bool // no permission: what a program would tell is unknown
}

func (f *findings) add(name string, required bool, err error, detail, fix string) {
	row := Finding{Name: name, OK: err == nil, Required: required, Detail: detail}
	if err != nil {
		row.Detail, row.Fix = oneLine(err), fix
	}
	f.rows = append(f.rows, row)
}

// try adds a row that needs permission to be told.
func (f *findings) try(name string, required bool, do func() error, detail, fix string) {
	if f.deaf {
		f.rows = append(f.rows, Finding{Name: name, Required: required, Untried: true, Detail: "not known without permission"})
		return
	}
	f.add(name, required, do(), detail, fix)
}

// Doctor tries everything recording needs or can use on this host, by doing it.
func Doctor() []Finding {
	priv := readPrivileges()
	var f findings
	f.add("kernel", false, older(priv.release), priv.release, fixKernel+", or rely on the rows below: no older one is tested")
	_, err := os.Stat(typesPath)
	f.add("type information (BTF)", true, err, typesPath, "use a kernel built with CONFIG_DEBUG_INFO_BTF; in a container, mount /sys")
	f.add("lockdown", true, lockedDown(&priv), "off, or integrity", fixLockdown)
	f.add("PID namespace", true, nested(&priv), "the host's", fixPIDNS)
	loads := tryHook(rawHook("sys_enter"))
	var refused error
	if loads != nil {
		u := priv.refusal("load eBPF programs", loads)
		refused = &Unsupported{What: u.What}
		f.add("permission", true, refused, "", u.Fix)
	} else {
		f.add("permission", true, nil, "may load tracing programs", "")
	}
	f.deaf = refused != nil && forbidden(loads)
	f.add("details of processes", false, priv.details(), "of all users", "run with sudo, or grant CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH")
	f.hooks()
	f.add("io_uring", false, ioUring(), "switched off: all I/O makes system calls", "ps, record and report name the processes that use it; engines have a switch for it, or set kernel.io_uring_disabled=2")
	if o := Others(); len(o) > 0 {
		f.add("other recorders", false, fmt.Errorf("processes %s are being recorded now", strings.Join(o, ", ")), "", "each process can have one recorder at a time")
	}
	return f.rows
}

func (f *findings) hooks() {
	f.try("ring buffer", true, func() error { return features.HaveMapType(ebpf.RingBuf) }, "BPF_MAP_TYPE_RINGBUF", "use Linux 5.8 or newer")
	f.try("task storage", true, func() error { return features.HaveMapType(ebpf.TaskStorage) }, "BPF_MAP_TYPE_TASK_STORAGE", "use Linux 5.11 or newer")
	for _, h := range []string{"sys_enter", "sys_exit", "sched_switch", "sched_waking", "sched_process_fork", "sched_process_exec", "sched_process_exit", "task_rename", "inet_sock_set_state"} {
		f.try("hook "+h, true, func() error { return tryHook(rawHook(h)) }, "tp_btf", "use a kernel with this tracepoint")
	}
	f.try("kernel programs", true, tryPrograms, "all of them load", fixKernel)
	f.try("hook sk_data_ready", false, func() error { return tryHook(rawHook("sk_data_ready")) }, "tp_btf; tells when data became readable", "Linux 6.3 or newer has it; without it that time is unknown")
	f.add("queued bytes of unix sockets", false, haveField("unix_sock", "inq_len"), "unix_sock.inq_len; aligns channels that were open before attach", "Linux 6.17 or newer has it; elsewhere the buffers of a queue are added up, 16 at most")
	f.try("uprobes", false, func() error { return tryUprobe(ownProgram, false) }, "for CUDA calls and user spans", "needs CONFIG_UPROBES")
	f.try("uprobe multi", false, func() error { return tryUprobe(ownProgram, true) }, "many uprobes at once", "Linux 6.6 or newer has it")
	f.try("watchpoints", false, TryWatchpoints, "fire; for the exact times of messages in rings of shared memory (--shadow-rings)", "use the processor itself, or a virtual machine that is given its debug registers; without them those times lie between two looks")
	f.try("fentry", false, func() error {
		return tryHook(&ebpf.ProgramSpec{Name: "sl_probe", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "vfs_read", License: "GPL"})
	}, "not used", "not needed: nothing uses it")
	f.try("kprobes", false, tryKprobe, "not used", "not needed: nothing uses it")
}

// lockedDown and nested are the rows of what privileges.place refuses.
func lockedDown(p *privileges) error {
	if p.lockdown == "confidentiality" {
		return errors.New("confidentiality: no program may read other processes' memory")
	}
	return nil
}

func nested(p *privileges) error {
	if p.pidNamespace {
		return errors.New("not the host's: the kernel programs see other PIDs than this process")
	}
	return nil
}

// ioUring is an error where processes can do I/O without a system call of their own.
func ioUring() error {
	b, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled")
	if err == nil && strings.TrimSpace(string(b)) == "2" {
		return nil
	}
	return errors.New("allowed on this host: I/O through it makes no system calls and is not recorded")
}

// CanRecord tells whether every required row is ok.
func CanRecord(fs []Finding) bool {
	for _, f := range fs {
		if f.Required && !f.OK {
			return false
		}
	}
	return true
}

// oneLine also leaves out the library's guess at a limit that has not counted since 5.11.
func oneLine(err error) string {
	s := strings.Replace(err.Error(), " (MEMLOCK may be too low, consider rlimit.RemoveMemlock)", "", 1)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return s
}

// tryPrograms loads all of them, with the least memory, and runs none.
func tryPrograms() error {
	spec, err := bpf.LoadStageline()
	if err != nil {
		return fmt.Errorf("read the kernel programs: %w", err)
	}
	if err := configure(spec, Options{RingBytes: uint32(os.Getpagesize())}); err != nil {
		return err
	}
	var p Programs
	err = p.load(spec, Options{})
	var u *Unsupported
	if errors.As(err, &u) {
		return u.Err // the rest of its words are the row's
	}
	if err != nil {
		return err
	}
	return p.Close()
}

func rawHook(name string) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{Name: "sl_probe", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: name, License: "Dual BSD/GPL"}
}

func haveField(typ, field string) error {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	var s *btf.Struct
	if err := spec.TypeByName(typ, &s); err != nil {
		return fmt.Errorf("no struct %s: %w", typ, err)
	}
	for _, m := range s.Members {
		if m.Name == field {
			return nil
		}
	}
	return fmt.Errorf("struct %s has no field %s", typ, field)
}

func trivial(attach ebpf.AttachType) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, AttachType: attach, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
}

const ownProgram = "/proc/self/exe"

// entryOffset is where in an executable its first instruction is. Unlike a symbol it is there when the
// executable was stripped.
func entryOffset(path string) (uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read executable %s: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && f.Entry >= p.Vaddr && f.Entry-p.Vaddr < p.Filesz {
			return f.Entry - p.Vaddr + p.Off, nil
		}
	}
	return 0, fmt.Errorf("executable %s has no first instruction", path)
}

// tryUprobe puts a program on the first instruction of an executable and takes it off again. A process
// that runs is past it.
func tryUprobe(path string, multi bool) error {
	at, err := entryOffset(path)
	if err != nil {
		return err
	}
	attach := ebpf.AttachNone
	if multi {
		attach = ebpf.AttachTraceUprobeMulti
	}
	p, err := trivial(attach)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer p.Close()
	exe, err := link.OpenExecutable(path)
	if err != nil {
		return fmt.Errorf("open executable %s: %w", path, err)
	}
	var l link.Link
	if multi {
		l, err = exe.UprobeMulti(nil, p, &link.UprobeMultiOptions{Addresses: []uint64{at}})
	} else {
		l, err = exe.Uprobe("", p, &link.UprobeOptions{Address: at})
	}
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return l.Close()
}

func tryKprobe() error {
	p, err := trivial(ebpf.AttachNone)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer p.Close()
	l, err := link.Kprobe("vfs_read", p, nil)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return l.Close()
}
