package attach

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// loaded are the programs in the running kernel, for as long as the test.
func loaded(t *testing.T) *Programs {
	t.Helper()
	needRoot(t)
	p, err := Load(Options{RingBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// Root only: the programs' runs are counted while that is on and not otherwise, and a program that
// does nothing takes no time but that of the keeping.
func TestCosts(t *testing.T) {
	p := loaded(t)
	on, err := CountTime()
	if err != nil {
		t.Fatal(err)
	}
	const calls = 10007
	before := enterRuns(t, p)
	for range calls {
		unix.Getppid()
	}
	during := enterRuns(t, p)
	keeping, ok := KeepingTime()
	if err := on.Close(); err != nil {
		t.Fatal(err)
	}
	if during-before < calls {
		t.Errorf("%d runs of the entry program counted for %d calls", during-before, calls)
	}
	if !ok || keeping <= 0 || keeping > 2000 {
		t.Errorf("an empty program takes %v ns, %v", keeping, ok)
	}
	costs, err := p.Costs()
	if err != nil || len(costs)+len(p.Missing) != len(hooks) {
		t.Fatalf("%d costs and %d missing of %d programs: %v", len(costs), len(p.Missing), len(hooks), err)
	}
}

func enterRuns(t *testing.T, p *Programs) uint64 {
	t.Helper()
	costs, err := p.Costs()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range costs {
		if c.Name == "sl_sys_enter" {
			return c.Runs
		}
	}
	t.Fatal("no cost of the entry program")
	return 0
}

// The CPU clock of a process by its PID is the one that it reads itself.
func TestCPUTime(t *testing.T) {
	var own unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &own); err != nil {
		t.Fatal(err)
	}
	from := own.Nano()
	got, ok := CPUTime(uint32(os.Getpid()))
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &own); err != nil {
		t.Fatal(err)
	}
	if !ok || got < from || got > own.Nano() {
		t.Errorf("%d ns, %v, between two readings of its own clock: %d and %d", got, ok, from, own.Nano())
	}
	if _, ok := CPUTime(1 << 22); ok { // beyond the largest PID
		t.Error("a process that cannot be has CPU time")
	}
}

// A process is a target in both tables, and in neither once it is taken off.
func TestTargetTables(t *testing.T) {
	p := loaded(t)
	pid := uint32(os.Getpid())
	pids, err := p.Objs.SlTargetPids.Memory()
	if err != nil {
		t.Fatal(err)
	}
	at := make([]byte, 1)
	check := func(want byte, alive bool) {
		t.Helper()
		if _, err := pids.ReadAt(at, int64(pid)); err != nil || at[0] != want || p.Alive() != alive {
			t.Errorf("byte %d, targets %v, %v: want %d and %v", at[0], p.Alive(), err, want, alive)
		}
	}
	check(0, false)
	if err := p.watch(pid, targetNamed); err != nil {
		t.Fatal(err)
	}
	check(1, true)
	if err := p.unwatch(pid); err != nil {
		t.Fatal(err)
	}
	check(0, false)
}
