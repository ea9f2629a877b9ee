package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate/stat"
	"github.com/stageline/stageline/export"
	"github.com/stageline/stageline/loadgen"
)

const demoUsage = `usage: stageline demo -o DIR [-n 200] [--concurrency 8 | --rate R] [--seed S] [--json]

Starts a reference pipeline of several processes that knows its own truth, attaches to it by
its process ids alone, sends a load, and writes DIR/run, DIR/report.json and DIR/accuracy.json.
Needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE) and no GPU.

  stageline demo -o out/demo
  stageline demo -o out/slow --slow stage=NAME --seed 3

The pipeline is balanced: with nothing made slow the verdict is inconclusive.

An inconclusive verdict is a result here: the exit code is 5 only with --fail-inconclusive.

`

type demoOptions struct {
	reportFlags
	dir, refpipe, impl string
	slow               []string
	stall, big         string
	seed               uint64
	load               loadgen.Config
	dropPermille       int
	failInconclusive   bool
}

// runDemo is `stageline demo`.
func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := demoFlags(args, stdout)
	if err != nil {
		return err
	}
	if err := createDemo(o.dir); err != nil {
		return err
	}
	r, a, err := o.measure(ctx, stderr)
	if err != nil {
		return err
	}
	if err := o.print(stdout, r, a); err != nil {
		return err
	}
	return o.judge(r)
}

func demoFlags(args []string, stdout io.Writer) (*demoOptions, error) {
	o := &demoOptions{load: loadgen.Config{Stream: true, IDField: "request_id", Deadline: time.Minute}}
	fs := newFlags("demo", demoUsage, stdout)
	fs.StringVarP(&o.dir, "output", "o", "", "directory to create")
	fs.IntVarP(&o.load.N, "requests", "n", 200, "requests to send")
	fs.IntVarP(&o.load.Concurrency, "concurrency", "c", 8, "requests in flight")
	fs.Float64Var(&o.load.Rate, "rate", 0, "requests per second (open loop) instead of a fixed concurrency")
	fs.Uint64Var(&o.seed, "seed", 1, "of the pipeline's layout and service times and of the load")
	fs.StringVar(&o.impl, "engine-impl", "c", "stage processes: c or python")
	fs.StringArrayVar(&o.slow, "slow", nil, "make one place slow: stage=NAME[:FACTOR] (5 times) or hop=FROM:TO[:MS] (150 ms); repeatable")
	fs.StringVar(&o.stall, "stall-reader", "", "this stage stops reading 300 ms of every 1500")
	fs.StringVar(&o.big, "big-payload", "", "FROM:TO[:MB]: a payload (55 MB) that FROM serialises byte by byte after its compute")
	fs.IntVar(&o.dropPermille, "debug-drop", 0, "per mille of kernel records to drop on purpose (raises --max-loss unless given)")
	fs.StringVar(&o.refpipe, "refpipe", "", "the reference pipeline; default: refpipe beside this program")
	o.add(fs)
	fs.BoolVar(&o.failInconclusive, "fail-inconclusive", false, "exit with 5 when the verdict is inconclusive")
	if err := parse(fs, args, 0, "no argument"); err != nil {
		return nil, err
	}
	if o.dropPermille > 0 && !fs.Changed("max-loss") {
		o.maxLoss += 2 * float64(o.dropPermille) / 1000
	}
	if o.load.Rate > 0 && !fs.Changed("concurrency") {
		o.load.Concurrency = 0
	}
	o.inconclusive, o.load.Seed = !o.failInconclusive, o.seed
	return o, o.check()
}

func (o *demoOptions) check() error {
	switch {
	case o.dir == "":
		return usagef("no directory given: use -o DIR")
	case o.impl != "c" && o.impl != "python":
		return usagef("--engine-impl %.20q: want c or python", o.impl)
	case o.load.N < 1:
		return usagef("-n %d: want at least 1", o.load.N)
	case o.dropPermille < 0 || o.dropPermille > 1000:
		return usagef("--debug-drop %d: want 0 to 1000", o.dropPermille)
	}
	if _, err := timelineOptions(o.stages...); err != nil {
		return err // before anything is started
	}
	if o.refpipe != "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find refpipe: %w; name it with --refpipe PATH", err)
	}
	o.refpipe = filepath.Join(filepath.Dir(self), "refpipe")
	return nil
}

