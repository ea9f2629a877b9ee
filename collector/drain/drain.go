// Package drain empties the kernel's ring on a timer, turns records into those of a recorded run,
// feeds captured bytes to the wire decoders, and accounts for every record that did not arrive.
//
// It polls, and seldom: a wake-up per record preempts the process under test, and waking up takes as
// long as a hundred records. The programs wake it when a quarter of the ring is full, so that
// no rate of records has to be foreseen, and when a process is born, whose command line may be gone
// soon. It imports collector/wire, since bytes are decoded while recording and then forgotten.
package drain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/bpf"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/collector/wire"
)

// Maps are the kernel side's maps that the drain reads and writes.
type Maps struct {
	Events, Losses, Sent, Capture, Streams *ebpf.Map
	CaptureGen                             *ebpf.Variable // counts the changes of Capture
	Lost                                   *ebpf.Variable // not 0: one of Losses has moved
}

// Config of a Drain. All calls to Sink come from the goroutine that runs Run.
type Config struct {
	Maps     Maps
	Sink     run.Sink
	Rules    *wire.Rules
	IDs      *wire.IDSet
	Interval time.Duration               // between two looks at the ring, at most; 0 = by what comes, 100 to 400 ms
	Describe func(p *run.Proc)           // completes a fork or exec record from /proc
	Misses   func() map[string]uint64    // programs skipped by the kernel, cumulative
	Tick     func(now int64) (stop bool) // called with every look that was not asked for, e.g. to see whether targets live
}

// Stats say what went through.
type Stats struct {
	Records   uint64 // received from the ring
	Bytes     uint64
	Malformed uint64 // too short or of an unknown class; also counted as loss
	Endpoints int
	CPUNS     int64 // CPU time of this work, the waits between without
}

// heldBytes bounds what the decoders keep of unfinished messages and streams out of order.
const heldBytes = 64 << 20

const (
	// busyInterval and quietInterval are those between two looks. Most of what a look takes where little
	// comes is to wake up: 0.1 ms, all memory being cold. With that of the run's flushes, the longer one
	// is what a killed recorder loses.
	busyInterval  = 100 * time.Millisecond
	quietInterval = 400 * time.Millisecond
	// quietShare of the ring is what may come in the longer one, and quietRing the size from which it is
	// used: in a smaller ring a burst that comes before the programs' word is acted on has no room.
	quietShare = 64
	quietRing  = 1 << 20
)

// bornInterval is the interval after a birth: what follows one may be as short-lived.
const bornInterval = 10 * time.Millisecond

// Drain is used by one goroutine.
type Drain struct {
	cfg       Config
	rd        *ringbuf.Reader
	wait      *waiter
	eps       map[bpf.StagelineSlEp]*endpoint
	byIno     map[uint64]*endpoint // unix sockets, to find the peer
	lastID    uint32
	startNS   int64
	loss      lossReader
	stats     Stats
	shed      uint64      // times the budget made a decoder give something up
	held      wire.Budget // bytes that all decoders hold
	toAsk     []*endpoint // silent endpoints to be asked for, see held.go
	askedNS   int64       // when that list was made
	askAtOnce int         // how many of them in one look, at least heldChecks
	born      bool        // a process was, since the last wait
	gen       uint32      // of the capture table, as the programs know it
	changed   bool        // the table has, since then

	keptAt    time.Time // of the last look that nothing asked for
	keptBytes uint64    // received by then

	io     run.IO
	shm    run.Shm
	off    run.OffCPU
	proc   run.Proc
	net    run.Net
	ep     run.Endpoint
	chunk  wire.Chunk
	record ringbuf.Record
}

// New opens the ring.
func New(cfg Config) (*Drain, error) {
	rd, err := ringbuf.NewReader(cfg.Maps.Events)
	if err != nil {
		return nil, fmt.Errorf("open the ring buffer: %w", err)
	}
	wait, err := newWaiter(cfg.Maps.Events)
	if err != nil {
		return nil, fmt.Errorf("wait for the ring buffer: %w", errors.Join(err, rd.Close()))
	}
	d := &Drain{cfg: cfg, rd: rd, wait: wait, eps: map[bpf.StagelineSlEp]*endpoint{}, byIno: map[uint64]*endpoint{}, held: wire.Budget{Max: heldBytes}}
	if err := cfg.Maps.CaptureGen.Get(&d.gen); err != nil {
		return nil, fmt.Errorf("read a variable of the kernel programs: %w", errors.Join(err, wait.Close(), rd.Close()))
	}
	d.startNS, d.keptAt = run.Mono(), time.Now()
	d.loss.init(cfg.Maps, d.startNS)
	return d, nil
}

