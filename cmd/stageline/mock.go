package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	"github.com/stageline/stageline/loadgen/mock"
)

const mockUsage = `usage: stageline mock [options]

A chat completion server of known times on the loopback, for the certification of
load generators. Prints its address; GET /stamps returns what it did since the last
time, one JSON object a request. Ends with SIGTERM.

`

func mockFlags(fs *pflag.FlagSet, prefix string) *mock.Config {
	c := &mock.Config{}
	fs.DurationVar(&c.TTFT, prefix+"ttft", 50*time.Millisecond, "true time from the request to the first token")
	fs.DurationVar(&c.ITL, prefix+"itl", 10*time.Millisecond, "true time between tokens")
	fs.IntVar(&c.Tokens, prefix+"tokens", 100, "tokens of a reply")
	return c
}

// runMock is `stageline mock`.
func runMock(ctx context.Context, args []string, stdout, _ io.Writer) error {
	fs := newFlags("mock", mockUsage, stdout)
	cfg := mockFlags(fs, "")
	port := fs.Int("port", 0, "port on 127.0.0.1; 0 for any")
	fs.BoolVar(&cfg.Stamps, "stamps", true, "keep stamps for GET /stamps")
	untilEOF := fs.Bool("until-eof", false, "end with the end of standard input")
	if err := parse(fs, args, 0, "none"); err != nil {
		return err
	}
	if err := cfg.Check(); err != nil {
		return usagef("%w", err)
	}
	s, err := mock.Listen(*cfg, *port)
	if err != nil {
		return err
	}
	defer s.Close()
	if *untilEOF {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // its end is what is waited for, whatever the reason
			cancel()
		}()
	}
	fmt.Fprintf(stdout, "http://%s\n", s.Addr())
	return s.Serve(ctx)
}
