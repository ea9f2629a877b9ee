package shadow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/engine"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/collector/wire"
)

const (
	// DefaultInterval is the time between two looks: a message's times are known to within it.
	DefaultInterval = 500 * time.Microsecond
	// MinInterval keeps a look from following the last one without a pause.
	MinInterval = 20 * time.Microsecond
	aliveEvery  = int64(time.Second)
)

// Shadow watches rings from one goroutine of its own. Its methods may be called from another.
type Shadow struct {
	interval time.Duration
	looker   *wire.Looker
	stop     chan struct{}
	done     chan struct{}

	mu      sync.Mutex
	rings   []*ring
	known   map[uint64]bool // inodes that are watched or were refused
	pending queue
	nextEP  uint32
	cost    Cost
	watch   watching
}

// Cost is what the watching took.
type Cost struct {
	Rings   int
	Looks   uint64 // at one ring
	Hits    uint64 // of watchpoints
	Exact   uint64 // ends of messages with the time of a hit
	Bounded uint64 // ends of messages of watched rings, without one
	CPU     time.Duration
	Elapsed time.Duration
}

// Share is the part of one core.
func (c Cost) Share() float64 {
	if c.Elapsed == 0 {
		return 0
	}
	return float64(c.CPU) / float64(c.Elapsed)
}

// New starts watching nothing. An interval of 0 is the default. The flags of rings are watched by
// hardware as well, for exact times, unless something says why not, such as attach.TryWatchpoints.
func New(rules *wire.Rules, ids *wire.IDSet, interval time.Duration, noWatchpoints error) *Shadow {
	s := &Shadow{interval: cmp.Or(interval, DefaultInterval), looker: wire.NewLooker(rules, ids),
		stop: make(chan struct{}), done: make(chan struct{}), known: map[uint64]bool{}, nextEP: firstEndpoint}
	s.watch.whyNot = noWatchpoints
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) // the one that hold keeps
	go s.run()
	return s
}

// Scan looks for rings that processes have mapped and watches those it does not know yet.
func (s *Shadow) Scan(procs []*run.Proc) {
	byInode := map[uint64][]mapper{}
	var order []uint64
	for _, p := range procs {
		for _, m := range attach.Mappings(p.TGID) {
			l := byInode[m.Inode]
			if l == nil {
				order = append(order, m.Inode)
			}
			if i := slices.IndexFunc(l, func(x mapper) bool { return x.p.TGID == p.TGID }); i >= 0 {
				l[i].again = true
			} else {
				byInode[m.Inode] = append(l, mapper{p: p, m: m})
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(ino uint64, _ bool) bool { return byInode[ino] == nil }) // nobody has it any more
	had := len(s.rings)
	for _, ino := range order {
		l := byInode[ino]
		if len(l) < 2 || s.known[ino] {
			continue
		}
		if err := s.add(l); err != nil && !errors.Is(err, errNoRing) {
			s.known[ino] = true
			s.pending.note("ring-not-shadowed", fmt.Sprintf("segment %s looks like a ring and is not watched: %v", l[0].m.Name, err))
		}
	}
	if len(s.rings) > had {
		s.arm()
		for _, r := range s.rings[had:] {
			_ = r.begin() // what came before the registers were armed came before the watch; the next look says an error
		}
	}
}

// mapper is a process that has a segment mapped.
type mapper struct {
	p     *run.Proc
	m     attach.Mapping
	again bool // more than once, so that one address is not all there is to watch
}

var errNoRing = errors.New("no ring")

// add opens a segment and watches it when it is a ring.
func (s *Shadow) add(who []mapper) error {
	m, pid := who[0].m, who[0].p.TGID
	var procs []*run.Proc
	for _, x := range who {
		procs = append(procs, x.p)
	}
	f, err := open(pid, m)
	if err != nil {
		return err
	}
	r, err := s.ringOf(f, m, procs)
	if err == nil {
		err = r.begin()
	}
	if err != nil {
		f.Close()
		return err
	}
	r.mapped(who)
	for range r.readers {
		r.ep = append(r.ep, s.nextEP)
		s.pending.channel(s.nextEP, m)
		s.nextEP += 2
	}
	s.known[m.Inode] = true
	s.rings = append(s.rings, r)
	s.cost.Rings++
	s.pending.note("ring-shadowed", fmt.Sprintf("ring %s of %s (%d chunks of %d bytes, %d readers) is looked at every %v: process %d writes, %v read",
		m.Name, r.layout.Engine, r.layout.Chunks, r.layout.ChunkBytes, r.layout.Readers, s.interval, r.writer, r.readers))
	return nil
}

// open opens what a process has mapped, whatever became of its name. A name may lead anywhere by now,
// to a device or a FIFO too, so it is looked at before it is opened.
func open(pid uint32, m attach.Mapping) (*os.File, error) {
	var first error
	for _, path := range []string{fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.Addr, m.Addr+m.Size), fmt.Sprintf("/proc/%d/root/dev/shm/%s", pid, m.Name)} {
		f, err := openSame(path, m)
		if err == nil {
			return f, nil
		}
		first = cmp.Or(first, fmt.Errorf("open %s: %w", path, err))
	}
	return nil, first
}

// openSame opens a path if it names the mapped file, and does nothing to what it names otherwise.
func openSame(path string, m attach.Mapping) (*os.File, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return nil, err
	}
	dev := unix.Major(st.Dev)<<20 | unix.Minor(st.Dev) // as the kernel's own records have it
	if st.Ino != m.Inode || dev != m.Dev || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errNoRing
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), m.Name), nil
}

