package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/stageline/stageline/collector/attach"
)

const doctorUsage = `usage: stageline doctor [--json]

Tries what recording needs on this host, and says how to mend what is missing.
Exit code 3 when recording cannot work.
`

func runDoctor(_ context.Context, args []string, stdout, _ io.Writer) error {
	fs := newFlags("doctor", doctorUsage, stdout)
	asJSON := fs.Bool("json", false, "print JSON")
	if err := parse(fs, args, 0, "no argument"); err != nil {
		return err
	}
	rows := attach.Doctor()
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(rows); err != nil {
			return fmt.Errorf("print the findings: %w", err)
		}
	} else if err := printFindings(stdout, rows); err != nil {
		return err
	}
	if !attach.CanRecord(rows) {
		return &attach.Unsupported{What: "recording cannot work on this host as it is", Fix: "see the rows above", Err: errors.New("a required row failed")}
	}
	return nil
}

func printFindings(w io.Writer, rows []attach.Finding) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		state := "ok"
		switch {
		case r.Untried:
			state = "?"
		case !r.OK && r.Required:
			state = "MISSING"
		case !r.OK:
			state = "absent"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", state, r.Name, r.Detail)
		if r.Fix != "" {
			fmt.Fprintf(tw, "\t\t→ %s\n", r.Fix)
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print the findings: %w", err)
	}
	return nil
}
