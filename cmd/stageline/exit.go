package main

import (
	"errors"
	"fmt"
)

// Exit codes of the command.
const (
	exitOK           = 0
	exitError        = 1
	exitUsage        = 2
	exitMissing      = 3 // privilege or kernel feature
	exitLost         = 4 // more records lost than allowed
	exitInconclusive = 5
)

// codedError is an error with an exit code of its own. Any error in the chain that has a
// method ExitCode() int works the same way.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// ExitCode is the process's exit status.
func (e *codedError) ExitCode() int { return e.code }

// withExit gives an error an exit code; a nil error stays nil.
func withExit(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// usagef is a fault of the command line.
func usagef(format string, args ...any) error {
	return withExit(exitUsage, fmt.Errorf(format, args...))
}

func exitCode(err error) int {
	var c interface{ ExitCode() int }
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &c):
		return c.ExitCode()
	}
	return exitError
}
