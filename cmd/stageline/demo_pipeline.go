package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopGrace is how long the pipeline may take to write its truth after SIGTERM.
const stopGrace = 30 * time.Second

// pipeline is a running reference pipeline.
type pipeline struct {
	cmd    *exec.Cmd
	work   string // its sockets; short, because a unix socket path holds 107 bytes
	output *os.File
	log    *os.File
	ready  pipelineReady
}

// pipelineReady is the line that the pipeline prints once it takes requests.
type pipelineReady struct {
	URL  string `json:"url"`
	PIDs []int  `json:"pids"`
}

func startPipeline(ctx context.Context, o *demoOptions, truthPath string) (_ *pipeline, err error) {
	p := &pipeline{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if p.work, err = os.MkdirTemp("", "stageline-demo-"); err != nil {
		return nil, fmt.Errorf("create the pipeline's directory: %w", err)
	}
	if p.log, err = os.Create(filepath.Join(o.dir, "refpipe.log")); err != nil {
		return nil, fmt.Errorf("create the pipeline's log: %w", err)
	}
	args := []string{"-seed", strconv.FormatUint(o.seed, 10), "-impl", o.impl, "-dir", p.work, "-truth", truthPath, "-exit-on-eof"}
	for _, s := range o.slow {
		args = append(args, "-slow", slowWith(s))
	}
	if o.stall != "" {
		args = append(args, "-stall-reader", o.stall)
	}
	if o.big != "" {
		args = append(args, "-big-payload", bigWith(o.big))
	}
	cmd := exec.CommandContext(ctx, o.refpipe, args...)
	cmd.Stderr = p.log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	// A group of its own: an interrupt from the terminal comes to it from here, in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Held open while this process lives: killed, it takes the pipeline with it.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("create the pipeline's input: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("create the pipeline's output: %w", err)
	}
	p.output, cmd.Stdout = r, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		return nil, fmt.Errorf("start the reference pipeline: %w; `make build` builds it, --refpipe PATH names it", err)
	}
	p.cmd = cmd
	return p, p.awaitReady()
}

// slowWith adds how slow, where a --slow does not say it: five times the service of a stage, 150 ms
// for a hop. The pipeline asks 30 to 40 ms of each stage, so that both exceed all others clearly and
// 200 requests still pass in well under a minute.
func slowWith(s string) string {
	kind, where, _ := strings.Cut(s, "=")
	switch n := strings.Count(where, ":"); {
	case kind == "stage" && n == 0:
		return s + ":5"
	case kind == "hop" && n == 1:
		return s + ":150"
	}
	return s
}

// bigWith adds the size, in megabytes, where a --big-payload does not say it.
func bigWith(s string) string {
	if strings.Count(s, ":") == 1 {
		return s + ":55"
	}
	return s
}

// awaitReady reads the ready line; the rest of the output is drained so that the pipeline never
// blocks on it.
func (p *pipeline) awaitReady() error {
	b := bufio.NewReader(p.output)
	line, err := b.ReadBytes('\n')
	if err != nil {
		return p.refused()
	}
	go io.Copy(io.Discard, b)
	if err := json.Unmarshal(line, &p.ready); err != nil || p.ready.URL == "" || len(p.ready.PIDs) == 0 {
		return fmt.Errorf("the reference pipeline's ready line %.80q lacks url or pids", line)
	}
	return nil
}

// refused says why a pipeline ended before it was ready, in its own words: the last line of its log.
func (p *pipeline) refused() error {
	err := p.cmd.Wait()
	said, readErr := os.ReadFile(p.log.Name())
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	why := lines[len(lines)-1]
	p.cmd = nil
	if readErr != nil || why == "" {
		why = "see " + p.log.Name()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitUsage {
		return usagef("the reference pipeline refused: %s", why)
	}
	return fmt.Errorf("the reference pipeline ended before it was ready: %s", why)
}

// stop ends the pipeline and waits until it has written its truth. It reports a pipeline that did
// not end well.
func (p *pipeline) stop() error {
	var err error
	if p.cmd != nil {
		// A pipeline that already ended is reported by Wait.
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(stopGrace, func() { p.cmd.Process.Kill() })
		err = p.cmd.Wait()
		kill.Stop()
	}
	if p.output != nil {
		p.output.Close()
	}
	if p.work != "" {
		os.RemoveAll(p.work)
	}
	if err != nil {
		err = fmt.Errorf("the reference pipeline did not end well: %w; see %s", err, p.log.Name())
	}
	if p.log != nil {
		p.log.Close()
	}
	return err
}
