package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/bpf"
	"github.com/stageline/stageline/collector/run"
)

const (
	targetNamed    = uint32(bpf.StagelineSlTargetSL_TARGET_NAMED)
	targetFollowed = uint32(bpf.StagelineSlTargetSL_TARGET_FOLLOWED)
)

// Watch makes processes targets and then describes them, in this order: what happens between the
// two is seen by the probes. A process that vanishes in between is reported, not an error.
func (p *Programs) Watch(pids []uint32, follow bool) (procs []*run.Proc, notes []run.Note, err error) {
	for _, pid := range pids {
		if _, err := Identify(pid); err != nil {
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
	// nothing new.
	for known := 0; follow && known < len(order); {
		known = len(order)
		for _, pid := range pids {
			for _, c := range Children(pid) {
				if err := add(c, targetFollowed); err != nil {
					return nil, nil, err
				}
			}
		}
	}
	var all Describer
	for _, pid := range order {
		d, err := all.Describe(pid)
		if err != nil {
			if err := p.unwatch(pid); err != nil {
				return nil, nil, err
			}
			notes = append(notes, run.Note{AtNS: run.Mono(), Level: "warn", Code: "process-gone", Text: fmt.Sprintf("process %d ended while probes were attached", pid)})
			continue
		}
		d.Target = flags[pid] == targetNamed
		procs = append(procs, d)
		if err := p.preloadMaps(pid); err != nil {
			return nil, nil, err
		}
	}
	return procs, notes, nil
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

func (p *Programs) preloadMaps(pid uint32) error {
	for _, m := range Mappings(pid) {
		k := bpf.StagelineSlMapKey{Addr: m.Addr, Tgid: pid}
		v := bpf.StagelineSlMapVal{Ino: m.Inode, Dev: m.Dev}
		err := p.Objs.SlMaps.Update(&k, &v, ebpf.UpdateAny)
		if errors.Is(err, unix.E2BIG) {
			return nil // the map is full: munmaps of old mappings will not be recognised
		}
		if err != nil {
			return fmt.Errorf("note the shared mappings of process %d: %w", pid, err)
		}
	}
	return nil
}

// Alive counts the targets that the kernel still knows.
func (p *Programs) Alive() int {
	var k, v uint32
	n := 0
	it := p.Objs.SlTargets.Iterate()
	for it.Next(&k, &v) {
		n++
	}
	return n
}
