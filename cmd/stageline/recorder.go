package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/drain"
	"github.com/stageline/stageline/collector/engine"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/collector/shadow"
	"github.com/stageline/stageline/collector/wire"
)

// recordOptions say what to record, where to, and how.
type recordOptions struct {
	PIDs             []uint32
	OutDir           string
	Match            *matcher // the engine whose processes PIDs are, and whose later ones are recorded, too; nil: by PID
	NoFollow         bool
	RingBytes        uint32
	CaptureBytes     uint32
	DebugDropPermill uint32
	IDs              []string          // request ids known beforehand
	RunID            string            // "" mints one
	Extra            map[string]string // further options for the metadata
	ShadowRings      bool              // look into rings in shared memory
	ShadowInterval   time.Duration
	NoWatchpoints    bool // times in rings from looks alone
	SharesProcess    bool // something else of note runs in this process: a load generator
}

// recorder is one recording in progress. Its records are written by one goroutine.
type recorder struct {
	opts  recordOptions
	locks *attach.Locks
	progs *attach.Programs
	w     *run.Writer
	d     *drain.Drain
	procs map[uint32]*run.Proc // described targets that live
	begun int                  // how many those were when the recording began
	fresh map[uint32]int64     // followed processes to describe once they have set themselves up

	flushed  int64 // when the run was last flushed
	left     bool  // a process exited since the kernel was last asked which live
	asked    int64 // when that was
	ended    endedTargets
	swept    int64               // when those were last looked for that ended without a record
	missing  map[uint32]bool     // of the processes then, those that were gone
	remapped int64               // when all mappings were gone through
	mapped   map[uint32]bool     // processes that have mapped segments
	stale    map[uint32]bool     // of those, the ones that exec'd or exited since the last look
	said     map[uint32][]string // notes that were made of each process that lives; of 0: other ones
	warns    []string            // what the user is to know at once
	unsaid   int                 // warnings beyond them

	cost    *costMeter
	ids     *wire.IDSet
	shadow  *shadow.Shadow // nil: not asked for
	noWatch error          // why watchpoints are not used on rings; nil: they are
	rings   bool           // a target mapped what may be a ring

	cancel   context.CancelFunc
	done     chan error  // closed ring, or the error that stopped the drain
	empty    atomic.Bool // recording ended because no target was left
	stopping bool        // targets are being taken off: that none is left says nothing
}

// flushAfter is the age from which a tick flushes the run. With the longest time between two ticks,
// 400 ms, and as much in the ring, a killed recorder loses less than a second.
const flushAfter = int64(200 * time.Millisecond)

// ringInterval is the time between two looks where rings are shadowed: a new one is sought no later.
const ringInterval = 100 * time.Millisecond

// redescribeAfter is when a new process is looked at again for the sockets it has bound.
const redescribeAfter = int64(time.Second)

// startRecorder attaches and returns once the probes are on and the snapshot is in the run. What the
// snapshot warns of is said on stderr.
func startRecorder(o recordOptions, stderr io.Writer) (_ *recorder, err error) {
	if err := attach.Place(); err != nil {
		return nil, err
	}
	for _, pid := range o.PIDs {
		if err := attach.Exists(pid); err != nil {
			return nil, err
		}
	}
	r := &recorder{opts: o, procs: map[uint32]*run.Proc{}, fresh: map[uint32]int64{},
		mapped: map[uint32]bool{}, stale: map[uint32]bool{}, said: map[uint32][]string{}, done: make(chan error, 1), cost: newCost()}
	defer func() {
		if err != nil && r.w != nil {
			r.w.Discard()
			r.w = nil
		}
		if err != nil {
			r.release()
		}
	}()
	if r.locks, err = attach.Lock(o.PIDs); err != nil {
		return nil, err
	}
	r.progs, err = attach.Load(attach.Options{RingBytes: o.RingBytes, CaptureBytes: o.CaptureBytes, DebugDropPermill: o.DebugDropPermill, NoFollow: o.NoFollow})
	if err != nil {
		return nil, err
	}
	if o.ShadowRings {
		if r.noWatch = errWatchpointsOff; !o.NoWatchpoints {
			r.noWatch = attach.TryWatchpoints()
		}
	}
	if r.w, err = run.Create(o.OutDir, run.Metadata{RunID: o.RunID, Options: r.optionTable(), Decoders: decoders()}); err != nil {
		return nil, err
	}
	if err := r.openDrain(); err != nil {
		return nil, err
	}
	if err := r.watch(o.PIDs); err != nil {
		return nil, err
	}
	r.startShadow()
	r.sayWarnings(stderr)
	r.begin()
	return r, nil
}

