// Command stageline attaches to the running processes of a multi-stage inference engine and says,
// for every request, where its time went.
//
// Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 error, 2 usage, 3 missing
// privilege or kernel feature, 4 more records lost than allowed, 5 the verdict is inconclusive.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/export"
)

// command is one subcommand. Its run prints results to stdout and returns what went wrong; main
// prints the error and turns it into an exit code (see exit.go).
type command struct {
	name    string
	oneLine string
	orderly bool // ends its work by itself when the context does; any other is ended where it is
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

var commands = []command{
	{"doctor", "what this host allows, and how to mend what is missing", false, runDoctor},
	{"ps", "engines found, their processes and stages", false, runPS},
	{"record", "attach to running processes and record them", true, runRecord},
	{"profile", "record while sending a load, then report", true, runProfile},
	{"load", "send a planned load and record its times", true, runLoad},
	{"overhead", "what recording costs an engine: loads with and without it, and with other tools, in blocks", true, runOverhead},
	{"report", "bottleneck verdict, stages, hops, joins, requests and losses of a run", false, runReport},
	{"export", "the timeline of a run for ui.perfetto.dev", false, runExport},
	{"open", "show the timeline of a run in ui.perfetto.dev", true, runOpen},
	{"dump", "the records of a run, one JSON object a line", false, runDump},
	{"seal", "complete a run and list its hashes", false, runSeal},
	{"demo", "reference pipeline, load, recording, report and accuracy in one go", true, runDemo},
	{"accuracy", "compare a report with the truth that an engine logged itself", false, runAccuracy},
}

// unlisted are commands that other commands and scripts use.
var unlisted = []command{
	{"mock", "server of known times, to certify load generators", true, runMock},
}

func main() { os.Exit(dispatch(catchSignals(), os.Args[1:], os.Stdout, os.Stderr)) }

// catchSignals returns a context that ends with the first signal that asks this process to end.
func catchSignals() context.Context {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	// Where nobody reads any more, as behind | head, a write fails instead of ending this process: a
	// recording and a load are completed first. Not Ignore, which programs started here would inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	// The first signal ends the work in order; with the handler gone, a later one kills. Not at once:
	// timeout(1) and some shells send the first to the process and to its group.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	return ctx
}

// dispatch runs one command line and returns its exit code.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		printHelp(stderr)
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "--help":
		return help(ctx, args[1:], stdout, stderr)
	case "version", "--version", "-v":
		printVersion(stdout)
		return exitOK
	}
	c := find(args[0])
	if c == nil {
		fmt.Fprintf(stderr, "stageline: no subcommand %.40q; `stageline help` lists them\n", args[0])
		return exitUsage
	}
	if !c.orderly {
		defer endWith(ctx, c.name, stderr)()
	}
	err := c.run(ctx, args[1:], stdout, stderr)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return exitOK
	}
	if isUnread(err) {
		signal.Reset(syscall.SIGPIPE)
		_ = syscall.Kill(os.Getpid(), syscall.SIGPIPE) // quietly, as any program in a pipe
	}
	fmt.Fprintf(stderr, "stageline %s: %s\n", c.name, export.Lines(err.Error())) // it may hold names of others
	return exitCode(err)
}

// endWith ends this process as soon as ctx does, until the returned function is called.
func endWith(ctx context.Context, name string, stderr io.Writer) (leave func() bool) {
	return context.AfterFunc(ctx, func() {
		partial.remove()
		fmt.Fprintf(stderr, "stageline %s: stopped: %v\n", name, context.Cause(ctx))
		os.Exit(exitError)
	})
}

// isUnread: the reader of the results has gone.
func isUnread(err error) bool {
	var p *fs.PathError
	return errors.Is(err, syscall.EPIPE) && errors.As(err, &p) && p.Path == os.Stdout.Name()
}

func find(name string) *command {
	for _, list := range [][]command{commands, unlisted} {
		for i := range list {
			if list[i].name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// help prints the list of subcommands, or what one of them says of itself.
func help(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		printHelp(stdout)
		return exitOK
	}
	return dispatch(ctx, []string{args[0], "--help"}, stdout, stderr)
}

func printHelp(w io.Writer) {
	fmt.Fprint(w, "usage: stageline COMMAND [options]\n\nSays for every request where its time went, stage by stage and hop by hop, without a\nchange to the engine or a restart of it.\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-9s %s\n", c.name, c.oneLine)
	}
	fmt.Fprint(w, "\n`stageline help COMMAND` says more. Exit codes: 0 done, 1 error, 2 usage, 3 missing privilege\nor kernel feature, 4 more records lost than allowed, 5 the verdict is inconclusive.\n")
}

func printVersion(w io.Writer) {
	t := run.ThisTool()
	modified := ""
	if t.Modified {
		modified = " (modified)"
	}
	fmt.Fprintf(w, "stageline %s %s%s %s, run schema %s\n", t.Version, t.Revision, modified, t.Go, run.SchemaVersion)
}
