package attach

import (
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/bpf"
	"github.com/stageline/stageline/collector/run"
)

const (
	targetNamed    = uint32(bpf.StagelineSlTargetSL_TARGET_NAMED)
	targetFollowed = uint32(bpf.StagelineSlTargetSL_TARGET_FOLLOWED)
)

// Noted is a note on a process.
type Noted struct {
	PID uint32
	run.Note
}

// Watch makes processes targets and then describes them, in this order: what happens between the
// two is seen by the probes. A process that vanishes in between is reported, not an error.
func (p *Programs) Watch(pids []uint32, follow bool) (procs []*run.Proc, notes []Noted, err error) {
	for _, pid := range pids {
		if err := Exists(pid); err != nil {
			return nil, nil, err
		}
	}
	flags := map[uint32]uint32{}
	var order []uint32
	add := func(pid, flag uint32) error {
		if _, known := flags[pid]; known {
			return nil
		}
		flags[pid] = flag
		order = append(order, pid)
		return p.watch(pid, flag)
	}
	for _, pid := range pids {
		if err := add(pid, targetNamed); err != nil {
			return nil, nil, err
		}
	}
	// A child forked before its parent became a target is found by looking again, until a look finds
	// nothing new. A recorder that was started by a target is none: its records would make records.
	own := uint32(os.Getpid())
	for known := 0; follow && known < len(order); {
		known = len(order)
		for _, pid := range pids {
			for _, c := range Children(pid) {
				if c == own {
					continue
				}
				if err := add(c, targetFollowed); err != nil {
					return nil, nil, err
				}
			}
		}
	}
	return p.describe(order, flags)
}

// describe reads what /proc says of new targets.
func (p *Programs) describe(pids []uint32, flags map[uint32]uint32) (procs []*run.Proc, notes []Noted, err error) {
	var all Describer
	for _, pid := range pids {
		d, held, err := all.Inspect(pid)
		if err != nil {
			if err := p.unwatch(pid); err != nil {
				return nil, nil, err
			}
			notes = append(notes, Noted{pid, run.Note{AtNS: run.Mono(), Level: "warn", Code: "process-gone", Text: fmt.Sprintf("process %d ended while probes were attached", pid)}})
			continue
		}
		held.Stale = stale(pid)
		for _, n := range held.Notes(d) {
			notes = append(notes, Noted{pid, n})
		}
		d.Target = flags[pid] == targetNamed
		procs = append(procs, d)
		full, err := p.preloadMaps(pid)
		if err != nil {
			return nil, nil, err
		}
		if full > 0 {
			notes = append(notes, Noted{pid, run.Note{AtNS: run.Mono(), Level: "warn", Code: "mappings", Text: fmt.Sprintf("the kernel's table of shared mappings is full: when process %d ends %d of its own, that will not be recorded", pid, full)}})
		}
	}
	return procs, notes, nil
}

// CodeIOUring is the note on a process whose calls do not show all that it sends and receives.
const CodeIOUring = "io-uring"

// Notes says what the descriptors of a process mean for its recording.
func (h Held) Notes(p *run.Proc) []run.Note {
	var out []run.Note
	if h.IOUring {
		out = append(out, run.Note{AtNS: run.Mono(), Level: "warn", Code: CodeIOUring, Text: fmt.Sprintf("process %d (%s) has an io_uring: what it sends and receives through that makes no system call and is missing in this run; engines have a switch for it (for example UV_USE_IO_URING=0)", p.TGID, p.Comm)})
	}
	if h.Replaced {
		out = append(out, run.Note{AtNS: run.Mono(), Level: "info", Code: "program-replaced", Text: fmt.Sprintf("the file of the program of process %d, %s, was removed or replaced since it started: versions read from disk are not its own", p.TGID, p.Exe)})
	}
	if n := len(h.Stale); n > 0 {
		out = append(out, run.Note{AtNS: run.Mono(), Level: "info", Code: "library-replaced", Text: fmt.Sprintf("the files of %d libraries that process %d (%s) runs, such as %s, were removed or replaced since it loaded them: versions read from disk are not its own", n, p.TGID, p.Comm, h.Stale[0])})
	}
	if h.Unreadable {
		out = append(out, run.Note{AtNS: run.Mono(), Level: "warn", Code: "details-unreadable", Text: fmt.Sprintf("the descriptors and mappings of process %d (%s) may not be read: the sockets it has bound and its segments are unknown, and its stage may go without a name; run with sudo, or grant CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH", p.TGID, p.Comm)})
	}
	return out
}

