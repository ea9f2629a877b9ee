package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"
)

// newFlags is a flag set whose help goes to stdout when asked for; after a mistake only the mistake
// is printed.
func newFlags(name, usage string, stdout io.Writer) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	fs.Usage = func() { fmt.Fprintf(stdout, "%s%s", usage, fs.FlagUsages()) }
	return fs
}

// parseFlags parses args and leaves the positional ones to the caller.
func parseFlags(fs *pflag.FlagSet, args []string) error {
	err := fs.Parse(args)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return err
	}
	return usagef("%w; `stageline help %s` lists the options", err, fs.Name())
}

// parse parses args and checks the number of positional ones.
func parse(fs *pflag.FlagSet, args []string, positional int, what string) error {
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if fs.NArg() != positional {
		return usagef("%d arguments given, wanted %s; `stageline help %s` says more", fs.NArg(), what, fs.Name())
	}
	return nil
}
