package main

import (
	"context"
	"io"

	"github.com/spf13/pflag"
	"github.com/stageline/stageline/export"
)

const reportUsage = `usage: stageline report RUN [--detail | --json] [-o FILE]

Prints the loss ledger (when records are missing), the bottleneck verdict, and the tables
of stages, load, hand-offs, joins and requests. The run may still be unsealed.

  stageline report out/run
  stageline report out/run --json -o report.json

Exits with 4 when more records are lost than --max-loss allows, and with 5 when the verdict
is inconclusive; the report is complete in both cases.

`

// reportFlags are the options of every command that ends in a report.
type reportFlags struct {
	json         bool
	slowest      int
	detail       bool
	maxLoss      float64
	inconclusive bool // accepted
	stages       []string
}

func (f *reportFlags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.json, "json", false, "print one JSON object")
	fs.StringArrayVar(&f.stages, "stage", nil, "name a stage yourself: NAME=PATTERN of a command line, socket path or PID (repeatable)")
	fs.IntVar(&f.slowest, "slowest", 10, "requests to list in the text report, slowest first")
	fs.BoolVar(&f.detail, "detail", false, "more tables: service by reason, fan-out, phases of hand-offs, hops by message type")
	fs.Float64Var(&f.maxLoss, "max-loss", 0.001, "share of records that may be lost before the exit code is 4")
}

// analyse builds the report of a run under the user's stage names.
func (f *reportFlags) analyse(dir string) (*export.Report, error) {
	o, err := timelineOptions(f.stages...)
	if err != nil {
		return nil, err
	}
	o.Store = &requestStore{}
	return analyse(dir, o)
}

func (f *reportFlags) write(w io.Writer, r *export.Report) error {
	if f.json {
		return export.JSON(w, r)
	}
	return export.Text(w, r, export.TextOptions{Requests: f.slowest, Detail: f.detail})
}

// judge turns loss and an inconclusive verdict into exit codes, loss first.
func (f *reportFlags) judge(r *export.Report) error {
	if err := checkLoss(r.Result, f.maxLoss); err != nil || f.inconclusive {
		return err
	}
	return checkVerdict(r.Verdict)
}

// runReport is `stageline report`.
func runReport(_ context.Context, args []string, stdout, _ io.Writer) error {
	fs := newFlags("report", reportUsage, stdout)
	var f reportFlags
	f.add(fs)
	fs.BoolVar(&f.inconclusive, "accept-inconclusive", false, "exit with 0 also when the verdict is inconclusive")
	output := fs.StringP("output", "o", "", "file to write to; default stdout")
	if err := parse(fs, args, 1, "RUN"); err != nil {
		return err
	}
	r, err := f.analyse(fs.Arg(0))
	if err != nil {
		return err
	}
	if err := writeFile(*output, stdout, func(w io.Writer) error { return f.write(w, r) }); err != nil {
		return err
	}
	return f.judge(r)
}
