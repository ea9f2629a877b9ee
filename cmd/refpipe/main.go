package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

type options struct {
	seed                       uint64
	impl, dir, truth, topology string
	slow                       []string
	stall, kill, big           string
	drop, truthRecords         int
	repeat, describe, noNoise  bool
	polled, cpuBound           bool
	exitOnEOF                  bool
	listen                     string
}

func parseOptions(args []string) (*options, error) {
	o := &options{}
	fs := pflag.NewFlagSet("refpipe", pflag.ContinueOnError)
	fs.Uint64VarP(&o.seed, "seed", "s", 1, "seed of topology, names and service times")
	fs.StringVar(&o.impl, "impl", "c", "stage implementation: c or python")
	fs.StringVar(&o.dir, "dir", "", "work directory for sockets and logs (default: a temporary one)")
	fs.StringVar(&o.truth, "truth", "", "file that the truth is written to at the end (default: none is kept)")
	fs.StringVar(&o.topology, "topology", "full", "full, merged (two stages in a process) or small (no audio)")
	fs.StringArrayVar(&o.slow, "slow", nil, "fault: stage=NAME:FACTOR or hop=FROM:TO:MS")
	fs.StringVar(&o.stall, "stall-reader", "", "fault: this stage stops reading 300 ms of every 1500")
	fs.StringVar(&o.big, "big-payload", "", "fault: FROM:TO:MB, a payload that FROM serialises byte by byte once its compute has finished")
	fs.StringVar(&o.kill, "kill-worker", "", "fault: STAGE:AFTER_N kills its first process at activation N")
	fs.IntVar(&o.drop, "drop-chunk", -1, "fault: the talker drops this chunk of every request")
	fs.BoolVar(&o.repeat, "repeat-samples", false, "fault: the vocoder repeats samples at chunk borders")
	fs.BoolVar(&o.polled, "polled-edge", false, "the vocoder polls /dev/shm for its chunks, as vLLM-Omni's connector does")
	fs.BoolVar(&o.cpuBound, "cpu-bound", false, "stages compute during all of their service time instead of sleeping, and a quarter as long")
	fs.BoolVar(&o.describe, "describe", false, "print what the seed draws and exit")
	fs.BoolVar(&o.noNoise, "no-noise", false, "no heartbeats, health checks or tracker writes")
	fs.BoolVar(&o.exitOnEOF, "exit-on-eof", false, "also end when standard input ends")
	fs.IntVar(&o.truthRecords, "truth-records", 1<<17, "truth records kept per process")
	fs.StringVar(&o.listen, "listen", "127.0.0.1:0", "address of the HTTP entry")
	if err := fs.Parse(singleDash(fs, args)); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.impl != "c" && o.impl != "python" {
		return nil, fmt.Errorf("impl %q: want c or python", o.impl)
	}
	if o.big != "" && o.impl != "c" {
		return nil, errors.New("big payload: only the stages in C make one; use --impl c")
	}
	return o, nil
}

// singleDash lets long flags be written with one dash, too.
func singleDash(fs *pflag.FlagSet, args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		name := a
		for k, c := range a {
			if c == '=' {
				name = a[:k]
				break
			}
		}
		if len(name) > 2 && name[0] == '-' && name[1] != '-' && fs.Lookup(name[1:]) != nil {
			a = "-" + a
		}
		out[i] = a
	}
	return out
}

func (o *options) faults(t *Topology) (*Faults, error) {
	f := &Faults{DropChunk: o.drop, RepeatSamples: o.repeat}
	for _, v := range o.slow {
		if err := f.applySlow(t, v); err != nil {
			return nil, err
		}
	}
	if o.stall != "" {
		s, err := t.StageByName(o.stall)
		if err != nil {
			return nil, err
		}
		f.StallStage = s.Index
	}
	if o.big != "" {
		if err := f.applyBig(t, o.big); err != nil {
			return nil, err
		}
	}
	if o.kill != "" {
		if err := f.applyKill(t, o.kill); err != nil {
			return nil, err
		}
	}
	return f, nil
}

type usageError struct{ error }

