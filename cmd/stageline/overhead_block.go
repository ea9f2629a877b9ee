package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/stageline/stageline/loadgen"
)

// arm is one way to send the load: under the eyes of something, or of nothing.
type arm struct {
	name    string
	command string // of another tool
	records bool   // leaves a run in the directory that observe is given
	observe func(ctx context.Context, dir string) (*observer, error)
}

// Names of the arms that are always there.
const (
	armBare     = "nothing"
	armAgain    = "nothing again"
	armRecorder = "stageline"
)

// block holds the loads of one block in the order in which they were sent.
type block []*armLoad

// order draws the order of a block's arms.
func order(rng *rand.Rand, arms []arm) []arm {
	out := make([]arm, len(arms))
	for i, k := range rng.Perm(len(arms)) {
		out[i] = arms[k]
	}
	return out
}

// blockRun is the state of sending all blocks.
type blockRun struct {
	*overheadOptions
	plan   *loadgen.Plan
	dir    string
	limit  time.Duration // of one load; 0: none yet
	failed map[string]string
}

// A load under a tool may take slowest times what the first bare one took, and spare: a tool that
// stops the engine is to be found out.
const (
	slowest = 20
	spare   = 30 * time.Second
)

// run sends all blocks. It returns those that are complete, and why arms are missing from some of
// them, also beside an error, which says that the engine no longer serves even an unobserved load.
func (o *overheadOptions) run(ctx context.Context, arms []arm, stderr io.Writer) (blocks []block, failed map[string]string, err error) {
	b := &blockRun{overheadOptions: o, failed: map[string]string{}}
	if b.plan, err = loadgen.NewPlan(o.load); err != nil {
		return nil, nil, err
	}
	if b.dir, err = os.MkdirTemp("", "stageline-overhead-"); err != nil {
		return nil, nil, fmt.Errorf("make a directory for the runs: %w", err)
	}
	defer os.RemoveAll(b.dir)
	begin := time.Now()
	for range o.warmup {
		if _, err := b.send(ctx, arm{name: armBare}); err != nil {
			return nil, nil, err
		}
	}
	b.limit = slowest*time.Since(begin)/time.Duration(o.warmup) + spare
	rng := rand.New(rand.NewPCG(o.seed, 4))
	for i := range o.blocks {
		sent, err := b.block(ctx, order(rng, arms), stderr)
		if err != nil {
			return blocks, b.failed, fmt.Errorf("block %d of %d: %w", i+1, o.blocks, err)
		}
		blocks = append(blocks, sent)
		fmt.Fprintf(stderr, "stageline: block %d of %d done, %.0f s\n", i+1, o.blocks, time.Since(begin).Seconds())
	}
	return blocks, b.failed, nil
}

// block sends the loads of one block. An observed load that fails takes its arm out of this and all
// later blocks; a bare one that fails ends the comparison.
func (b *blockRun) block(ctx context.Context, arms []arm, stderr io.Writer) (block, error) {
	var out block
	before := ""
	for _, a := range arms {
		if b.failed[a.name] != "" {
			continue
		}
		l, err := b.send(ctx, a)
		switch {
		case err == nil:
			out = append(out, l)
		case ctx.Err() != nil || a.observe == nil:
			return nil, fmt.Errorf("load with %s%s: %w", a.name, before, err)
		default:
			b.failed[a.name] = err.Error()
			fmt.Fprintf(stderr, "stageline: %s is left out from here on: %v\n", a.name, err)
			if _, err := b.send(ctx, arm{name: armBare}); err != nil {
				return nil, fmt.Errorf("%s harmed the engine: the load after it: %w", a.name, err)
			}
		}
		before = ", after one with " + a.name
	}
	return out, nil
}

// send sends one load under an arm's observer, which has attached before and ended after it.
func (b *blockRun) send(ctx context.Context, a arm) (_ *armLoad, err error) {
	l := &armLoad{Arm: a.name}
	var w *observer
	if a.observe != nil {
		if w, err = a.observe(ctx, filepath.Join(b.dir, "run")); err != nil {
			return nil, err
		}
	}
	lctx := ctx
	if b.limit > 0 {
		var cancel context.CancelFunc
		lctx, cancel = context.WithTimeoutCause(ctx, b.limit, fmt.Errorf("took longer than %.0f s", b.limit.Seconds()))
		defer cancel()
	}
	err = l.measure(lctx, b.plan, b.pids, w)
	if w != nil { // also when the load failed: nothing is left behind
		err = errors.Join(err, w.stop())
	}
	if err != nil {
		return nil, err
	}
	if w != nil {
		l.take(w)
	}
	if a.records {
		if err := l.account(filepath.Join(b.dir, "run")); err != nil {
			return nil, err
		}
	}
	return l, nil
}
