package attach

import (
	"errors"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/stageline/stageline/collector/run"
	"golang.org/x/sys/unix"
)

// CountTime has the kernel keep the run time of every eBPF program on the host until the returned
// value is closed. Keeping it costs two clock readings for each run of a program, which are in the
// figures of whoever compares with and without a recorder.
func CountTime() (io.Closer, error) { return ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME)) }

// Costs reads, in the order of attaching, how often each program ran and how long, since it was
// loaded, as far as CountTime was on. A program's runs in other processes than the targets are in
// it: every system call and every switch of the host passes the hooks.
func (p *Programs) Costs() ([]run.ProgramCost, error) {
	var out []run.ProgramCost
	var errs []error
	for _, h := range hooks {
		if p.isMissing(h.name) {
			continue
		}
		st, err := h.prog(&p.Objs.StagelinePrograms).Stats()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, run.ProgramCost{Name: h.name, Runs: st.RunCount, RunNS: int64(st.Runtime / time.Nanosecond)})
	}
	return out, errors.Join(errs...)
}

// KeepingTime is what keeping the time adds to the kept time of each run, in ns: what a program that
// does nothing seems to take. False where it cannot be measured; CountTime must be on.
func KeepingTime() (ns float64, ok bool) {
	const runs, packet = 2000, 14 // the shortest packet that a test run takes
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sl_empty", Type: ebpf.SocketFilter, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return 0, false
	}
	defer empty.Close()
	if _, err := empty.Run(&ebpf.RunOptions{Data: make([]byte, packet), Repeat: runs}); err != nil {
		return 0, false
	}
	st, err := empty.Stats()
	if err != nil || st.RunCount < runs {
		return 0, false
	}
	return float64(st.Runtime) / float64(st.RunCount), true
}

// CPUTime is the CPU time that a process has used so far, all its threads, those that ended too;
// false when it is gone. It is read from the process's CPU clock: /proc/PID/stat counts the same in
// steps of 10 ms.
func CPUTime(pid uint32) (ns int64, ok bool) {
	const perProcessSched = 2 // CPUCLOCK_SCHED of a whole process: see clock_getcpuclockid(3)
	return run.CPUClock(int32(^pid<<3 | perProcessSched))
}
