package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/export"
	"github.com/stageline/stageline/loadgen"
	"github.com/stageline/stageline/loadgen/mock"
)

const loadUsage = `usage: stageline load -u URL (--rate R | --concurrency C) (-n N | -d DURATION) [-o RUN]

Sends a planned load to an HTTP inference server and records planned, sent, first,
last and end times of every request.

  stageline load -u http://127.0.0.1:8000 --model m -c 8 -n 300 -o out/run
  stageline load -u http://127.0.0.1:8000 --model m --rate 20 -d 60s --seed 7 --json
  stageline load -u http://127.0.0.1:8000 --rates 100x2s,0x8s --repeat -n 5000 --plan-only -o plan.jsonl
  stageline load -u http://127.0.0.1:8000 --model m --replay plan.jsonl -o out/run
  stageline load --certify -c 100

Send times are fixed beforehand by the seed. A load whose p99 lag is the generator's
own and above --max-lag is invalid: exit code 5.

`

// loadFlags adds the flags that describe a load to fs; the returned function builds the
// configuration once fs is parsed. Other commands that drive a load use the same flags.
func loadFlags(fs *pflag.FlagSet) func() (loadgen.Config, error) {
	var c loadgen.Config
	var prompts, template string
	fs.StringVarP(&c.URL, "url", "u", "", "endpoint; without a path /v1/chat/completions is meant")
	schedule := scheduleFlags(fs, &c)
	fs.IntVarP(&c.Concurrency, "concurrency", "c", 0, "requests in flight (open loop: at most so many; what waits counts from its plan)")
	fs.IntVarP(&c.N, "requests", "n", 0, "number of measured requests")
	fs.IntVar(&c.Warmup, "warmup", 0, "requests sent first and kept out of the summary")
	fs.Uint64Var(&c.Seed, "seed", 1, "seed of send times and synthetic prompts")
	fs.StringVar(&c.IDPrefix, "id-prefix", "", "ids are PREFIX-000001 … (default: sl-<8 random hex digits>)")
	fs.StringSliceVar(&c.IDHeaders, "id-header", []string{"X-Request-Id"}, "headers that carry the id")
	fs.StringVar(&c.IDField, "id-field", "request_id", "first field of the JSON body, carrying the id; empty for none")
	fs.BoolVar(&c.Trace, "traceparent", false, "send a traceparent header derived from the id")
	fs.StringArrayVarP(&c.Header, "header", "H", nil, "further header, \"Name: value\"")
	fs.StringVar(&c.Model, "model", "", "model named in the request")
	fs.IntVar(&c.MaxTokens, "max-tokens", 0, "max_tokens of the request")
	fs.BoolVar(&c.Stream, "stream", true, "ask for a streamed reply")
	fs.BoolVar(&c.NoUsage, "no-usage", false, "do not ask for token counts in the stream")
	fs.StringVar(&c.Voice, "voice", "", "voice of /v1/audio/speech")
	fs.StringVar(&c.Format, "response-format", "wav", "response_format of /v1/audio/speech")
	fs.StringVar(&c.ExtraJSON, "extra", "", "JSON object of further body fields")
	fs.IntVar(&c.PromptChars, "prompt-chars", 128, "length of synthetic prompts")
	fs.StringVar(&prompts, "prompts", "", "file of prompts, one a line, used in turn")
	fs.StringVar(&template, "body-template", "", "file with the request body; {{id}}, {{n}} and {{prompt}} are replaced")
	fs.StringVar(&c.ContentType, "content-type", "application/json", "content type of the body")
	fs.DurationVar(&c.Deadline, "deadline", 10*time.Minute, "of each request, from its planned time; 0 for none")
	client := clientFlags(fs)
	return func() (loadgen.Config, error) {
		if c.URL == "" {
			return c, errors.New("no URL given: use -u http://HOST:PORT[/path]")
		}
		err := errors.Join(schedule(), client(&c))
		if err != nil {
			return c, err
		}
		if prompts != "" {
			if c.Prompts, err = readLines(prompts); err != nil {
				return c, err
			}
		}
		if template != "" {
			b, err := os.ReadFile(template)
			if err != nil {
				return c, fmt.Errorf("read body template: %w", err)
			}
			c.Template = string(b)
		}
		return c, nil
	}
}

// readLines returns the non-empty lines of a file.
func readLines(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read prompts: %w", err)
	}
	defer f.Close()
	var out []string
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		if sc.Text() != "" {
			out = append(out, sc.Text())
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read prompts %s: %w", path, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("read prompts %s: no line with text", path)
	}
	return out, nil
}

// loadOptions are the flags of `stageline load` beside those of the load itself.
type loadOptions struct {
	duration    time.Duration
	output      string
	asJSON      bool
	asCSV       bool
	planOnly    bool
	certify     bool
	certificate string
	truth       *mock.Config
}

func (o *loadOptions) add(fs *pflag.FlagSet) {
	fs.DurationVarP(&o.duration, "duration", "d", 0, "length of the measured load")
	fs.StringVarP(&o.output, "output", "o", "", "run directory to create; without it only the summary is kept")
	fs.BoolVar(&o.asJSON, "json", false, "print the summary as JSON")
	fs.BoolVar(&o.asCSV, "csv", false, "print the distributions as CSV")
	fs.BoolVar(&o.planOnly, "plan-only", false, "send nothing: write the list of requests and their times to -o FILE (default: standard output), for --replay")
	fs.BoolVar(&o.certify, "certify", false, "measure a built-in server of known times at this -c or --rate, and say how wrong the measurement is")
	fs.StringVar(&o.certificate, "certificate", "", "result of --certify --json to keep with the run")
	o.truth = mockFlags(fs, "certify-")
}

