// Package attach puts the kernel programs on a running host and describes the processes they watch:
// feature and privilege checks, program loading in an order that loses nothing, the snapshot of
// /proc that is taken after the probes are on, and the following of children.
//
// Everything lives as long as this process: nothing is pinned, so a killed recorder leaves nothing.
package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/stageline/stageline/bpf"
)

// Options of the kernel side.
type Options struct {
	RingBytes        uint32 // power of two; 0 = 64 MiB
	CaptureBytes     uint32 // of a call on a stream whose protocol is not known yet; 0 = 8192
	DebugDropPermill uint32 // records of 1000 to drop on purpose
	NoFollow         bool   // children of targets are not targets
	NoNetData        bool   // leave out the arrival of data on TCP sockets
}

// Unsupported says that this host or this user cannot record; the exit code is 3.
type Unsupported struct {
	What string
	Fix  string
	Err  error
}

func (u *Unsupported) Error() string {
	s := u.What
	if u.Err != nil {
		s += ": " + u.Err.Error()
	}
	if u.Fix != "" {
		s += " (" + u.Fix + ")"
	}
	return s
}

func (u *Unsupported) Unwrap() error { return u.Err }

// ExitCode is the process's exit status for this error.
func (u *Unsupported) ExitCode() int { return 3 }

// Programs are the loaded and attached kernel programs.
type Programs struct {
	Objs    bpf.StagelineObjects
	Missing []string // optional programs this kernel cannot run
	links   []link.Link
}

// hook is one program. Order is the order of attaching: a fork is followed before a call of the
// child can be missed, and a call's exit is never hooked before its entry.
type hook struct {
	name     string
	optional bool
	prog     func(*bpf.StagelinePrograms) *ebpf.Program
}

var hooks = []hook{
	{"sl_proc_fork", false, func(p *bpf.StagelinePrograms) *ebpf.Program { return p.SlProcFork }},
	{"sl_proc_exec", false, func(p *bpf.StagelinePrograms) *ebpf.Program { return p.SlProcExec }},
	{"sl_proc_exit", false, func(p *bpf.StagelinePrograms) *ebpf.Program { return p.SlProcExit }},
	{"sl_proc_rename", false, func(p *bpf.StagelinePrograms) *ebpf.Program { return p.SlProcRename }},
	{"sl_sched_waking", false, func(p *bpf.StagelinePrograms) *ebpf.Program { return p.SlSchedWaking }},
	{"sl_sched_switch", false, func(p *bpf.StagelinePrograms) *ebpf.Program { return p.SlSchedSwitch }},
	{"sl_net_state", false, func(p *bpf.StagelinePrograms) *ebpf.Program { return p.SlNetState }},
	{"sl_net_data", true, func(p *bpf.StagelinePrograms) *ebpf.Program { return p.SlNetData }},
	{"sl_sys_enter", false, func(p *bpf.StagelinePrograms) *ebpf.Program { return p.SlSysEnter }},
	{"sl_sys_exit", false, func(p *bpf.StagelinePrograms) *ebpf.Program { return p.SlSysExit }},
}

// Check says whether this process may load and run the programs here, nil when it can.
func Check() error {
	if _, err := os.Stat(typesPath); err != nil {
		return noTypes(err)
	}
	priv := readPrivileges()
	if err := priv.place(); err != nil {
		return err
	}
	// The programs' own kind is tried: a probe with fentry is refused by kernels that allow these.
	if err := tryHook(rawHook("sys_enter")); err != nil {
		return priv.refusal("load eBPF programs", err)
	}
	return nil
}

const typesPath = "/sys/kernel/btf/vmlinux"

func noTypes(err error) error {
	return &Unsupported{What: "this kernel has no type information (BTF)", Fix: "use a kernel built with CONFIG_DEBUG_INFO_BTF; in a container, mount /sys", Err: err}
}