// begin empties the ring from now on.
func (r *recorder) begin() {
	for _, m := range r.progs.Missing {
		r.w.Note(&run.Note{AtNS: run.Mono(), Level: "info", Code: "probe-missing", Text: "this kernel has no hook for " + m + ": what it adds is unknown in this run"})
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.cost.attached(r.progs)
	r.begun = len(r.procs)
	unpace := r.w.Pace()
	go func() {
		err := r.d.Run(ctx)
		unpace()
		r.done <- err
	}()
}

func (r *recorder) openDrain() error {
	r.ids = wire.NewIDSet()
	for _, id := range r.opts.IDs {
		r.ids.Learn(id)
	}
	var interval time.Duration
	if r.opts.ShadowRings {
		interval = ringInterval
	}
	o := &r.progs.Objs
	var err error
	r.d, err = drain.New(drain.Config{
		Maps: drain.Maps{Events: o.SlEvents, Losses: o.SlLosses, Sent: o.SlSent, Capture: o.SlCapture, Streams: o.SlStreams, CaptureGen: o.SlCaptureGen, Lost: o.SlLost},
		Sink: recorderSink{r.w, r}, Rules: engine.GenericRules(), IDs: r.ids,
		Describe: r.describe, Misses: r.progs.Misses, Tick: r.tick, Interval: interval,
	})
	return err
}

// tick runs in the drain's goroutine.
func (r *recorder) tick(now int64) (stop bool) {
	for pid, at := range r.fresh {
		if now-at > redescribeAfter {
			delete(r.fresh, pid)
			r.snapshot(new(attach.Describer), pid)
		}
	}
	if r.shadow != nil {
		if r.rings {
			r.rings = false
			r.shadow.Scan(r.described())
		}
		r.shadow.Drain(r.w)
	}
	if err := r.forgetMappings(now); err != nil {
		r.note(0, run.Note{AtNS: now, Level: "warn", Code: "mappings", Text: err.Error()})
	}
	if err := r.sweep(now); err != nil {
		r.note(0, run.Note{AtNS: now, Level: "warn", Code: "targets", Text: err.Error()})
	}
	r.cost.tick(now)
	if now-r.flushed >= flushAfter {
		r.flushed = now
		r.w.Flush()
	}
	if r.w.Err() != nil {
		return true // nothing more can be kept; stop says why
	}
	if r.stopping {
		return false
	}
	if err := r.matchNew(now); err != nil {
		r.note(0, run.Note{AtNS: now, Level: "warn", Code: "match", Text: err.Error()})
	}
	if r.opts.Match != nil || r.anyLeft(now) {
		return false
	}
	r.empty.Store(true)
	r.w.Note(&run.Note{AtNS: now, Level: "warn", Code: "targets-gone", Text: "all recorded processes have exited; recording stopped there"})
	return true
}

// anyLeft tells whether a target lives. The programs' table is asked after an exit and once a second,
// because the record of an exit may be lost; where it knows none of the described processes, those
// are asked for that have not been described.
func (r *recorder) anyLeft(now int64) bool {
	if !r.left && now-r.asked < int64(time.Second) {
		return true
	}
	r.left, r.asked = false, now
	for pid := range r.procs {
		if r.progs.IsTarget(pid) {
			return true
		}
	}
	return r.progs.Alive()
}

func (r *recorder) snapshot(by *attach.Describer, pid uint32) {
	d, held, err := by.Inspect(pid)
	if err != nil {
		return
	}
	if old := r.procs[pid]; old != nil {
		if !near(old.StartNS, d.StartNS) {
			return // another process has its PID by now
		}
		d.Target = old.Target
	}
	r.procs[pid] = d
	r.w.Proc(d)
	r.note(pid, held.Notes(d)...)
}

// wait returns when the recording ends by itself or the context does.
func (r *recorder) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case err := <-r.done:
		r.done <- err
	}
}