// createDemo makes the directory and refuses one that holds results: a run is never overwritten.
func createDemo(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create demo directory: %w", err)
	}
	for _, name := range []string{"run", "report.json", "accuracy.json", "truth.jsonl"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return usagef("%s already holds %s: give a new directory, or remove it", dir, name)
		}
	}
	return nil
}

// measure records a load on the pipeline, writes the report, stops the pipeline, which then writes
// its truth, and compares.
func (o *demoOptions) measure(ctx context.Context, stderr io.Writer) (*export.Report, *Accuracy, error) {
	truthPath := filepath.Join(o.dir, "truth.jsonl")
	p, err := startPipeline(ctx, o, truthPath)
	if err != nil {
		return nil, nil, err
	}
	r, err := o.record(ctx, p, stderr)
	if err := errors.Join(err, p.stop()); err != nil {
		return nil, nil, err
	}
	a, err := accuracyOf(filepath.Join(o.dir, "report.json"), truthPath, false, false)
	if err != nil {
		return nil, nil, err
	}
	return r, a, writeFile(filepath.Join(o.dir, "accuracy.json"), nil, func(w io.Writer) error { return writeAccuracy(w, a, true) })
}

func (o *demoOptions) record(ctx context.Context, p *pipeline, stderr io.Writer) (*export.Report, error) {
	o.load.URL = p.ready.URL
	dir := filepath.Join(o.dir, "run")
	pids := make([]uint32, 0, len(p.ready.PIDs))
	for _, pid := range p.ready.PIDs {
		pids = append(pids, uint32(pid))
	}
	_, err := profileRun(ctx, profileOptions{
		Record: recordOptions{PIDs: pids, OutDir: dir, DebugDropPermill: uint32(o.dropPermille)}, Load: o.load,
	}, stderr)
	if err != nil {
		return nil, fmt.Errorf("profile the pipeline: %w", err)
	}
	r, err := o.analyse(dir)
	if err != nil {
		return nil, err
	}
	return r, writeFile(filepath.Join(o.dir, "report.json"), nil, func(w io.Writer) error { return export.JSON(w, r) })
}

// demoResult is what --json prints.
type demoResult struct {
	Requests   demoRequests   `json:"requests"`
	Identity   IdentityShares `json:"identity"`
	Timing     TimingShares   `json:"timing"`
	Accuracy   Figures        `json:"accuracy"`
	Loss       demoLoss       `json:"loss"`
	Bottleneck demoBottleneck `json:"bottleneck"`
}

type demoRequests struct {
	Planned int `json:"planned"`
	Sent    int `json:"sent"`
	Success int `json:"success"`
}

// demoLoss counts the records that the ledger says are missing, and their share of all.
type demoLoss struct {
	Events uint64   `json:"events"`
	Share  stat.Num `json:"share"`
}

type demoBottleneck struct {
	Kind   string `json:"kind"`
	Where  string `json:"where"`
	Cause  string `json:"cause"`
	Reason string `json:"reason"`
}

func (o *demoOptions) print(w io.Writer, r *export.Report, a *Accuracy) error {
	if !o.json {
		if err := o.write(w, r); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		return accuracyText(w, a)
	}
	lost, share := lossShare(r.Result)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(demoResult{
		Requests: countSent(o.load.N, r), Identity: a.Identity, Timing: a.Timing, Accuracy: a.Figures,
		Loss:       demoLoss{lost, stat.Num(share)},
		Bottleneck: demoBottleneck{r.Verdict.Kind, r.Verdict.Where, r.Verdict.Cause, r.Verdict.Reason},
	})
}

func countSent(planned int, r *export.Report) demoRequests {
	n := demoRequests{Planned: planned}
	for _, q := range r.Result.All() {
		c := q.Client
		if c == nil {
			continue
		}
		if c.SentNS != nil {
			n.Sent++
		}
		if c.State == run.StateSuccess {
			n.Success++
		}
	}
	return n
}
