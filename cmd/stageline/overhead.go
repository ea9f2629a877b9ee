package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/loadgen"
)

const overheadUsage = `usage: stageline overhead -u URL -p PID[,PID…] (-c C | --rate R) (-n N | -d DURATION) [--blocks 10] [--with NAME=COMMAND]…

Says what recording costs an engine, and what other tools cost it: sends the same load
again and again in blocks. A block holds, in random order, one load that is recorded,
one for each tool of --with, and two that nothing observes. Each load is compared with
those two of its own block, and the second of them with the first, which shows the
noise. The same requests, with the same ids, come in every load.

  sudo stageline overhead -u http://127.0.0.1:8000 -p PID -c 8 -n 100 --model NAME \
    --with 'strace=exec strace -f -qq -e trace=network,desc -o /dev/null -p {{pids}}'

The recorder is a process of its own, as with "stageline record"; nothing that it
records is kept. The command of --with runs in a shell; {{pids}} becomes the engine's
processes with their children, separated by commas. It is taken to have attached when it
writes a line to its standard output, or, if it writes none, after --settle. Its process
group gets SIGINT after the load, and the next load waits until all of it has ended.
No load begins before its tool has attached: what attaching and ending take is a figure
of its own and in no other. A tool that fails, or whose load fails, is not tried again.

Exits with 5 when the noise does not allow an answer: the interval of the recorded
loads' throughput is wider than --tolerance to the bad side and still holds "no effect",
or the loads that nothing observes differ among themselves.

`

// overheadOptions are what is compared, and how often.
type overheadOptions struct {
	pids      []uint32
	load      loadgen.Config
	blocks    int
	warmup    int
	seed      uint64
	tolerance float64
	asJSON    bool
	tools     []tool
	settle    time.Duration
}

// runOverhead is `stageline overhead`.
func runOverhead(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := overheadFlags(args, stdout)
	if err != nil {
		return err
	}
	if err := attach.Check(); err != nil {
		return err
	}
	for _, pid := range o.pids {
		if err := attach.Exists(pid); err != nil {
			return err
		}
	}
	arms := append([]arm{{name: armBare}, {name: armAgain}, o.recorderArm()}, o.toolArms()...)
	blocks, failed, errRun := o.run(ctx, arms, stderr)
	if len(blocks) == 0 {
		return errRun
	}
	c := newComparison(o.describe(), blocks, arms, failed, o.tolerance)
	if o.asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(c)
	} else {
		err = c.text(stdout)
	}
	if err = errors.Join(errRun, err); err == nil && !c.Conclusive {
		err = withExit(exitInconclusive, fmt.Errorf("%s", c.Sentence))
	}
	return err
}

// describe says what each load is.
func (o *overheadOptions) describe() string {
	l := &o.load
	said := fmt.Sprintf("%g requests/s", l.Rate)
	if l.Rate == 0 {
		said = fmt.Sprintf("c = %d", max(1, l.Concurrency))
	}
	if l.N > 0 {
		said += fmt.Sprintf(", %d requests", l.N)
	} else {
		said += fmt.Sprintf(", %v", l.Duration)
	}
	return said + fmt.Sprintf(" and %d to warm up", l.Warmup)
}

func overheadFlags(args []string, stdout io.Writer) (*overheadOptions, error) {
	o := &overheadOptions{}
	fs := newFlags("overhead", overheadUsage, stdout)
	pids := fs.StringSliceP("pid", "p", nil, "process of the engine; its children are counted as well (repeatable, comma-separated)")
	config := loadFlags(fs)
	duration := fs.DurationP("duration", "d", 0, "length of each load, instead of -n")
	fs.IntVar(&o.blocks, "blocks", 10, "blocks of loads")
	fs.IntVar(&o.warmup, "warmup-loads", 1, "loads before the first block that do not count")
	fs.Float64Var(&o.tolerance, "tolerance", 0.05, "share of the throughput that may stay in doubt")
	with := fs.StringArray("with", nil, "NAME=COMMAND: another tool, in a load of its own in every block (repeatable)")
	fs.DurationVar(&o.settle, "settle", 2*time.Second, "time to attach for a tool that does not say when it has")
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
	if o.tools, err = parseTools(*with); err != nil {
		return nil, err
	}
	o.load.Duration = *duration
	o.seed = o.load.Seed
	if !fs.Changed("warmup") { // the first requests make connections and fill the pipeline
		o.load.Warmup = 2 * max(1, o.load.Concurrency)
	}
	switch {
	case o.blocks < 1 || o.blocks > 1000:
		return nil, usagef("--blocks %d: want 1 to 1000", o.blocks)
	case o.warmup < 1 || o.warmup > 100:
		return nil, usagef("--warmup-loads %d: want 1 to 100", o.warmup)
	case o.tolerance <= 0 || o.tolerance >= 1:
		return nil, usagef("--tolerance %v: want more than 0 and less than 1", o.tolerance)
	case o.settle <= 0 || o.settle > time.Minute:
		return nil, usagef("--settle %v: want more than 0 and at most 1m", o.settle)
	}
	if _, err := loadgen.NewPlan(o.load); err != nil {
		return nil, usagef("%w", err)
	}
	return o, nil
}

// tool is another tool to compare with.
type tool struct{ name, command string }

func parseTools(with []string) ([]tool, error) {
	var out []tool
	for _, w := range with {
		name, command, _ := strings.Cut(w, "=")
		taken := name == armBare || name == armAgain || name == armRecorder ||
			slices.ContainsFunc(out, func(t tool) bool { return t.name == name })
		if name == "" || strings.TrimSpace(command) == "" || taken {
			return nil, usagef("--with %q: want NAME=COMMAND, with a name that no other load has", w)
		}
		out = append(out, tool{name, command})
	}
	return out, nil
}

func (o *overheadOptions) toolArms() (out []arm) {
	for _, t := range o.tools {
		out = append(out, arm{name: t.name, command: t.command, observe: func(ctx context.Context, _ string) (*observer, error) {
			return startTool(ctx, t, withChildren(o.pids), o.settle)
		}})
	}
	return out
}

func (o *overheadOptions) recorderArm() arm {
	return arm{name: armRecorder, records: true, observe: func(ctx context.Context, dir string) (*observer, error) {
		return startRecording(ctx, o.pids, dir)
	}}
}
