package main

import (
	"strings"

	"github.com/stageline/stageline/collector/engine"
	"github.com/stageline/stageline/correlate"
)

// timelineOptions are the rules by which every command builds a timeline. names are the user's own,
// each NAME=PATTERN.
func timelineOptions(names ...string) (correlate.Options, error) {
	var over []engine.Override
	for _, s := range names {
		name, pattern, ok := strings.Cut(s, "=")
		if !ok || name == "" || pattern == "" {
			return correlate.Options{}, usagef("--stage %q: want NAME=PATTERN", s)
		}
		over = append(over, engine.Override{Name: name, Pattern: pattern})
	}
	return correlate.Options{StageOf: func(p correlate.ProcInfo) (name, rule, eng string) {
		return engine.StageWith(engine.ProcView{TGID: p.TGID, PPID: p.PPID, Comm: p.Comm, Exe: p.Exe, Cmdline: p.Cmdline, Bound: p.Bound}, over)
	}}, nil
}
