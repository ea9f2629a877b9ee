package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// threadsCPU is what the threads of a process have had of the CPU so far.
func threadsCPU(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		var ns int64
		_, err = fmt.Sscan(string(b), &ns)
		must(t, err)
		sum += time.Duration(ns)
	}
	return sum
}

// With --cpu-bound each service is time on the CPU of the stage that the truth names, and a quarter of
// what it is without.
func TestCPUBoundStagesCompute(t *testing.T) {
	for _, impl := range []string{"c", "python"} {
		t.Run(impl, func(t *testing.T) {
			s := begin(t, append(implArgs(t, impl), "--seed", "3", "--cpu-bound")...)
			drawn := s.top.Stages[1].Service
			s.top.BurnCPU()
			if got := s.top.Stages[1].Service; got.BaseUS != drawn.BaseUS/4 || got.CPUPermille != 1000 {
				t.Errorf("service %+v of %+v", got, drawn)
			}
			before, audio, used := map[int]time.Duration{}, map[string]int{}, map[int]time.Duration{}
			for _, pid := range s.pids {
				before[pid] = threadsCPU(t, pid)
			}
			audio["req-0"] = s.chat("req-0", nil).chunks
			for _, pid := range s.pids {
				used[pid] = threadsCPU(t, pid) - before[pid]
			}
			f := s.stop()
			checkComplete(t, s, f, audio)
			least := map[int]time.Duration{}
			for _, v := range f.visits {
				st, err := s.top.StageByName(v.Stage)
				must(t, err)
				if st.Index == 0 || st.Role == RoleThink {
					continue // a thinker's step serves several requests
				}
				// The law gives 0.6 times the base at least, a talker that for each of its chunks.
				one := time.Duration(st.Service.BaseUS) * time.Microsecond * 6 / 10
				if v.Finish-v.Start < one.Nanoseconds() {
					t.Errorf("%s of %s served for %d ns, want at least %v", v.Stage, v.Request, v.Finish-v.Start, one)
				}
				least[v.PID] += one
			}
			for pid, want := range least {
				if used[pid] < want {
					t.Errorf("process %d used %v of the CPU, its services take %v at least", pid, used[pid], want)
				}
			}
		})
	}
}
