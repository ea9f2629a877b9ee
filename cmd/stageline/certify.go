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
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/stageline/stageline/loadgen"
	"github.com/stageline/stageline/loadgen/mock"
)

// certifyOptions are a load to certify and the server's true times.
type certifyOptions struct {
	load  loadgen.Config
	truth mock.Config
	// server starts the mock server with these arguments; its standard output begins with its URL, and
	// it ends with its standard input.
	server func(ctx context.Context, args ...string) *exec.Cmd
}

// ownServer runs this program as the mock server, in a process of its own: its garbage collector and
// its scheduler are not the client's.
func ownServer(ctx context.Context, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return exec.CommandContext(ctx, exe, append([]string{"mock"}, args...)...)
}

// certify measures a mock server and returns how wrong the measurement was.
func certify(ctx context.Context, o certifyOptions) (*loadgen.Certificate, error) {
	cmd := o.server(ctx, "--until-eof", "--ttft", o.truth.TTFT.String(), "--itl", o.truth.ITL.String(), "--tokens", strconv.Itoa(o.truth.Tokens))
	stdin, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		return nil, fmt.Errorf("start the mock server: %w", err)
	}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		stdin.Close()
		return nil, errors.Join(fmt.Errorf("the mock server did not say its address: %w", err), cmd.Wait())
	}
	o.load.URL = strings.TrimSpace(url)
	c, err := loadgen.Certify(ctx, o.load, o.truth)
	stdin.Close()
	return c, errors.Join(err, cmd.Wait())
}

const (
	certifySeconds = 5 // of a certification whose number of requests is not given
	certifyStreams = 100
)

// runCertify is `stageline load --certify`.
func (o *loadOptions) runCertify(ctx context.Context, cfg loadgen.Config, server func(context.Context, ...string) *exec.Cmd, stdout io.Writer) error {
	if cfg.Rate == 0 && cfg.Concurrency == 0 {
		cfg.Concurrency = certifyStreams
	}
	length := o.truth.TTFT + time.Duration(o.truth.Tokens-1)*o.truth.ITL
	lasts := cfg.Duration
	if lasts == 0 {
		lasts = certifySeconds * time.Second
	}
	if cfg.N == 0 && cfg.Rate > 0 {
		cfg.N = max(1, int(cfg.Rate*lasts.Seconds()))
	} else if cfg.N == 0 {
		cfg.N = cfg.Concurrency * max(1, int(lasts/max(length, time.Millisecond)))
	}
	cfg.Duration = 0 // a number, so that the plan has a list
	if _, err := loadgen.Certifiable(cfg, *o.truth); err != nil {
		return usagef("%w", err)
	}
	makeRoom()
	c, err := certify(ctx, certifyOptions{load: cfg, truth: *o.truth, server: server})
	if err != nil {
		return err
	}
	err = writeFile(o.output, stdout, func(w io.Writer) error { return printCertificate(w, c, o.asJSON) })
	return errors.Join(err, invalid(c.Because))
}

func printCertificate(w io.Writer, c *loadgen.Certificate, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(c)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	num := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.3f", *v)
	}
	fmt.Fprintf(tw, "%d streams, true TTFT %g ms, true ITL %g ms, %d requests, %d events\n\n", c.Streams, c.TrueTTFT, c.TrueITL, c.Requests, c.Events)
	fmt.Fprintln(tw, "error, ms\tn\tmean\tσ\tp99\tmax")
	for _, row := range []struct {
		name string
		m    loadgen.Moments
	}{
		{"stamp of the first token", c.TTFTError},
		{"ITL, by token", c.ITLError},
		{"gap between events, coalesced ones too", c.EventGapError},
		{"TTFT from send", c.TTFTFromSend},
		{"the mock's own lateness (in no error)", c.MockLateness},
	} {
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\n", row.name, row.m.N, num(row.m.Mean), num(row.m.Sigma), num(row.m.P99), num(row.m.Max))
	}
	fmt.Fprintf(tw, "\nsend lag, µs\tn %d\tp50 %s\tp99 %s\tmax %s\n", c.SendLag.N, num(c.SendLag.P50), num(c.SendLag.P99), num(c.SendLag.Max))
	if v := c.IdleShare; v != nil {
		fmt.Fprintf(tw, "idle because of it\t%.2f %% of the concurrency\n", *v*100)
	}
	fmt.Fprintf(tw, "requests/s\tasked %s\tachieved %s\n", num(c.Rate.Asked), num(c.Rate.Achieved))
	fmt.Fprintf(tw, "stamped by the kernel\t%d of %d events\n", c.KernelStamped, c.Events)
	fmt.Fprintf(tw, "shared a read\t%d events\n", c.Coalesced)
	fmt.Fprintf(tw, "processor time\t%s ms per 10,000 events\n", num(c.CPUPer10k))
	if c.Valid {
		fmt.Fprintln(tw, "\nvalid")
	}
	for _, why := range c.Because {
		fmt.Fprintf(tw, "\nINVALID: %s\n", why)
	}
	return tw.Flush()
}

// readCertificate returns a certificate made on this host, as one line for a run's metadata.
func readCertificate(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read certificate: %w", err)
	}
	var c loadgen.Certificate
	if err := json.Unmarshal(b, &c); err != nil || c.Version == "" {
		return "", fmt.Errorf("read certificate %s: no certificate: make one with: stageline load --certify --json -o %s", path, path)
	}
	if !c.SameHost() {
		return "", fmt.Errorf("certificate %s is of host %s with kernel %s: make one here with: stageline load --certify --json -o FILE", path, c.Host, c.Kernel)
	}
	line, err := json.Marshal(&c)
	return string(line), err
}