func main() {
	o, err := parseOptions(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "refpipe:", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if o.exitOnEOF {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	if err := serve(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "refpipe:", err)
		var u usageError
		if errors.As(err, &u) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// serve runs the pipeline until ctx ends, then writes the truth.
func serve(ctx context.Context, o *options, stdout io.Writer) error {
	top, err := Draw(o.seed, o.topology)
	if err != nil {
		return usageError{err}
	}
	if o.polled {
		err = top.PollChunks()
	}
	if err == nil && o.polled && o.drop >= 0 {
		err = errors.New("drop chunk: with a polled edge the vocoder would wait for it for ever")
	}
	if o.cpuBound {
		top.BurnCPU()
	}
	if err != nil {
		return usageError{err}
	}
	faults, err := o.faults(top)
	if err != nil {
		return usageError{err}
	}
	if o.describe {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(top)
	}
	p, err := newPipeline(o, top, faults)
	if err != nil {
		return err
	}
	defer p.cleanup()
	if err := p.start(ctx); err != nil {
		p.stop()
		return err
	}
	if err := json.NewEncoder(stdout).Encode(p.announce()); err != nil {
		p.stop()
		return fmt.Errorf("announce the pipeline: %w", err)
	}
	<-ctx.Done()
	p.stop()
	return p.writeTruth()
}

// pipeline is one run: the API in this process, the fleet of stages.
type pipeline struct {
	o       *options
	top     *Topology
	faults  *Faults
	lay     *layout
	fleet   *fleet
	truth   *apiTruth
	router  *router
	server  *http.Server
	ln      net.Listener
	log     *os.File
	tempDir string
	quit    chan struct{}
}

func newPipeline(o *options, top *Topology, faults *Faults) (*pipeline, error) {
	p := &pipeline{o: o, top: top, faults: faults, quit: make(chan struct{})}
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "refpipe")
		if err != nil {
			return nil, fmt.Errorf("make work directory: %w", err)
		}
		o.dir, p.tempDir = dir, dir
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, fmt.Errorf("find work directory: %w", err)
	}
	p.lay = &layout{top: top, faults: faults, noise: !o.noNoise, tag: newTag(), dir: filepath.Join(dir, top.Pipeline), tcp: map[int]int{}, pipes: map[[2]int][2]int{}}
	if err := p.lay.check(); err != nil {
		return nil, usageError{err}
	}
	if err := os.RemoveAll(p.lay.dir); err != nil {
		return nil, fmt.Errorf("clear socket directory: %w", err)
	}
	if err := os.MkdirAll(p.lay.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make socket directory: %w", err)
	}
	p.log, err = os.Create(filepath.Join(dir, "stages.log"))
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	o.dir = dir
	return p, nil
}

func (p *pipeline) cleanup() {
	os.RemoveAll(p.lay.dir)
	p.log.Close()
	if p.tempDir != "" {
		os.RemoveAll(p.tempDir)
	}
}

// stageBinary finds the C stage beside this program, or where REFPIPE_STAGE says.
func stageBinary() (string, error) {
	if path := os.Getenv("REFPIPE_STAGE"); path != "" {
		return path, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), "refpipe-stage")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find stage program %s: %w; build it beside this one, or set REFPIPE_STAGE", path, err)
	}
	return path, nil
}

func (p *pipeline) start(ctx context.Context) error {
	clock, err := newMonoClock()
	if err != nil {
		return err
	}
	records := 0
	if p.o.truth != "" {
		p.truth = newAPITruth()
		records = p.o.truthRecords
	}
	bin, err := stageBinary()
	if err != nil {
		return err
	}
	cmd, limit := command(func(conf string) *exec.Cmd { return exec.Command(bin, conf) }), 20*time.Second
	if p.o.impl == "python" {
		if cmd, err = pythonCommand(p.o.dir); err != nil {
			return err
		}
		limit = 60 * time.Second
	}
	p.router = newRouter(p.lay, clock, p.truth)
	if err := p.router.listen(); err != nil {
		return err
	}
	if p.fleet, err = startFleet(p.lay, p.o.dir, cmd, bin, records, p.log, p.router.procLost); err != nil {
		return err
	}
	if err := p.router.dial(); err != nil {
		return err
	}
	if err := p.fleet.ready(limit); err != nil {
		return err
	}
	if p.lay.noise {
		go p.router.healthChecks(p.quit)
	}
	return p.listenHTTP(ctx, clock)
}

func (p *pipeline) listenHTTP(ctx context.Context, clock *monoClock) error {
	ln, err := net.Listen("tcp", p.o.listen)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	p.ln = ln
	p.server = &http.Server{Handler: (&api{p.router}).handler(), ConnContext: withConn, ReadHeaderTimeout: time.Minute}
	go p.server.Serve(&entryListener{Listener: ln, clock: clock})
	return nil
}

// announcement is the line printed when the pipeline is up.
type announcement struct {
	URL    string       `json:"url"`
	PIDs   []int        `json:"pids"`
	APIPID int          `json:"api_pid"`
	Stages []truthStage `json:"stages"`
	Tag    string       `json:"segment_tag"` // in the names of this run's segments
}

func (p *pipeline) stages() []truthStage {
	out := []truthStage{}
	for _, s := range p.top.Stages[1:] {
		ts := truthStage{Name: s.Name, Role: s.Role}
		for _, proc := range s.Procs {
			ts.PIDs = append(ts.PIDs, p.fleet.pidOf(proc))
		}
		out = append(out, ts)
	}
	return out
}

func (p *pipeline) announce() announcement {
	return announcement{URL: "http://" + p.ln.Addr().String(), PIDs: append([]int{os.Getpid()}, p.fleet.pids()...), APIPID: os.Getpid(), Stages: p.stages(), Tag: p.lay.tag}
}

func (p *pipeline) stop() {
	if p.server != nil {
		p.server.Close()
	}
	select {
	case <-p.quit:
	default:
		close(p.quit)
	}
	if p.fleet != nil {
		p.fleet.stop()
	}
	if p.router != nil {
		p.router.close()
	}
}

func (p *pipeline) writeTruth() error {
	if p.truth == nil {
		return nil
	}
	recs, dropped, err := p.fleet.records()
	if err != nil {
		return err
	}
	p.truth.mu.Lock()
	defer p.truth.mu.Unlock()
	recs = append(recs, p.truth.recs...)
	m := &merger{top: p.top, requests: map[string]*request{}}
	for i := range p.top.Procs {
		m.pids = append(m.pids, p.fleet.pidOf(i))
	}
	for _, q := range p.truth.requests {
		m.requests[q.wireID] = q
	}
	meta := truthMeta{T: "meta", Source: "refpipe", Seed: p.o.seed, Impl: p.o.impl, Topology: p.o.topology, SendAt: "write call", ArrivalAt: "read call",
		Stages: p.stages(), APIPID: os.Getpid(), Dropped: dropped, Drawn: p.top, Faults: p.faults}
	if p.o.impl == "python" {
		meta.SendAt, meta.ArrivalAt = "socket call of the sending thread", "application"
	}
	return writeTruth(p.o.truth, meta, m, recs, p.truth.requests)
}
