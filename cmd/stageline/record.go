package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/stageline/stageline/collector/shadow"
)

const recordUsage = `usage: stageline record -p PID[,PID…] [-d 30s] -o RUN
       stageline record --match ENGINE [-d 30s] -o RUN
       stageline record -o RUN -- COMMAND [ARG…]

Records what the processes send, receive, share and wait for, until the duration
ends, they exit, or Ctrl-C. With --match all processes of an engine that ps knows are
recorded, also those started later, as after a restart, until the duration ends or
Ctrl-C. The run is sealed at the end.
`

// recordFlags are shared by record and profile.
type recordFlags struct {
	pids      []string
	match     string
	out       string
	duration  time.Duration
	noFollow  bool
	ring      uint32
	capture   uint32
	debugDrop uint32
	shadow    bool
	interval  time.Duration
	noWatch   bool
	unsealed  bool
}

func (f *recordFlags) add(fs *pflag.FlagSet) {
	fs.StringSliceVarP(&f.pids, "pid", "p", nil, "process to attach to (repeatable, comma-separated)")
	fs.StringVar(&f.match, "match", "", "in place of -p: attach to all processes of this engine, also to those that are started later")
	fs.StringVarP(&f.out, "output", "o", "", "run directory to create")
	fs.DurationVarP(&f.duration, "duration", "d", 0, "stop after this long (default: until Ctrl-C)")
	fs.BoolVar(&f.noFollow, "no-follow", false, "leave children of the named processes out")
	fs.Uint32Var(&f.ring, "ring-bytes", 0, "size of the kernel's ring buffer, a power of two (default 64 MiB)")
	fs.Uint32Var(&f.capture, "capture-bytes", 0, "bytes of each call shown to the decoders until the protocol is known (default 8192)")
	fs.Uint32Var(&f.debugDrop, "debug-drop", 0, "drop this many of 1000 records on purpose, to see what a loss does")
	_ = fs.MarkHidden("debug-drop")
	fs.BoolVar(&f.shadow, "shadow-rings", false, "look, read-only, into rings of messages in shared memory for their times and ids; at the default interval two rings took 6 % of a core")
	fs.DurationVar(&f.interval, "shadow-interval", shadow.DefaultInterval, "time between two looks at a ring: where watchpoints do not reach, times are known to within it")
	fs.BoolVar(&f.noWatch, "no-watchpoints", false, "leave the debug registers alone that give the exact times of messages in rings; a debugger may need them")
}

func (f *recordFlags) options() (recordOptions, error) {
	pids, err := parsePIDs(f.pids)
	if err != nil {
		return recordOptions{}, err
	}
	if f.out == "" {
		return recordOptions{}, usagef("name a directory for the run with -o")
	}
	if f.debugDrop > 1000 || f.capture > 8192 {
		return recordOptions{}, usagef("--debug-drop goes to 1000 and --capture-bytes to 8192")
	}
	if r := f.ring; r != 0 && (r < 4096 || r&(r-1) != 0) {
		return recordOptions{}, usagef("--ring-bytes %d: want a power of two of at least 4096", r)
	}
	if f.duration < 0 {
		return recordOptions{}, usagef("--duration %v: want more than 0", f.duration)
	}
	if f.interval < shadow.MinInterval || f.interval > time.Second {
		return recordOptions{}, usagef("--shadow-interval %v: want %v to 1s", f.interval, shadow.MinInterval)
	}
	var m *matcher
	if f.match != "" {
		if len(pids) > 0 {
			return recordOptions{}, usagef("name the processes with -p or --match, not both")
		}
		if m, err = newMatcher(f.match); err != nil {
			return recordOptions{}, err
		}
		if pids, err = m.first(); err != nil {
			return recordOptions{}, err
		}
	}
	return recordOptions{Match: m, ShadowRings: f.shadow, ShadowInterval: f.interval, NoWatchpoints: f.noWatch, PIDs: pids, OutDir: f.out, NoFollow: f.noFollow, RingBytes: f.ring, CaptureBytes: f.capture, DebugDropPermill: f.debugDrop}, nil
}

func parsePIDs(list []string) ([]uint32, error) {
	var out []uint32
	for _, s := range list {
		n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 31)
		if err != nil || n == 0 {
			return nil, usagef("%q is not a PID", s)
		}
		if n == uint64(os.Getpid()) {
			return nil, usagef("a recorder cannot record itself")
		}
		if !slices.Contains(out, uint32(n)) {
			out = append(out, uint32(n))
		}
	}
	return out, nil
}

func sortedPIDs[V any](m map[uint32]V) []uint32 {
	out := make([]uint32, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func runRecord(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f recordFlags
	fs := newFlags("record", recordUsage, stdout)
	f.add(fs)
	fs.BoolVar(&f.unsealed, "unsealed", false, "leave the run as it is when the recording ends; complete it with: stageline seal")
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	command := fs.Args()
	if (len(command) > 0) == (len(o.PIDs) > 0) {
		return usagef("name the processes with -p or --match, or a command after --, not both")
	}
	var child *startedCommand
	if len(command) > 0 {
		if child, err = startStopped(command, stdout, stderr); err != nil {
			return err
		}
		defer child.kill()
		o.PIDs = []uint32{child.pid()}
	}
	rec, err := startRecorder(o, stderr)
	if err != nil {
		return err
	}
	if child != nil {
		child.release()
	}
	fmt.Fprintf(stderr, "stageline: recording %d process(es) into %s\n", rec.begun, o.OutDir)
	wctx := ctx
	if f.duration > 0 {
		var cancel context.CancelFunc
		wctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	rec.wait(wctx)
	return finishRecording(rec, o.OutDir, !f.unsealed, stdout, stderr)
}

// finishRecording stops, seals, and says what the run holds.
func finishRecording(rec *recorder, dir string, seal bool, stdout, stderr io.Writer) error {
	stats, err := rec.stop()
	rec.sayEnded(stderr)
	if err != nil {
		return fmt.Errorf("record into %s: %w; what was recorded before is kept, complete it with: stageline seal %s", dir, err, dir)
	}
	if seal {
		if _, err := sealRun(dir); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "%s: %d records, %d endpoints; next: stageline report %s\n", dir, stats.Records, stats.Endpoints, dir)
	return nil
}

// startedCommand is a child that waits, stopped, until the probes are on.
type startedCommand struct {
	cmd  *exec.Cmd
	gate *os.File
}

// startStopped starts a shell that reads one line from a pipe before it becomes the command.
func startStopped(argv []string, stdout, stderr io.Writer) (*startedCommand, error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `read -r _ <&3; exec 3<&-; exec "$@"`, "sh"}, argv...)...)
	cmd.Stdout, cmd.Stderr, cmd.Stdin = stdout, stderr, os.Stdin
	cmd.ExtraFiles = []*os.File{r}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return &startedCommand{cmd: cmd, gate: w}, nil
}

func (c *startedCommand) pid() uint32 { return uint32(c.cmd.Process.Pid) }

func (c *startedCommand) release() {
	fmt.Fprintln(c.gate)
	c.gate.Close()
	c.gate = nil
	go c.cmd.Wait()
}

// kill ends a command that was never let go.
func (c *startedCommand) kill() {
	if c.gate != nil {
		c.gate.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}
