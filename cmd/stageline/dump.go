package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/stageline/stageline/collector/run"
)

const dumpUsage = `usage: stageline dump RUN

Prints the records of a run, one JSON object a line, in recording order, each with its kind. For
looking under a report, and for other programs.

`

// dumper is a sink that prints. It keeps the first error.
type dumper struct {
	e   *json.Encoder
	err error
}

func (d *dumper) put(kind string, rec any) {
	if d.err == nil {
		d.err = d.e.Encode(struct {
			Kind   string `json:"kind"`
			Record any    `json:"record"`
		}{kind, rec})
	}
}

func (d *dumper) Endpoint(r *run.Endpoint) { d.put("endpoint", r) }
func (d *dumper) IO(r *run.IO)             { d.put("io", r) }
func (d *dumper) Message(r *run.Message)   { d.put("message", r) }
func (d *dumper) Gap(r *run.Gap)           { d.put("gap", r) }
func (d *dumper) Base(r *run.Base)         { d.put("base", r) }
func (d *dumper) Shm(r *run.Shm)           { d.put("shm", r) }
func (d *dumper) OffCPU(r *run.OffCPU)     { d.put("offcpu", r) }
func (d *dumper) Proc(r *run.Proc)         { d.put("proc", r) }
func (d *dumper) Net(r *run.Net)           { d.put("net", r) }
func (d *dumper) Loss(r *run.Loss)         { d.put("loss", r) }
func (d *dumper) Note(r *run.Note)         { d.put("note", r) }

// runDump is `stageline dump`.
func runDump(_ context.Context, args []string, stdout, _ io.Writer) error {
	fs := newFlags("dump", dumpUsage, stdout)
	if err := parse(fs, args, 1, "RUN"); err != nil {
		return err
	}
	r, err := run.Open(fs.Arg(0), run.OpenOptions{})
	if err != nil {
		return fmt.Errorf("open run: %w", err)
	}
	defer r.Close()
	b := bufio.NewWriter(stdout)
	d := &dumper{e: json.NewEncoder(b)}
	if err := r.Replay(d); err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	if d.err == nil {
		d.err = b.Flush()
	}
	if d.err != nil {
		return fmt.Errorf("print records: %w", d.err)
	}
	return nil
}
