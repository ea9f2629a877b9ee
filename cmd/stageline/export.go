package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/pflag"
	"github.com/stageline/stageline/export"
)

const exportUsage = `usage: stageline export RUN -o FILE [--from S] [--to S] [--last N]

Writes a run in a format of other programs. The extension of FILE says which:

  .pftrace, .perfetto-trace   timeline for https://ui.perfetto.dev and trace_processor;
                              with .gz behind it compressed, which both open as well

A process for each stage, in it a lane of requests with their waits and service, hops as
arrows, shared memory, and counters. Names and annotations are explained in the README.

  stageline export out/run -o run.pftrace
  stageline export out/run -o part.pftrace.gz --from 12 --to 14.5
  stageline export out/run -o part.pftrace --last 200

`

// manySlices is the size from which the UI gets slow: about 8 s and 550 MB for each million.
const manySlices = 2_000_000

// timelineFlags cut a part out of a run.
type timelineFlags struct {
	from, to float64 // seconds since the first record
	last     int
	stages   []string
}

func (f *timelineFlags) add(fs *pflag.FlagSet) {
	fs.Float64Var(&f.from, "from", 0, "only requests under way after so many seconds of the recording")
	fs.Float64Var(&f.to, "to", 0, "only requests under way before so many seconds of the recording; 0: its end")
	fs.IntVar(&f.last, "last", 0, "only the last N requests; 0: all")
	fs.StringArrayVar(&f.stages, "stage", nil, "name a stage yourself: NAME=PATTERN of a command line, socket path or PID (repeatable)")
}

func (f *timelineFlags) check() error {
	if f.last < 0 {
		return usagef("--last %d: want a number of requests, or 0 for all", f.last)
	}
	// Up to a hundred years, so that nanoseconds do not overflow; NaN compares false.
	if !(f.from >= 0 && f.from < 3e9) || !(f.to >= 0 && f.to < 3e9) || f.to != 0 && f.to <= f.from {
		return usagef("--from %g --to %g: want seconds since the begin of the recording, the later last", f.from, f.to)
	}
	return nil
}

// options turns seconds since the first record into the clock of the records.
func (f *timelineFlags) options(r *export.Report) export.PerfettoOptions {
	o := export.PerfettoOptions{Last: f.last}
	if f.from > 0 {
		o.FromNS = r.Result.FromNS + int64(math.Round(f.from*1e9))
	}
	if f.to > 0 {
		o.ToNS = r.Result.FromNS + int64(math.Round(f.to*1e9))
	}
	return o
}

// report analyses the run that is to be drawn.
func (f *timelineFlags) report(dir string) (*export.Report, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	o, err := timelineOptions(f.stages...)
	if err != nil {
		return nil, err
	}
	o.Store = &requestStore{}
	r, err := analyse(dir, o)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// exportFormat is what the extension of a file asks for.
func exportFormat(path string) (compress bool, err error) {
	name, compress := strings.CutSuffix(path, ".gz")
	if strings.HasSuffix(name, ".pftrace") || strings.HasSuffix(name, ".perfetto-trace") {
		return compress, nil
	}
	return false, usagef("-o %q: no format has this extension; there are .pftrace and .perfetto-trace, each also with .gz", path)
}

// runExport is `stageline export`.
func runExport(_ context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("export", exportUsage, stdout)
	var f timelineFlags
	output := fs.StringP("output", "o", "", "file to write to; its extension says the format")
	f.add(fs)
	if err := parse(fs, args, 1, "RUN"); err != nil {
		return err
	}
	if *output == "" {
		return usagef("where to write to is not said: use -o FILE.pftrace")
	}
	compress, err := exportFormat(*output)
	if err != nil {
		return err
	}
	r, err := f.report(fs.Arg(0))
	if err != nil {
		return err
	}
	var stats export.PerfettoStats
	err = writeFile(*output, stdout, func(w io.Writer) error {
		stats, err = writePerfetto(w, r, f.options(r), compress)
		return err
	})
	if err != nil {
		return err
	}
	noteTimeline(stderr, *output, &stats)
	return nil
}

func writePerfetto(w io.Writer, r *export.Report, o export.PerfettoOptions, compress bool) (export.PerfettoStats, error) {
	if !compress {
		return export.Perfetto(w, r, o)
	}
	z := gzip.NewWriter(w)
	stats, err := export.Perfetto(z, r, o)
	if err = errors.Join(err, z.Close()); err != nil {
		return stats, fmt.Errorf("compress timeline: %w", err)
	}
	return stats, nil
}

// noteTimeline says what was drawn, and what was drawn otherwise than the reader would expect.
func noteTimeline(w io.Writer, name string, s *export.PerfettoStats) {
	fmt.Fprintf(w, "%s: %d requests, %d slices, %d instants, %d flows, %d counter values; %d bytes before compression\n",
		name, s.Requests, s.Slices, s.Instants, s.Flows, s.Counters, s.Bytes)
	for _, c := range []struct {
		n    uint64
		what string
	}{
		{s.FlowsLeftOut, "hops have no arrow: their receive is estimated before their send"},
		{s.Negative, "parts of visits are left out: their end is estimated before their begin"},
		{s.Apart, "parts of visits stand beside their visit: they are estimated to overlap"},
		{s.Extended, "visits are drawn longer than arrival to departure: a part of them is estimated to end later"},
	} {
		if c.n > 0 {
			fmt.Fprintf(w, "%d %s\n", c.n, c.what)
		}
	}
	if s.Slices+s.Instants > manySlices {
		fmt.Fprintf(w, "more than %d slices and instants are slow in the UI: cut with --from S --to S, or --last N requests\n", manySlices)
	}
	if s.Requests == 0 {
		fmt.Fprintln(w, "no request lies in this part of the run; leave out --from, --to and --last to see all")
	}
}