// stop takes the probes off, drains what is left and closes the run. The run is complete up to the
// moment of this call whatever error it returns.
func (r *recorder) stop() (drain.Stats, error) {
	r.cancel()
	err := <-r.done
	r.cost.ending(r.d.Stats().CPUNS)
	var all attach.Describer
	for pid := range r.procs {
		r.snapshot(&all, pid)
	}
	r.stopShadow()
	r.stopping = true
	errDetach := r.progs.Detach()
	stats, errFinish := r.d.Finish()
	sent := r.d.Sent()
	cost := r.cost.end(r.opts.SharesProcess)
	errMeta := r.w.UpdateMeta(func(m *run.Metadata) {
		m.Targets, m.TargetsUnlisted, m.Overhead = r.targets(), r.ended.unlisted, cost
		m.Options["records_sent"] = strconv.FormatUint(sent, 10)
		m.Options["records_received"] = strconv.FormatUint(stats.Records, 10)
	})
	errClose := r.w.Close()
	r.w = nil
	r.release()
	return stats, errors.Join(err, errDetach, errFinish, errMeta, errClose)
}

func (r *recorder) targets() []run.Target {
	out := r.ended.listed
	for _, pid := range sortedPIDs(r.procs) {
		out = append(out, targetOf(r.procs[pid]))
	}
	slices.SortStableFunc(out, func(a, b run.Target) int { return cmp.Compare(a.TGID, b.TGID) })
	return out
}

func (r *recorder) release() {
	if r.cancel != nil {
		r.cancel()
	}
	if r.shadow != nil {
		r.shadow.Close(r.w)
		r.shadow = nil
	}
	r.cost.pause(run.Mono())
	if r.d != nil && r.cancel == nil { // nobody runs it, so that nobody has closed it
		_ = r.d.Close()
	}
	if r.progs != nil {
		r.progs.Close()
	}
	if r.w != nil {
		r.w.Close()
	}
	if r.locks != nil {
		r.locks.Close()
	}
	r.progs, r.locks = nil, nil
}

func (r *recorder) optionTable() map[string]string {
	o := r.opts
	m := map[string]string{
		"follow":               strconv.FormatBool(!o.NoFollow),
		"ring_bytes":           strconv.FormatUint(uint64(o.RingBytes), 10),
		"capture_bytes":        strconv.FormatUint(uint64(o.CaptureBytes), 10),
		"debug_drop_permille":  strconv.FormatUint(uint64(o.DebugDropPermill), 10),
		"known_ids":            strconv.Itoa(len(o.IDs)),
		"shadow_rings":         strconv.FormatBool(o.ShadowRings),
		"other_recorders_here": fmt.Sprint(len(attach.Others()) - len(o.PIDs)),
	}
	if o.ShadowRings {
		m["watchpoints"] = "fire"
		if r.noWatch != nil {
			m["watchpoints"] = r.noWatch.Error()
		}
	}
	maps.Copy(m, o.Extra)
	return m
}

var errWatchpointsOff = errors.New("switched off by --no-watchpoints")

// startShadow begins to look into rings, when that was asked for.
func (r *recorder) startShadow() {
	if !r.opts.ShadowRings {
		return
	}
	r.shadow = shadow.New(engine.GenericRules(), r.ids, r.opts.ShadowInterval, r.noWatch)
	r.shadow.Scan(r.described())
}

// stopShadow ends it and says in the run what it took.
func (r *recorder) stopShadow() {
	if r.shadow == nil {
		return
	}
	c := r.shadow.Close(r.w)
	r.shadow = nil
	r.w.Note(&run.Note{AtNS: run.Mono(), Level: "info", Code: "shadow-cost",
		Text: fmt.Sprintf("%d rings were looked at %d times in %.1f s, which took %.2f %% of a core; %d hits of watchpoints gave the exact time of %d of %d ends of messages of the rings that had any", c.Rings, c.Looks, c.Elapsed.Seconds(), 100*c.Share(), c.Hits, c.Exact, c.Exact+c.Bounded)})
}

// described lists the known targets by PID.
func (r *recorder) described() []*run.Proc {
	var out []*run.Proc
	for _, pid := range sortedPIDs(r.procs) {
		out = append(out, r.procs[pid])
	}
	return out
}