// ringOf recognises a ring and who writes and reads it.
func (s *Shadow) ringOf(f *os.File, m attach.Mapping, procs []*run.Proc) (*ring, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	l, ok := engine.RingOf(st.Size())
	if !ok {
		return nil, errNoRing
	}
	if len(procs) != 1+l.Readers {
		return nil, fmt.Errorf("%d of the recorded processes have it mapped and it has a writer and %d readers; name all of them with -p", len(procs), l.Readers)
	}
	writer := writerOf(l, procs)
	if writer == nil {
		return nil, errors.New("none of its processes is the parent of the others, so the writer is not known")
	}
	r := newRing(f, l, m.Name)
	r.writer = writer.TGID
	for _, p := range procs {
		if p != writer {
			r.readers = append(r.readers, p.TGID)
		}
	}
	slices.Sort(r.readers) // readers are started in the order of their numbers
	return r, nil
}

// writerOf is the process that the others descend from, or the child where the layout says so.
func writerOf(l engine.RingLayout, procs []*run.Proc) *run.Proc {
	for _, p := range procs {
		others, down := 0, 0
		for _, q := range procs {
			if q == p {
				continue
			}
			others++
			if descends(q.TGID, p.TGID) {
				down++
			}
		}
		if down == others && !l.WriterIsChild {
			return p
		}
		if l.WriterIsChild && others == 1 && down == 0 && descends(p.TGID, other(procs, p).TGID) {
			return p
		}
	}
	return nil
}

func other(procs []*run.Proc, p *run.Proc) *run.Proc {
	if procs[0] == p {
		return procs[1]
	}
	return procs[0]
}

func descends(pid, from uint32) bool { return slices.Contains(attach.Children(from), pid) }

// run looks at all rings, interval after interval.
func (s *Shadow) run() {
	defer close(s.done)
	runtime.LockOSThread() // its CPU time is that of this thread
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) // without it each pause is 50 µs longer
	begun, cpu, alive := time.Now(), threadCPU(), run.Mono()
	for {
		select {
		case <-s.stop:
			return
		default:
		}
		s.mu.Lock()
		idle := len(s.rings) == 0
		s.lookAll()
		s.takeHits()
		if now := run.Mono(); now-alive > aliveEvery {
			alive = now
			s.dropDead()
		}
		s.cost.CPU, s.cost.Elapsed = threadCPU()-cpu, time.Since(begun)
		s.mu.Unlock()
		pause := s.interval
		if idle {
			pause = 10 * time.Millisecond
		}
		hold(pause)
	}
}

// hold sleeps without giving this thread's processor back to the Go scheduler: to hand it over and
// take it back some thousand times a second costs more than the looks do. Cut short by a signal, the
// next look comes early.
func hold(pause time.Duration) {
	ts := unix.NsecToTimespec(int64(pause))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

func threadCPU() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func (s *Shadow) lookAll() {
	s.rings = slices.DeleteFunc(s.rings, func(r *ring) bool {
		s.cost.Looks++
		err := r.look(s.looker, &s.pending)
		if err == nil {
			return false
		}
		s.pending.note("ring-ended", fmt.Sprintf("ring %s is no longer looked at after %d messages: %v", r.name, r.enqueued, err))
		s.end(r)
		return true
	})
}

// dropDead ends the watch of rings that nobody is left to use.
func (s *Shadow) dropDead() {
	s.rings = slices.DeleteFunc(s.rings, func(r *ring) bool {
		for _, pid := range append([]uint32{r.writer}, r.readers...) {
			if unix.Kill(int(pid), 0) == nil {
				return false
			}
		}
		s.end(r)
		return true
	})
}

// end gives a ring's file back, and hands on what waits.
func (s *Shadow) end(r *ring) {
	s.watch.forget(r)
	r.f.Close()
}

// Drain hands over what was found since the last call. The sink is called from this goroutine.
func (s *Shadow) Drain(sink run.Sink) {
	s.mu.Lock()
	q := s.pending
	s.pending = queue{}
	s.mu.Unlock()
	q.to(sink)
}

// Close ends the watching and hands over the rest.
func (s *Shadow) Close(sink run.Sink) Cost {
	close(s.stop)
	<-s.done
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) - 1)
	s.lookAll()
	s.takeHits()
	for _, r := range s.rings {
		s.end(r)
	}
	s.rings = nil
	s.watch.close(&s.pending)
	s.Drain(sink)
	s.cost.Hits, s.cost.Exact, s.cost.Bounded = s.watch.hits, s.watch.exact, s.watch.bounded
	return s.cost
}
