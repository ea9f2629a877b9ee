package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/loadgen"
)

const profileUsage = `usage: stageline profile -u URL -p PID[,PID…] [--concurrency C | --rate R] -n N -o RUN

Attaches to the processes, sends the load, and reports where each request's time
went. The engine is neither restarted nor changed.

  sudo stageline profile -u http://127.0.0.1:8000 -p $(pgrep -d, -f serve) -c 8 -n 300 -o out/run
`

// settle is how long after the last reply the recorder still listens: acknowledgements and releases
// trail the reply.
const settle = 300 * time.Millisecond

// profileOptions are a recording and the load sent during it.
type profileOptions struct {
	Record recordOptions
	Load   loadgen.Config
	// Attached, if set, is called once the probes are on and before the load starts.
	Attached func()
}

// profileRun records while it loads and leaves a sealed run in Record.OutDir.
func profileRun(ctx context.Context, o profileOptions, stderr io.Writer) (loadgen.Summary, error) {
	var sum loadgen.Summary
	o.Record.RunID = run.NewRunID(time.Now())
	o.Load.RunID = o.Record.RunID
	plan, err := loadgen.NewPlan(o.Load)
	if err != nil {
		return sum, usagef("%w", err)
	}
	o.Record.IDs, o.Record.Extra = plan.IDs(), plan.Options()
	o.Record.SharesProcess = true
	rec, err := startRecorder(o.Record, stderr)
	if err != nil {
		return sum, err
	}
	if o.Attached != nil {
		o.Attached()
	}
	makeRoom()
	sum, errLoad := loadgen.Run(ctx, plan, func(r *run.Request) { _ = rec.w.Request(r) }) // its error is kept for Close
	errLoad = errors.Join(errLoad, writeVerified(rec.w, &sum))
	quiet, cancel := context.WithTimeout(context.Background(), settle)
	rec.wait(quiet)
	cancel()
	_, errStop := rec.stop()
	rec.sayEnded(stderr)
	if errStop != nil {
		return sum, fmt.Errorf("record into %s: %w; what was recorded before is kept, complete it with: stageline seal %s", o.Record.OutDir, errStop, o.Record.OutDir)
	}
	_, errSeal := sealRun(o.Record.OutDir)
	return sum, errors.Join(errLoad, errSeal)
}

func runProfile(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f recordFlags
	fs := newFlags("profile", profileUsage, stdout)
	f.add(fs)
	config := loadFlags(fs)
	var rf reportFlags
	rf.add(fs)
	fs.BoolVar(&rf.inconclusive, "accept-inconclusive", true, "exit with 0 also when the verdict is inconclusive")
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	ro, err := f.options()
	if err != nil {
		return err
	}
	if _, err := timelineOptions(rf.stages...); err != nil {
		return err // before anything is recorded
	}
	if len(ro.PIDs) == 0 {
		return usagef("name the engine's processes with -p")
	}
	lc, err := config()
	if err != nil {
		return usagef("%w", err)
	}
	lc.Duration = f.duration
	sum, err := profileRun(ctx, profileOptions{Record: ro, Load: lc}, stderr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "stageline: %d of %d requests succeeded; run in %s\n", sum.Success, sum.Planned, ro.OutDir)
	for _, why := range sum.Generator.Because {
		fmt.Fprintf(stderr, "stageline: the load is invalid: %s\n", why)
	}
	r, err := rf.analyse(ro.OutDir)
	if err != nil {
		return err
	}
	if err := rf.write(stdout, r); err != nil {
		return err
	}
	if sum.AllFailed() {
		return fmt.Errorf("none of %d requests to %s succeeded: %s", sum.Planned, withoutQuery(lc.URL), sum.FirstError)
	}
	return rf.judge(r)
}

// withoutQuery leaves out the part of a URL that may hold a key.
func withoutQuery(url string) string {
	s, _, _ := strings.Cut(url, "?")
	return s
}
