package drain

import (
	"runtime"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/stageline/stageline/bpf"
	"github.com/stageline/stageline/collector/run"
)

var lossReasons = [...]string{"ring-full", "map-full", "read-fault", "truncated", "debug-drop", "no-task-storage"}

var kindNames = [...]string{"", "endpoint", "io", "shm", "offcpu", "proc", "net", "cuda", "user"}

// lossReader turns the kernel's cumulative counters into losses between two looks.
type lossReader struct {
	maps   Maps
	fromNS int64
	seen   map[uint32]bpf.StagelineSlCount
	misses map[string]uint64
}

const lossesPerKind = uint32(bpf.StagelineSlLossSL_LOSS_MAX)

func (l *lossReader) init(m Maps, now int64) {
	l.maps, l.fromNS = m, now
	l.seen = map[uint32]bpf.StagelineSlCount{}
	l.misses = map[string]uint64{}
}

// poll writes a loss record for each counter that moved, with the interval since the last look as
// its time range, cut at the last loss where the kernel noted it.
func (l *lossReader) poll(sink run.Sink, now int64, misses func() map[string]uint64) {
	for i := lossesPerKind; i < l.maps.Losses.MaxEntries(); i++ {
		c, ok := sumCPUs(l.maps.Losses, i)
		if !ok {
			continue
		}
		was := l.seen[i]
		if c.N == was.N && c.Bytes == was.Bytes {
			continue
		}
		l.seen[i] = c
		to := now
		if last := int64(c.LastNs); last > l.fromNS && last < now {
			to = last
		}
		sink.Loss(&run.Loss{FromNS: l.fromNS, ToNS: to, Reason: name(lossReasons[:], i%lossesPerKind),
			What: name(kindNames[:], i/lossesPerKind), N: c.N - was.N, Bytes: c.Bytes - was.Bytes})
	}
	if misses != nil {
		cur := misses()
		for _, prog := range sortedKeys(cur) {
			if n := cur[prog] - l.misses[prog]; n > 0 {
				sink.Loss(&run.Loss{FromNS: l.fromNS, ToNS: now, Reason: "recursion", What: prog, N: n})
			}
		}
		l.misses = cur
	}
	l.fromNS = now
}

// Sent returns how many records the kernel handed to the ring, lost ones included.
func (d *Drain) Sent() uint64 {
	var n uint64
	for i := uint32(1); i < d.cfg.Maps.Sent.MaxEntries(); i++ {
		c, _ := sumCPUs(d.cfg.Maps.Sent, i)
		n += c.N
	}
	return n
}

func sumCPUs(m *ebpf.Map, i uint32) (bpf.StagelineSlCount, bool) {
	per := make([]bpf.StagelineSlCount, 0, runtime.NumCPU())
	if err := m.Lookup(i, &per); err != nil {
		return bpf.StagelineSlCount{}, false
	}
	var s bpf.StagelineSlCount
	for _, c := range per {
		s.N += c.N
		s.Bytes += c.Bytes
		s.LastNs = max(s.LastNs, c.LastNs)
	}
	return s, s.N > 0 || s.Bytes > 0
}

func name(names []string, i uint32) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "unknown"
}

func sortedKeys(m map[string]uint64) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
