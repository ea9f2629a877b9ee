package attach

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Finding is one row of `stageline doctor`.
type Finding struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Required bool   `json:"required"` // recording cannot work without it
	Detail   string `json:"detail"`
	Fix      string `json:"fix,omitempty"`
}

// Doctor tries everything recording needs or can use on this host, by doing it.
func Doctor() []Finding {
	var out []Finding
	add := func(name string, required bool, err error, detail, fix string) {
		f := Finding{Name: name, OK: err == nil, Required: required, Detail: detail}
		if err != nil {
			f.Detail, f.Fix = oneLine(err), fix
		}
		out = append(out, f)
	}
	var u unix.Utsname
	_ = unix.Uname(&u)
	add("kernel", true, kernelFloor(unix.ByteSliceToString(u.Release[:])), unix.ByteSliceToString(u.Release[:]), "use Linux 5.15 or newer")
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	add("type information (BTF)", true, err, "/sys/kernel/btf/vmlinux", "use a kernel built with CONFIG_DEBUG_INFO_BTF")
	add("permission", true, Check(), "may load tracing programs", "run with sudo, or grant CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE")
	add("lockdown", false, lockdown(), "off, or integrity", "confidentiality mode forbids reading other processes' memory: boot without it")
	add("ring buffer", true, features.HaveMapType(ebpf.RingBuf), "BPF_MAP_TYPE_RINGBUF", "use Linux 5.8 or newer")
	add("task storage", true, features.HaveMapType(ebpf.TaskStorage), "BPF_MAP_TYPE_TASK_STORAGE", "use Linux 5.11 or newer")
	for _, h := range []string{"sys_enter", "sys_exit", "sched_switch", "sched_waking", "sched_process_fork", "sched_process_exec", "sched_process_exit", "task_rename", "inet_sock_set_state"} {
		add("hook "+h, true, tryHook(rawHook(h)), "tp_btf", "use a kernel with this tracepoint")
	}
	add("hook sk_data_ready", false, tryHook(rawHook("sk_data_ready")), "tp_btf; tells when data became readable", "Linux 6.3 or newer has it; without it that time is unknown")
	add("queued bytes of unix sockets", false, haveField("unix_sock", "inq_len"), "unix_sock.inq_len; aligns channels that were open before attach", "Linux 6.17 or newer has it; elsewhere only channels opened after attach are aligned")
	add("uprobes", false, tryUprobe(false), "for CUDA calls and user spans", "needs CONFIG_UPROBES")
	add("uprobe multi", false, tryUprobe(true), "many uprobes at once", "Linux 6.6 or newer has it")
	add("fentry", false, tryHook(&ebpf.ProgramSpec{Name: "sl_probe", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "vfs_read", License: "GPL"}), "not used", "not needed: nothing uses it")
	add("kprobes", false, tryKprobe(), "not used", "not needed: nothing uses it")
	if o := Others(); len(o) > 0 {
		add("other recorders", false, fmt.Errorf("processes %s are being recorded now", strings.Join(o, ", ")), "", "each process can have one recorder at a time")
	}
	return out
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

func oneLine(err error) string {
	s := err.Error()
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return s
}

func kernelFloor(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel release %q cannot be read", release)
	}
	if major < 5 || (major == 5 && minor < 15) {
		return fmt.Errorf("kernel %s is older than 5.15", release)
	}
	return nil
}

func lockdown() error {
	b, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err == nil && bytes.Contains(b, []byte("[confidentiality]")) {
		return errors.New("lockdown is in confidentiality mode")
	}
	return nil
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

func tryUprobe(multi bool) error {
	attach := ebpf.AttachNone
	if multi {
		attach = ebpf.AttachTraceUprobeMulti
	}
	p, err := trivial(attach)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer p.Close()
	exe, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("open own executable: %w", err)
	}
	var l link.Link
	if multi {
		l, err = exe.UprobeMulti([]string{"main.main"}, p, nil)
	} else {
		l, err = exe.Uprobe("main.main", p, nil)
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
