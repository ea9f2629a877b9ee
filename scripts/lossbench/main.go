// Lossbench measures how many records a second stageline records before it loses the first:
//
//	go run ./scripts/lossbench bin/stageline DIR
//
// A process of its own sends messages over a unix socket, signals through an eventfd, and both, at
// growing rates; stageline records it with its defaults into a spool in DIR. Each call is one record.
// The last step sends as fast as it can, and a last recording has a ring that is far too small. For
// each recording the calls that the sender counted must be those received and those counted as lost.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

const (
	stepNS    = 1_500_000_000
	rates     = "200000,400000,600000,800000,0"
	smallRing = 64 << 10
)

func main() {
	args := os.Args[1:]
	var err error
	switch {
	case len(args) > 0 && args[0] == "gen":
		err = generate(args[1:])
	case len(args) == 2:
		err = measure(args[0], args[1])
	default:
		err = errors.New("usage: lossbench STAGELINE DIR")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lossbench:", err)
		os.Exit(1)
	}
}

func measure(stageline, dir string) error {
	fmt.Printf("# %d cores, %d threads of load, steps of %.1f s, the last of %.1f s; a record is one call\n", runtime.NumCPU(), threads, stepNS/1e9, stepNS*lastSteps/1e9)
	for _, kind := range []string{kindUnix, kindEvent, kindMixed} {
		if err := measureKind(stageline, dir, kind, kind, rates); err != nil {
			return err
		}
	}
	return measureKind(stageline, dir, kindMixed, "small-ring", "0", "--ring-bytes", fmt.Sprint(smallRing))
}

func measureKind(stageline, dir, kind, name, rates string, args ...string) error {
	dir = filepath.Join(dir, name)
	steps, c, err := record(stageline, dir, kind, rates, args)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	report(os.Stdout, name, steps, c)
	var sent uint64
	for i := range steps {
		sent += steps[i].Calls
	}
	fmt.Printf("# %s: sent %d = received %d + lost %d; all kinds by the kernel: sent %d = received %d + lost %d\n",
		name, sent, c.received, c.lost, c.seqSent, c.seqGot, c.lostAll)
	if sent != c.received+c.lost || c.seqSent != c.seqGot+c.lostAll || c.other != 0 {
		return fmt.Errorf("%s: the loss is not accounted for; %d were lost for other reasons than a full ring", name, c.other)
	}
	if len(args) > 0 && c.lost == 0 {
		return fmt.Errorf("%s: nothing was lost with a ring of %d bytes: the accounting was not tried", name, smallRing)
	}
	return os.RemoveAll(dir)
}

// report prints each step and the two rates in the form of a benchmark.
func report(w io.Writer, name string, steps []step, c *counts) {
	var best, first float64
	var lost uint64
	for i := range steps {
		s := &steps[i]
		n := c.lostIn(s)
		asked := fmt.Sprintf("%d/s", s.Asked)
		if s.Asked == 0 {
			asked = "all it can"
		}
		fmt.Fprintf(w, "# %s: asked for %s, sent %.0f/s, lost %d\n", name, asked, s.rate(), n)
		lost += n
		switch {
		case lost == 0:
			best = max(best, s.rate())
		case first == 0:
			first = s.rate()
		}
	}
	fmt.Fprintf(w, "BenchmarkLoss/%s 1 %.0f records/s-without-loss", name, best)
	if lost > 0 {
		fmt.Fprintf(w, " %.0f records/s-at-first-loss\n", first)
		return
	}
	fmt.Fprintf(w, "\n# %s: no loss up to %.0f records/s, the most that %d cores could send\n", name, best, runtime.NumCPU())
}

// record runs one recording of one load.
func record(stageline, dir, kind, rates string, args []string) (steps []step, c *counts, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	load := exec.Command(self, "gen", kind, fmt.Sprint(int64(stepNS)), rates)
	load.Stderr = os.Stderr
	in, err := load.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := load.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := load.Start(); err != nil {
		return nil, nil, err
	}
	defer func() {
		in.Close()
		err = errors.Join(err, load.Wait())
	}()
	said := json.NewDecoder(out)
	var fds []int
	if err := said.Decode(&fds); err != nil {
		return nil, nil, fmt.Errorf("the load did not begin: %w", err)
	}
	rec, err := startRecorder(stageline, append([]string{"record", "--unsealed", "-p", fmt.Sprint(load.Process.Pid), "-o", dir}, args...))
	if err != nil {
		return nil, nil, err
	}
	_, err = io.WriteString(in, "go\n")
	if err == nil {
		err = said.Decode(&steps)
	}
	if err := errors.Join(err, rec.stop()); err != nil {
		return nil, nil, err
	}
	c, err = count(dir, uint32(load.Process.Pid), fds)
	return steps, c, err
}

type recorder struct {
	cmd   *exec.Cmd
	notes strings.Builder
	ended chan struct{} // once its standard error is read to the end
}

// startRecorder returns once the probes are on.
func startRecorder(stageline string, args []string) (*recorder, error) {
	r := &recorder{cmd: exec.Command(stageline, args...), ended: make(chan struct{})}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	on := make(chan struct{}, 1)
	go func() {
		defer close(r.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(&r.notes, lines.Text())
			if strings.Contains(lines.Text(), "stageline: recording ") {
				select {
				case on <- struct{}{}:
				default: // said before
				}
			}
		}
	}()
	select {
	case <-on:
		return r, nil
	case <-r.ended:
		return nil, fmt.Errorf("stageline %s: %w: %s", strings.Join(args, " "), r.cmd.Wait(), r.notes.String())
	}
}

// stop ends the recording as Ctrl-C does.
func (r *recorder) stop() error {
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	<-r.ended
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("stageline record: %w: %s", err, r.notes.String())
	}
	return nil
}
