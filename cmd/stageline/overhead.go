package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/loadgen"
)

const overheadUsage = `usage: stageline overhead -u URL -p PID[,PID…] (-c C | --rate R) (-n N | -d DURATION) [--pairs 10]

Says what recording costs an engine: sends the same load again and again, with a
recorder attached and without, in pairs of random order, and as many pairs without a
recorder at all, which show the noise. The recorder is a process of its own, as with
"stageline record"; nothing that it records is kept.

  sudo stageline overhead -u http://127.0.0.1:8000 -p PID -c 8 -n 100 --model NAME

Exits with 5 when the noise does not allow an answer: the interval of the throughput
is wider than --tolerance to the bad side and still holds "no effect", or the pairs
without a recorder differ among themselves.

`

// overheadOptions are what is compared, and how often.
type overheadOptions struct {
	pids      []uint32
	load      loadgen.Config
	pairs     int
	noise     int
	warmup    int
	seed      uint64
	tolerance float64
	asJSON    bool
	instead   string
	settle    time.Duration
}

// what is compared with nothing.
func (o *overheadOptions) what() string {
	if o.instead != "" {
		return o.instead
	}
	return "recording"
}

// runOverhead is `stageline overhead`.
func runOverhead(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := overheadFlags(args, stdout)
	if err != nil {
		return err
	}
	if o.instead == "" {
		if err := attach.Check(); err != nil {
			return err
		}
	}
	for _, pid := range o.pids {
		if err := attach.Exists(pid); err != nil {
			return err
		}
	}
	c, err := o.compare(ctx, stderr)
	if err != nil {
		return err
	}
	if o.asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(c)
	} else {
		err = c.text(stdout)
	}
	if err == nil && !c.Conclusive {
		err = withExit(exitInconclusive, fmt.Errorf("%s", c.Sentence))
	}
	return err
}

func overheadFlags(args []string, stdout io.Writer) (*overheadOptions, error) {
	o := &overheadOptions{}
	fs := newFlags("overhead", overheadUsage, stdout)
	pids := fs.StringSliceP("pid", "p", nil, "process of the engine; its children are counted as well (repeatable, comma-separated)")
	config := loadFlags(fs)
	duration := fs.DurationP("duration", "d", 0, "length of each load, instead of -n")
	fs.IntVar(&o.pairs, "pairs", 10, "pairs of loads with and without a recorder")
	fs.IntVar(&o.noise, "noise-pairs", -1, "pairs of loads without one (default: as many)")
	fs.IntVar(&o.warmup, "warmup-loads", 1, "loads before the first pair that do not count")
	fs.Float64Var(&o.tolerance, "tolerance", 0.05, "share of the throughput that may stay in doubt")
	fs.StringVar(&o.instead, "instead", "", "shell command that runs in place of the recorder until it gets SIGINT; {{pids}} is replaced by the processes, children too")
	fs.DurationVar(&o.settle, "instead-settle", time.Second, "time that such a command is given to attach")
	fs.BoolVar(&o.asJSON, "json", false, "print one JSON object")
	if err := parse(fs, args, 0, "no argument"); err != nil {
		return nil, err
	}
	var err error
	if o.pids, err = parsePIDs(*pids); err != nil {
		return nil, err
	}
	if len(o.pids) == 0 {
		return nil, usagef("name the engine's processes with -p")
	}
	if o.load, err = config(); err != nil {
		return nil, usagef("%w", err)
	}
	o.load.Duration = *duration
	o.seed = o.load.Seed
	if o.noise < 0 {
		o.noise = o.pairs
	}
	switch {
	case o.pairs < 1 || o.pairs > 1000 || o.noise > 1000:
		return nil, usagef("--pairs %d, --noise-pairs %d: want 1 to 1000", o.pairs, o.noise)
	case o.warmup < 0 || o.warmup > 100:
		return nil, usagef("--warmup-loads %d: want 0 to 100", o.warmup)
	case o.tolerance <= 0 || o.tolerance >= 1:
		return nil, usagef("--tolerance %v: want more than 0 and less than 1", o.tolerance)
	}
	_, err = loadgen.NewPlan(o.load)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return o, nil
}

// compare sends all loads.
func (o *overheadOptions) compare(ctx context.Context, stderr io.Writer) (*Comparison, error) {
	dir, err := os.MkdirTemp("", "stageline-overhead-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the runs: %w", err)
	}
	defer os.RemoveAll(dir)
	rounds := planRounds(o.pairs, o.noise, o.seed)
	for range o.warmup {
		if _, err := o.round(ctx, dir, false); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	for i := range rounds {
		for k := range rounds[i].loads {
			l := &rounds[i].loads[k]
			got, err := o.round(ctx, dir, l.Recorded)
			if err != nil {
				return nil, fmt.Errorf("load %d of pair %d: %w", k+1, i+1, err)
			}
			got.Recorded = l.Recorded
			*l = *got
		}
		fmt.Fprintf(stderr, "stageline: pair %d of %d done, %.0f s\n", i+1, len(rounds), time.Since(begin).Seconds())
	}
	return newComparison(rounds, o.what(), o.tolerance), nil
}
