package engine

import (
	"path/filepath"
	"slices"

	"github.com/stageline/stageline/collector/wire"
)

// ollama: "ollama serve" and one "ollama runner" a model, HTTP between them on a loopback port. No
// id goes from one to the other: that hop is matched by connection and time.
var ollama = &Profile{
	Name:    "ollama",
	Checked: "documentation of 2026; not observed",
	Matches: func(p *ProcView) bool {
		return filepath.Base(first(p.Cmdline)) == "ollama" || filepath.Base(p.Exe) == "ollama"
	},
	Stage: func(p *ProcView) (string, string) {
		switch {
		case slices.Contains(p.Cmdline, "runner"):
			return "runner", RuleCmdline
		case slices.Contains(p.Cmdline, "serve"):
			return "api", RuleCmdline
		}
		return "", ""
	},
	Rules: wire.Rules{
		HTTPIDHeaders:  []string{"x-request-id"},
		HTTPBodyFields: []string{"id"},
	},
	IDHeader: "X-Request-Id",
	IDs:      IDShape{Prefixes: []string{"chatcmpl-"}},
}
