package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/export"
)

const sealUsage = `usage: stageline seal RUN [--json] [--keep-spool]

Completes a run: cuts what a killed recorder left unfinished (and says how much), writes the
stage events, turns the records into Parquet, writes the hashes of all files to SHA256SUMS, and
takes away the right to write. A recorder that ended by itself has done this already. Sealing
that was interrupted, or for which the disk had no space, can be repeated.

`

// runSeal is `stageline seal`.
func runSeal(_ context.Context, args []string, stdout, _ io.Writer) error {
	fs := newFlags("seal", sealUsage, stdout)
	asJSON := fs.Bool("json", false, "print one JSON object")
	keep := fs.Bool("keep-spool", false, "leave the records as they were recorded; needs no further space")
	if err := parse(fs, args, 1, "RUN"); err != nil {
		return err
	}
	var options []run.SealOption
	if *keep {
		options = append(options, run.KeepSpool())
	}
	r, err := sealRun(fs.Arg(0), options...)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(stdout).Encode(r)
	}
	how := "the recorder had ended by itself"
	if r.Killed {
		how = "the recorder was killed"
	}
	_, err = fmt.Fprintf(stdout, "sealed run %s: %d files, %d bytes, records as %s; %s; %d bytes of records and %d of requests were torn and cut\n",
		export.Printable(r.RunID), r.Files, r.Bytes, r.Kernel, how, r.Spool.TornBytes, r.Spool.TornRequestBytes)
	return err
}

// sealRun completes a run and has the analysis write its stage events.
func sealRun(dir string, options ...run.SealOption) (run.SealReport, error) {
	t := run.ThisTool()
	return run.Seal(dir, append(options, run.WithEvents(t.Name+" "+t.Version+" "+t.Revision, func(r *run.Run, w io.Writer) error {
		o, err := timelineOptions()
		if err != nil {
			return err
		}
		events := export.NewEventWriter(w, &r.Meta)
		o.Done = events.Request // a long run's requests are not kept
		if _, err := timelineOf(r, o); err != nil {
			return err
		}
		return events.Close()
	}))...)
}
