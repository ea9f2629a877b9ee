package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

func TestPlanRounds(t *testing.T) {
	rounds := planRounds(40, 7, 3)
	var noise, first, second int
	for _, r := range rounds {
		a, b := r.loads[0].Recorded, r.loads[1].Recorded
		switch {
		case r.noise && (a || b), !r.noise && a == b:
			t.Fatalf("pair %+v: want one recorded load, and none in a pair for the noise", r)
		case r.noise:
			noise++
		case a:
			first++
		default:
			second++
		}
	}
	if noise != 7 || first+second != 40 || first < 10 || second < 10 {
		t.Fatalf("%d pairs for the noise, %d recorded first, %d second: want 7, and about 20 each", noise, first, second)
	}
	if rounds[len(rounds)-1].noise && rounds[len(rounds)-2].noise && rounds[len(rounds)-3].noise {
		t.Fatal("the pairs for the noise come last: they are to be mixed in")
	}
	if !slices.EqualFunc(rounds, planRounds(40, 7, 3), func(a, b roundPair) bool { return a.noise == b.noise && a.loads[0].Recorded == b.loads[0].Recorded }) {
		t.Fatal("the same seed draws another order")
	}
}

// pairsOf makes pairs with these throughputs, recorded first and not recorded second.
func pairsOf(noise bool, loads ...[2]float64) (out []roundPair) {
	for _, l := range loads {
		p := roundPair{noise: noise}
		p.loads[0] = roundLoad{Recorded: !noise, Throughput: &l[0]}
		p.loads[1] = roundLoad{Throughput: &l[1]}
		out = append(out, p)
	}
	return out
}

func TestComparisonJudges(t *testing.T) {
	still := pairsOf(true, [2]float64{100, 101}, [2]float64{101, 100}, [2]float64{100, 100}, [2]float64{99, 100}, [2]float64{100, 99})
	for _, c := range []struct {
		name       string
		on, noise  []roundPair
		conclusive bool
		says       string
	}{
		{"no effect", pairsOf(false, [2]float64{100, 101}, [2]float64{101, 100}, [2]float64{100, 100}, [2]float64{99, 100}, [2]float64{100, 99}), still, true, "a loss of more than 1.0 % can be excluded"},
		{"slower", pairsOf(false, [2]float64{90, 100}, [2]float64{91, 100}, [2]float64{89, 100}, [2]float64{90, 100}, [2]float64{92, 100}), still, true, "-10.0 %"},
		{"too noisy", pairsOf(false, [2]float64{80, 100}, [2]float64{120, 100}, [2]float64{85, 100}, [2]float64{115, 100}, [2]float64{100, 100}), still, false, "hides"},
		{"drifts", pairsOf(false, [2]float64{100, 100}, [2]float64{100, 100}, [2]float64{100, 100}, [2]float64{100, 100}, [2]float64{100, 100}),
			pairsOf(true, [2]float64{100, 90}, [2]float64{100, 91}, [2]float64{100, 92}, [2]float64{100, 90}, [2]float64{100, 90}), false, "drifts"},
		{"too few", pairsOf(false, [2]float64{100, 100}), still, false, "fewer than 5"},
	} {
		got := newComparison(append(c.on, c.noise...), "recording", 0.05)
		if got.Conclusive != c.conclusive || !strings.Contains(got.Sentence, c.says) {
			t.Errorf("%s: conclusive %v: %s", c.name, got.Conclusive, got.Sentence)
		}
	}
}

// A recorder that shares its process with the load is bounded by it; the programs' time is scaled
// and freed of what keeping it takes.
func TestOverheadFigures(t *testing.T) {
	o := &run.Overhead{FromNS: 0, ToNS: 1e9, CountedNS: 1e8, KeepingNS: 40, DrainCPUNS: 5, ProcessCPUNS: 9, SharesProcess: true,
		Programs: []run.ProgramCost{{Name: "a", Runs: 1000, RunNS: 100_000}, {Name: "b", Runs: 100, RunNS: 3000}}}
	if ns, ok := o.KernelNS(); !ok || ns != 600_000 {
		t.Errorf("programs %d ns, %v: want 10 × (100000 − 40000 + 0)", ns, ok)
	}
	if lo, hi := o.RecorderNS(); lo != 5 || hi != 9 {
		t.Errorf("recorder %d to %d", lo, hi)
	}
	o.SharesProcess, o.Programs = false, nil
	if lo, hi := o.RecorderNS(); lo != 9 || hi != 9 {
		t.Errorf("recorder alone %d to %d", lo, hi)
	}
	if _, ok := o.KernelNS(); ok {
		t.Error("no program was counted, and its time is known")
	}
}
