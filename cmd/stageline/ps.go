package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/engine"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/export"
)

const psUsage = `usage: stageline ps [PID…] [--json]

Lists the processes of engines that are known by name, with the stage each one holds and the rule
that says so; with PIDs, those processes and their children, whatever they are.

`

// foundProcess is one row of ps.
type foundProcess struct {
	PID     uint32   `json:"pid"`
	PPID    uint32   `json:"ppid"`
	Engine  string   `json:"engine"`
	Stage   string   `json:"stage"`
	Rule    string   `json:"rule"`
	Bound   []string `json:"bound"`
	Command string   `json:"command"`
	IOUring bool     `json:"io_uring"` // it has one: what goes through it is not recorded
}

// runPS is `stageline ps`.
func runPS(_ context.Context, args []string, stdout, _ io.Writer) error {
	fs := newFlags("ps", psUsage, stdout)
	asJSON := fs.Bool("json", false, "print JSON")
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	pids, err := parsePIDs(fs.Args())
	if err != nil {
		return err
	}
	rows, err := findProcesses(pids)
	if err != nil {
		return err
	}
	if *asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(rows)
	}
	if len(rows) == 0 {
		return errors.New("no engine was recognised: name its processes, stageline ps PID…, to see what is known of them")
	}
	tw := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "PID\tPPID\tENGINE\tSTAGE\tNAMED BY\tBOUND\tCOMMAND")
	for _, r := range rows {
		fmt.Fprintf(tw, "%d\t%d\t%s\t%s\t%s\t%d\t%.60s\n", r.PID, r.PPID, r.Engine, export.Printable(r.Stage), r.Rule, len(r.Bound), export.Printable(r.Command))
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print the processes: %w", err)
	}
	return sayIOUring(stdout, rows)
}

// sayIOUring warns of processes that are only seen in part.
func sayIOUring(w io.Writer, rows []foundProcess) error {
	var pids []string
	for _, r := range rows {
		if r.IOUring {
			pids = append(pids, strconv.FormatUint(uint64(r.PID), 10))
		}
	}
	if len(pids) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "warning: %s has an io_uring: what goes through that makes no system call and cannot be recorded\n", strings.Join(pids, ", "))
	return err
}

func findProcesses(pids []uint32) ([]foundProcess, error) {
	named := len(pids) > 0
	for _, p := range pids {
		if err := attach.Exists(p); err != nil {
			return nil, err
		}
		pids = append(pids, attach.Children(p)...)
	}
	if !named {
		var err error
		if pids, err = attach.Processes(); err != nil {
			return nil, err
		}
	}
	var all attach.Describer
	rows := []foundProcess{}
	seen := map[uint32]bool{}
	for _, pid := range pids {
		p, held, err := all.Inspect(pid)
		if err != nil || seen[pid] {
			continue // it ended since
		}
		seen[pid] = true
		if r := describeRow(p, held); named || r.Engine != "generic" {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func describeRow(p *run.Proc, held attach.Held) foundProcess {
	name, rule, eng := engine.StageOf(engine.ProcView{TGID: p.TGID, PPID: p.PPID, Comm: p.Comm, Exe: p.Exe, Cmdline: p.Cmdline, Bound: p.Bound})
	return foundProcess{PID: p.TGID, PPID: p.PPID, Engine: eng, Stage: name, Rule: rule, Bound: p.Bound, Command: strings.Join(p.Cmdline, " "), IOUring: held.IOUring}
}