// watch makes a process a target: in the table that says which they are, and in the one that the
// programs ask.
func (p *Programs) watch(pid, flag uint32) error {
	err := p.Objs.SlTargets.Update(pid, flag, ebpf.UpdateAny)
	if err == nil {
		err = p.mark(pid, 1)
	}
	if err != nil {
		return fmt.Errorf("make process %d a target: %w", pid, err)
	}
	return nil
}

// mark writes one byte of the programs' table, which they write too.
func (p *Programs) mark(pid uint32, as byte) error {
	pids, err := p.Objs.SlTargetPids.Memory()
	if err != nil {
		return err
	}
	_, err = pids.WriteAt([]byte{as}, int64(pid))
	return err
}

// record switches all programs on or off, whatever the targets are.
func (p *Programs) record(on bool) error {
	as := uint32(0)
	if on {
		as = 1
	}
	if err := p.Objs.SlOn.Set(as); err != nil {
		return fmt.Errorf("switch the kernel programs: %w", err)
	}
	return nil
}

// unwatch takes a process off the targets that may have exited before it was one: no exit would
// remove it, and its PID will name another process one day.
func (p *Programs) unwatch(pid uint32) error {
	err := p.Objs.SlTargets.Delete(pid)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	if err := errors.Join(err, p.mark(pid, 0)); err != nil {
		return fmt.Errorf("take process %d off the targets: %w", pid, err)
	}
	return nil
}

// preloadMaps tells the kernel programs of the mappings that a process has, and how many did not fit.
func (p *Programs) preloadMaps(pid uint32) (full int, err error) {
	for _, m := range Mappings(pid) {
		k := bpf.StagelineSlMapKey{Addr: m.Addr, Tgid: pid}
		v := bpf.StagelineSlMapVal{Ino: m.Inode, Dev: m.Dev}
		err := p.Objs.SlMaps.Update(&k, &v, ebpf.UpdateAny)
		if errors.Is(err, unix.E2BIG) {
			full++
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("note the shared mappings of process %d: %w", pid, err)
		}
	}
	return full, nil
}

// ForgetMappings drops what is known of mappings that processes no longer have, after an exec or an
// exit, which unmap without a call, and of all that are gone. Its cost grows with the mappings of all
// targets. It says whether it saw the whole table: changes of it may cut a look short.
func (p *Programs) ForgetMappings(pids map[uint32]bool, gone func(pid uint32) bool) (whole bool, err error) {
	pids = maps.Clone(pids)
	var k bpf.StagelineSlMapKey
	var v bpf.StagelineSlMapVal
	was := map[uint32][]bpf.StagelineSlMapKey{}
	it := p.Objs.SlMaps.Iterate()
	for it.Next(&k, &v) {
		over, known := pids[k.Tgid]
		if !known {
			over = gone(k.Tgid)
			pids[k.Tgid] = over
		}
		if over {
			was[k.Tgid] = append(was[k.Tgid], k)
		}
	}
	for pid, keys := range was {
		now := map[uint64]bool{}
		for _, m := range Mappings(pid) { // read after the table: what is only in that is gone
			now[m.Addr] = true
		}
		for _, k := range keys {
			if now[k.Addr] {
				continue
			}
			if err := p.Objs.SlMaps.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return false, fmt.Errorf("forget a mapping of process %d: %w", pid, err)
			}
		}
	}
	return it.Err() == nil, nil
}

// Alive tells whether the kernel still knows a target.
func (p *Programs) Alive() bool {
	var k, v uint32
	return p.Objs.SlTargets.Iterate().Next(&k, &v)
}

// ForgetTargets takes those off the targets that are gone and still there: the kernel may have skipped
// the program on their exit, which Misses counts, and their PID will be another's one day.
func (p *Programs) ForgetTargets(gone func(pid uint32) bool) error {
	var pid, flags uint32
	var left []uint32
	it := p.Objs.SlTargets.Iterate() // one that is cut short by changes has seen a part
	for it.Next(&pid, &flags) {
		if gone(pid) {
			left = append(left, pid)
		}
	}
	for _, pid := range left {
		if err := p.unwatch(pid); err != nil {
			return err
		}
	}
	return nil
}

// IsTarget tells whether the programs take a process for a target, without a system call. They forget
// it when its last thread ends.
func (p *Programs) IsTarget(pid uint32) bool {
	var b [1]byte
	pids, err := p.Objs.SlTargetPids.Memory()
	if err == nil {
		_, err = pids.ReadAt(b[:], int64(pid))
	}
	return err == nil && b[0] != 0
}
