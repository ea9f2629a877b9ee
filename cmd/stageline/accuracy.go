package main

import (
	"context"
	"encoding/json"
	"io"
)

const accuracyUsage = `usage: stageline accuracy REPORT.json|RUN --truth FILE [--json] [--recorder]

Compares a report with the truth that an engine logged itself. The report is complete before
the truth is opened.

  visits  match by request (id or alias), stage (process, then name) and chunk
  hops    match by request, ends, type and chunk, then in order of time
          a segment in shared memory belongs to a message between the same ends
  errors  absolute; what the report lacks is an infinite error (counted as missing)
  hop     errors of send and of receive, pooled
  coverage  share of truth's ready, start and finish inside [lo, hi]; lacking ones are not inside
  joins   wrong when the set of inputs or the last of them differs; not known when the report does not say
  set apart  boundaries inside whose [lo, hi] a thread of the causal chain was runnable for 100 µs

With --recorder, stamps that the truth does not have are skipped instead: an engine's own
recorder does not stamp everything. With --within, for a recorder that was attached to an engine
at work, visits and hops that did not happen wholly between the first and the last record are
matched but not judged, nor is what the report lacks of requests that it marks as in flight at
attach, unless their first stamp is a second younger: visits, hops, their times, inputs of joins.
What is not judged is counted, and what the report claims is always judged.

`

// runAccuracy is `stageline accuracy`.
func runAccuracy(_ context.Context, args []string, stdout, _ io.Writer) error {
	fs := newFlags("accuracy", accuracyUsage, stdout)
	path := fs.String("truth", "", "the engine's own log, one JSON object a line")
	asJSON := fs.Bool("json", false, "print one JSON object")
	recorder := fs.Bool("recorder", false, "skip stamps that the truth does not have")
	within := fs.Bool("within", false, "do not judge what lies partly outside the recording")
	output := fs.StringP("output", "o", "", "file to write to; default stdout")
	if err := parse(fs, args, 1, "REPORT.json or RUN"); err != nil {
		return err
	}
	if *path == "" {
		return usagef("no truth given: use --truth FILE")
	}
	a, err := accuracyOf(fs.Arg(0), *path, *recorder, *within)
	if err != nil {
		return err
	}
	return writeFile(*output, stdout, func(w io.Writer) error { return writeAccuracy(w, a, *asJSON) })
}

func writeAccuracy(w io.Writer, a *Accuracy, asJSON bool) error {
	if !asJSON {
		return accuracyText(w, a)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(a)
}