// Load loads and attaches the programs. No process is a target yet.
func Load(o Options) (*Programs, error) {
	if err := Check(); err != nil {
		return nil, err
	}
	spec, err := bpf.LoadStageline()
	if err != nil {
		return nil, fmt.Errorf("read the kernel programs: %w", err)
	}
	if err := configure(spec, o); err != nil {
		return nil, err
	}
	p := &Programs{}
	if err := p.load(spec, o); err != nil {
		return nil, err
	}
	err = p.record(true)
	if err == nil {
		err = p.attach()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func configure(spec *ebpf.CollectionSpec, o Options) error {
	if o.RingBytes != 0 {
		if o.RingBytes&(o.RingBytes-1) != 0 || o.RingBytes < 4096 {
			return fmt.Errorf("ring size %d is not a power of two of at least 4096", o.RingBytes)
		}
		spec.Maps["sl_events"].MaxEntries = o.RingBytes
	}
	set := func(name string, v any) error {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("set %s in the kernel programs: %w", name, err)
		}
		return nil
	}
	if err := set("sl_wake_bytes", uint64(spec.Maps["sl_events"].MaxEntries/4)); err != nil {
		return err
	}
	if o.CaptureBytes != 0 {
		if err := set("sl_capture_default", o.CaptureBytes); err != nil {
			return err
		}
	}
	if err := set("sl_debug_drop", o.DebugDropPermill); err != nil {
		return err
	}
	return set("sl_follow", !o.NoFollow)
}

// load drops optional programs one by one until the rest is accepted.
func (p *Programs) load(spec *ebpf.CollectionSpec, o Options) error {
	for _, h := range hooks {
		if h.optional && (o.NoNetData || !haveHook(spec.Programs[h.name])) {
			p.Missing = append(p.Missing, h.name)
			// Loading by name needs the program to exist: an empty one takes its place.
			spec.Programs[h.name] = &ebpf.ProgramSpec{Name: h.name, Type: ebpf.SocketFilter, License: "Dual BSD/GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}}
		}
	}
	if err := spec.LoadAndAssign(&p.Objs, nil); err != nil {
		priv := readPrivileges()
		return priv.refusal("load the kernel programs", err)
	}
	return nil
}

// haveHook tells whether the traced event exists in this kernel.
func haveHook(s *ebpf.ProgramSpec) bool { return tryHook(s) == nil }

// tryHook loads a program that does nothing at the place of s.
func tryHook(s *ebpf.ProgramSpec) error {
	probe := s.Copy()
	probe.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	prog, err := ebpf.NewProgram(probe)
	if err != nil {
		return err
	}
	return prog.Close()
}

func (p *Programs) attach() error {
	for _, h := range hooks {
		if p.isMissing(h.name) {
			continue
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: h.prog(&p.Objs.StagelinePrograms)})
		if err != nil {
			return &Unsupported{What: "attach " + h.name, Fix: "run stageline doctor", Err: err}
		}
		p.links = append(p.links, l)
	}
	return nil
}

func (p *Programs) isMissing(name string) bool {
	for _, m := range p.Missing {
		if m == name {
			return true
		}
	}
	return false
}

// Detach ends the recording for all programs and processes at one instant, and then takes the programs
// off, last attached first. That takes a while, in which the records of some alone would say that
// nothing happened of what the others record. Maps stay readable.
func (p *Programs) Detach() error {
	var errs []error
	if len(p.links) > 0 {
		errs = append(errs, p.record(false))
	}
	for i := len(p.links) - 1; i >= 0; i-- {
		errs = append(errs, p.links[i].Close())
	}
	p.links = nil
	return errors.Join(errs...)
}

// Close detaches and frees everything.
func (p *Programs) Close() error {
	return errors.Join(p.Detach(), p.Objs.Close())
}

// Misses returns, by program, how often the kernel skipped it because it was already running on
// that CPU.
func (p *Programs) Misses() map[string]uint64 {
	out := map[string]uint64{}
	for _, h := range hooks {
		if p.isMissing(h.name) {
			continue
		}
		st, err := h.prog(&p.Objs.StagelinePrograms).Stats()
		if err != nil {
			continue
		}
		if st.RecursionMisses > 0 {
			out[h.name] = st.RecursionMisses
		}
	}
	return out
}
