package correlate

import (
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// inHandStats are CPU times of a loop between the last that it shows of taking an input up and its
// waking of compute for it, ns, by whether the input came in a segment. They say how long after the
// former an input is ready whose hand-over shows nothing, because compute is busy.
type inHandStats struct{ cpu [2][]int64 }

const (
	// maxInHand bounds the samples of each kind, minInHand is how many it needs.
	maxInHand = 128
	minInHand = 5
)

func inHandKind(segment bool) int {
	if segment {
		return 1
	}
	return 0
}

// note takes a hand-over that began at from and was seen at wake.
func (s *inHandStats) note(loop *thread, segment bool, from, wake int64) {
	k := inHandKind(segment)
	if wake < from || len(s.cpu[k]) >= maxInHand {
		return
	}
	s.cpu[k] = append(s.cpu[k], loop.ran(from, wake))
	slices.Sort(s.cpu[k])
}

// after is when an input is in hand that the loop last dealt with visibly at from.
func (s *inHandStats) after(loop *thread, segment bool, from int64) int64 {
	cpu := int64(readyCPUNS)
	if l := s.cpu[inHandKind(segment)]; len(l) >= minInHand {
		cpu = l[len(l)/2]
	}
	if o, ok := loop.sleepAt(from); ok && o.State == run.OffPreempted {
		from = o.InNS
	}
	return afterCPU(loop, from, cpu)
}

// ran is the time of [a, b] in which a thread had a CPU.
func (t *thread) ran(a, b int64) int64 {
	on := b - a
	for _, o := range t.off[t.firstEnding(a):] {
		if o.OutNS >= b {
			break
		}
		on -= max(0, min(b, o.InNS)-max(a, o.OutNS))
	}
	return on
}