// check refuses options of which one would be left out of account.
func (o *loadOptions) check(fs *pflag.FlagSet) error {
	switch {
	case o.asJSON && o.asCSV:
		return errors.New("--json or --csv, not both")
	case o.certify && fs.Changed("url"):
		return errors.New("--certify measures a server of its own: leave out --url")
	case o.certify && (o.planOnly || o.asCSV || o.certificate != ""):
		return errors.New("--certify goes with --json and -o FILE alone: leave out --plan-only, --csv and --certificate")
	case o.planOnly && (o.asCSV || o.asJSON || o.certificate != ""):
		return errors.New("--plan-only sends nothing: leave out --json, --csv and --certificate")
	}
	if err := o.truth.Check(); err != nil {
		return err
	}
	for _, name := range []string{"certify-ttft", "certify-itl", "certify-tokens"} {
		if !o.certify && fs.Changed(name) {
			return fmt.Errorf("--%s goes with --certify", name)
		}
	}
	return nil
}

// runLoad is `stageline load`.
func runLoad(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("load", loadUsage, stdout)
	config := loadFlags(fs)
	var o loadOptions
	o.add(fs)
	if err := parse(fs, args, 0, "none"); err != nil {
		return err
	}
	if err := o.check(fs); err != nil {
		return usagef("%w", err)
	}
	if o.certify {
		_ = fs.Set("url", "http://127.0.0.1:1") // the server's own takes its place
	}
	cfg, err := config()
	if err != nil {
		return usagef("%w", err)
	}
	cfg.Duration = o.duration
	switch {
	case o.certify:
		return o.runCertify(ctx, cfg, ownServer, stdout)
	case o.planOnly:
		return o.writePlan(cfg, stdout)
	}
	return o.runLoad(ctx, cfg, stdout, stderr)
}

func (o *loadOptions) writePlan(cfg loadgen.Config, stdout io.Writer) error {
	plan, err := loadgen.NewPlan(cfg)
	if err != nil {
		return usagef("%w", err)
	}
	return writeFile(o.output, stdout, plan.WriteManifest)
}

func (o *loadOptions) runLoad(ctx context.Context, cfg loadgen.Config, stdout, stderr io.Writer) error {
	certificate := "none"
	if o.certificate != "" {
		var err error
		if certificate, err = readCertificate(o.certificate); err != nil {
			return usagef("%w", err)
		}
	}
	cfg.RunID = run.NewRunID(time.Now())
	plan, err := loadgen.NewPlan(cfg)
	if err != nil {
		return usagef("%w", err)
	}
	makeRoom()
	var shown progress
	stop := shown.start(ctx, stderr, plan.Planned())
	sum, err := loadInto(ctx, plan, cfg.RunID, o.output, map[string]string{"load_certificate": certificate}, shown.add)
	stop()
	if sum.Planned+sum.Warmup > 0 {
		err = errors.Join(o.print(stdout, &sum), err)
	}
	if err != nil {
		return err
	}
	if sum.AllFailed() {
		return fmt.Errorf("none of %d requests to %s succeeded: %s", sum.Planned, plan.Addr(), sum.FirstError)
	}
	return invalid(sum.Generator.Because)
}

// invalid is the error of a load that the generator could not send as declared.
func invalid(because []string) error {
	if len(because) == 0 {
		return nil
	}
	return withExit(exitInconclusive, fmt.Errorf("the load is invalid: %s", strings.Join(because, "; ")))
}

// loadInto sends the load and leaves a sealed run of its requests in dir, if one is given. A load
// that is stopped early is sealed as well: what it did is complete.
// each is called with every request as it ends.
func loadInto(ctx context.Context, plan *loadgen.Plan, runID, dir string, extra map[string]string, each func(*run.Request)) (loadgen.Summary, error) {
	if dir == "" {
		return loadgen.Run(ctx, plan, each)
	}
	options := plan.Options()
	maps.Copy(options, extra)
	w, err := run.Create(dir, run.Metadata{RunID: runID, Options: options})
	if err != nil {
		return loadgen.Summary{}, err
	}
	sum, errLoad := loadgen.Run(ctx, plan, func(r *run.Request) {
		each(r)
		_ = w.Request(r) // its error is kept for Close
	})
	errLoad = errors.Join(errLoad, writeVerified(w, &sum))
	if err := w.Close(); err != nil {
		return sum, errors.Join(errLoad, fmt.Errorf("record the load: %w; complete what was kept with: stageline seal %s", err, dir))
	}
	_, errSeal := run.Seal(dir)
	return sum, errors.Join(errLoad, errSeal)
}

// writeVerified adds the comparisons made after the load to quality.jsonl.
func writeVerified(w *run.Writer, sum *loadgen.Summary) error {
	for i := range sum.Verified {
		if err := w.Quality(&sum.Verified[i]); err != nil {
			return err
		}
	}
	return nil
}

func (o *loadOptions) print(w io.Writer, sum *loadgen.Summary) error {
	switch {
	case o.asCSV:
		return sum.CSV(w)
	case !o.asJSON:
		return sum.Text(export.Plain(w))
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(sum)
}
