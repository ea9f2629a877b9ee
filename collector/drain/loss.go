package drain

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

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
	skipNS int64 // when misses were last asked for; 0: ask now
	// skipFrom is when that was, in any case.
	skipFrom int64

	unread bool // the counters may have moved before the programs told of it

	keys   []uint32 // of a look at all counters at once
	perCPU []bpf.StagelineSlCount
}

// skipEvery: asking for the runs that the kernel skipped takes a system call for each program.
const skipEvery = int64(time.Second)

const lossesPerKind = uint32(bpf.StagelineSlLossSL_LOSS_MAX)

func (l *lossReader) init(m Maps, now int64) {
	l.unread = true
	l.maps, l.fromNS, l.skipNS, l.skipFrom = m, now, now, now
	l.seen = map[uint32]bpf.StagelineSlCount{}
	l.misses = map[string]uint64{}
}

// poll writes a loss record for each counter that moved, with the interval since the last look as
// its time range, cut at the last loss where the kernel noted it. While the programs tell of no loss
// it asks for no counter: that takes a system call, whose answer grows with the host's processors.
func (l *lossReader) poll(sink run.Sink, now int64) error {
	moved, err := l.moved()
	if err != nil || !moved {
		l.fromNS = now
		return err
	}
	l.read(func(i uint32, c bpf.StagelineSlCount) {
		was := l.seen[i]
		if i < lossesPerKind || c.N == was.N && c.Bytes == was.Bytes {
			return
		}
		l.seen[i] = c
		to := now
		if last := int64(c.LastNs); last > l.fromNS && last < now {
			to = last
		}
		sink.Loss(&run.Loss{FromNS: l.fromNS, ToNS: to, Reason: name(lossReasons[:], i%lossesPerKind),
			What: name(kindNames[:], i/lossesPerKind), N: c.N - was.N, Bytes: c.Bytes - was.Bytes})
	})
	l.fromNS = now
	return nil
}

// moved tells whether a counter may have moved since it was last asked.
func (l *lossReader) moved() (bool, error) {
	var lost uint32
	err := l.maps.Lost.Get(&lost)
	if err == nil && lost != 0 {
		err = l.maps.Lost.Set(uint32(0)) // before the counters are read: what they gain since is told again
	}
	if err != nil {
		return false, fmt.Errorf("read a variable of the kernel programs: %w", err)
	}
	moved := lost != 0 || l.unread
	l.unread = false
	return moved, nil
}

// read calls fn with each counter in order of the index. It takes one system call where the kernel
// reads many keys at once, else one for each.
func (l *lossReader) read(fn func(i uint32, c bpf.StagelineSlCount)) {
	m, cpus := l.maps.Losses, ebpf.MustPossibleCPU()
	if l.keys == nil {
		l.keys = make([]uint32, m.MaxEntries())
		l.perCPU = make([]bpf.StagelineSlCount, int(m.MaxEntries())*cpus)
	}
	var from ebpf.MapBatchCursor
	n, err := m.BatchLookup(&from, l.keys, l.perCPU, nil)
	if err == nil || errors.Is(err, ebpf.ErrKeyNotExist) { // the latter says: these were all
		for i, key := range l.keys[:n] {
			fn(key, sum(l.perCPU[i*cpus:(i+1)*cpus]))
		}
		return
	}
	for i := range m.MaxEntries() {
		if c, ok := sumCPUs(m, i); ok {
			fn(i, c)
		}
	}
}

// skipped writes a loss record for each program whose runs the kernel skipped since it was last
// asked, a second ago or more.
func (l *lossReader) skipped(sink run.Sink, now int64, misses func() map[string]uint64) {
	if misses == nil || now-l.skipNS < skipEvery {
		return
	}
	cur := misses()
	for _, prog := range sortedKeys(cur) {
		if n := cur[prog] - l.misses[prog]; n > 0 {
			sink.Loss(&run.Loss{FromNS: l.skipFrom, ToNS: now, Reason: "recursion", What: prog, N: n})
		}
	}
	l.misses, l.skipNS, l.skipFrom = cur, now, now
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
	s := sum(per)
	return s, s.N > 0 || s.Bytes > 0
}

func sum(per []bpf.StagelineSlCount) (s bpf.StagelineSlCount) {
	for _, c := range per {
		s.N += c.N
		s.Bytes += c.Bytes
		s.LastNs = max(s.LastNs, c.LastNs)
	}
	return s
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