// Run drains until the context ends or Tick asks to stop. It returns with the ring as it then was;
// call Finish once the programs are off.
func (d *Drain) Run(ctx context.Context) error {
	defer d.wait.endWith(ctx)()
	keepAt := time.Now().Add(d.interval())
	for {
		if err := d.wait.until(d.next(keepAt), d.late); err != nil || ctx.Err() != nil {
			return err
		}
		keep := !time.Now().Before(keepAt)
		done, err := d.turn(keep)
		if done || err != nil {
			return err
		}
		if keep {
			keepAt = time.Now().Add(d.interval())
		}
	}
}

// interval until the next look that nothing asks for, by what came since the last.
func (d *Drain) interval() time.Duration {
	now, bytes := time.Now(), d.stats.Bytes
	since, came := now.Sub(d.keptAt), bytes-d.keptBytes
	d.keptAt, d.keptBytes = now, bytes
	if d.cfg.Interval != 0 {
		return d.cfg.Interval
	}
	return intervalFor(d.rd.BufferSize(), came, since)
}

func intervalFor(ring int, came uint64, since time.Duration) time.Duration {
	if ring < quietRing || float64(came)*quietInterval.Seconds() > float64(ring/quietShare)*since.Seconds() {
		return busyInterval
	}
	return quietInterval
}

// next is when to look at the ring again, unless the kernel asks for it before.
func (d *Drain) next(keepAt time.Time) time.Time {
	if !d.born {
		return keepAt
	}
	d.born = false
	if at := time.Now().Add(bornInterval); at.Before(keepAt) {
		return at
	}
	return keepAt
}

// late empties the ring of what came since the last turn, whose word the kernel may have given by then,
// and reports that it found a birth: what follows one is not to wait for long.
func (d *Drain) late() (bool, error) {
	if d.rd.AvailableBytes() == 0 {
		return false, nil
	}
	_, err := d.turn(false)
	return d.born, err
}

// turn empties the ring and, every now and then, keeps house. It stays on one thread, whose CPU
// clock it reads, and leaves it for the wait: a goroutine with a thread of its own is woken by
// another, which costs more than all that a turn finds to do.
func (d *Drain) turn(keep bool) (done bool, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from := threadCPU()
	err = d.empty()
	if keep {
		var e error
		done, e = d.housekeeping(run.Mono())
		err = errors.Join(err, e)
	}
	err = errors.Join(err, d.tellCapture())
	d.stats.CPUNS += threadCPU() - from
	return done, err
}

func threadCPU() int64 {
	ns, _ := run.CPUClock(unix.CLOCK_THREAD_CPUTIME_ID) // always there
	return ns
}

// Finish takes what is left, closes the decoders and writes the last losses.
func (d *Drain) Finish() (Stats, error) {
	d.loss.skipNS, d.loss.unread = 0, true // now, whenever and whatever was last asked
	_, err := d.turn(true)
	now := run.Mono()
	for _, e := range d.ordered() {
		e.finish(d, now)
	}
	if d.shed > 0 {
		d.cfg.Sink.Loss(&run.Loss{FromNS: d.startNS, ToNS: now, Reason: "decoder-memory", What: "stream", N: d.shed})
	}
	d.stats.Endpoints = int(d.lastID)
	return d.stats, errors.Join(err, d.Close())
}

// Close gives the ring up as it is; Finish does so too.
func (d *Drain) Close() error { return errors.Join(d.wait.Close(), d.rd.Close()) }

// Stats so far.
func (d *Drain) Stats() Stats { return d.stats }

func (d *Drain) housekeeping(now int64) (done bool, err error) {
	err = d.loss.poll(d.cfg.Sink, now)
	d.loss.skipped(d.cfg.Sink, now, d.cfg.Misses)
	d.sweepHeld(now)
	for _, e := range d.ordered() {
		e.tick(d, now)
	}
	return d.cfg.Tick != nil && d.cfg.Tick(now), err
}

// empty reads all records that are in the ring now, and of those that come meanwhile no more than a ring
// full: who writes faster than it reads is not to keep it from its other work. It asks the reader for no
// more than are there: that would ask the kernel, and to enter a system call wakes the Go runtime's
// monitor, which then stays awake for as long as this turn takes.
func (d *Drain) empty() error {
	d.rd.SetDeadline(time.Now().Add(-time.Second)) // never block
	for most := d.stats.Bytes + uint64(d.rd.BufferSize()); d.stats.Bytes < most && d.rd.AvailableBytes() > 0; {
		err := d.rd.ReadInto(&d.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the ring buffer: %w", err)
		}
		d.take(d.record.RawSample)
	}
	return nil
}

func (d *Drain) take(b []byte) {
	d.stats.Records++
	d.stats.Bytes += uint64(len(b))
	if !d.dispatch(b) {
		d.stats.Malformed++
		now := run.Mono()
		d.cfg.Sink.Loss(&run.Loss{FromNS: now, ToNS: now, Reason: "malformed", What: "record", N: 1, Bytes: uint64(len(b))})
	}
}
