package engine

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Rules that gave a stage its name, as reports state them.
const (
	RuleUser      = "user"
	RuleBoundPath = "bound socket path"
	RuleTitle     = "process title"
	RuleCmdline   = "command line"
	RuleArgument  = "argument"
	RuleProcess   = "process"
)

// Override is a name that the user gave: --stage NAME=PATTERN. The pattern, with * and ? as in
// file names or else as a part of the text, is tried on the pid, the command line, the executable's
// and the socket paths' base names.
type Override struct{ Name, Pattern string }

// StageOf names the stage of a process and the rule that did.
func StageOf(p ProcView) (name, rule, engine string) { return StageWith(p, nil) }

// StageWith is StageOf with the user's names tried first.
func StageWith(p ProcView, overrides []Override) (name, rule, engine string) {
	f := Of(&p)
	for _, o := range overrides {
		if o.matches(&p) {
			return o.Name, RuleUser, f.Name
		}
	}
	if name, rule = f.Stage(&p); name != "" {
		return clean(name), rule, f.Name // a process may write anything into its title
	}
	for _, n := range []func(*ProcView) (string, string){boundStage, argumentStage, titled} {
		if name, rule = n(&p); name != "" {
			return name, rule, f.Name
		}
	}
	comm := p.Comm
	switch {
	case comm == "" && p.Exe == "":
		comm = "process"
	case comm == "":
		comm = filepath.Base(p.Exe)
	}
	return fmt.Sprintf("%s-%d", clean(comm), p.TGID), RuleProcess, f.Name
}

func (o *Override) matches(p *ProcView) bool {
	texts := []string{fmt.Sprint(p.TGID), p.Comm, filepath.Base(p.Exe), strings.Join(p.Cmdline, " ")}
	for _, b := range p.Bound {
		texts = append(texts, b, filepath.Base(b))
	}
	for _, t := range texts {
		if ok, err := path.Match(o.Pattern, t); ok && err == nil {
			return true
		}
	}
	if isNumber(o.Pattern) { // a pid, not a part of some text
		return false
	}
	plain := strings.Trim(o.Pattern, "*")
	return plain != "" && !strings.ContainsAny(plain, "*?[") && slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, plain) })
}

// boundStage takes the base name of a unix socket: stage_<name>.sock, else <name>.sock, if it is a
// name rather than something random.
func boundStage(p *ProcView) (string, string) {
	bound := slices.Clone(p.Bound)
	slices.Sort(bound)
	for _, strict := range []bool{true, false} {
		for _, b := range bound {
			if strings.HasPrefix(b, "tcp:") {
				continue
			}
			base := strings.TrimPrefix(filepath.Base(b), "@")
			name, marked := strings.CutPrefix(base, "stage_")
			name = strings.TrimSuffix(strings.TrimSuffix(name, ".sock"), ".ipc")
			if (marked || !strict && strings.HasSuffix(base, ".sock")) && isName(name) {
				return name, RuleBoundPath
			}
		}
	}
	return "", ""
}

// nameArguments are the options whose value usually is the role of a process, the surer first.
var nameArguments = []string{"stage", "stage-name", "stage_name", "role", "worker-name", "worker_name", "component", "name"}

func argumentStage(p *ProcView) (string, string) {
	for _, want := range nameArguments {
		for i, a := range p.Cmdline {
			opt, ok := strings.CutPrefix(a, "-")
			if !ok {
				continue
			}
			opt, v, has := strings.Cut(strings.TrimPrefix(opt, "-"), "=")
			if opt == want && !has && i+1 < len(p.Cmdline) {
				v = p.Cmdline[i+1]
			}
			if opt == want && isName(v) {
				return v, RuleArgument
			}
		}
	}
	return "", ""
}

// titled takes a title as setproctitle writes it: "Product::Role" or "product: role" in place of
// the command line.
func titled(p *ProcView) (string, string) {
	t := first(p.Cmdline)
	if t == "" || strings.HasPrefix(t, "/") || p.Exe != "" && filepath.Base(t) == filepath.Base(p.Exe) {
		return "", ""
	}
	for _, sep := range []string{"::", ": "} {
		if _, role, ok := strings.Cut(t, sep); ok {
			role, _, _ = strings.Cut(strings.TrimSpace(role), " ")
			if isName(role) {
				return strings.ToLower(role), RuleTitle
			}
		}
	}
	return "", ""
}

// isName reports whether s can be read as a name: short, not a number, not a random string.
func isName(s string) bool {
	if s == "" || len(s) > 48 || isNumber(s) || strings.HasPrefix(s, "-") {
		return false
	}
	hex, digits := 0, 0
	for _, c := range s {
		switch {
		case c >= '0' && c <= '9':
			hex, digits = hex+1, digits+1
		case c >= 'a' && c <= 'f':
			hex++
		case c >= 'g' && c <= 'z', c >= 'A' && c <= 'Z', strings.ContainsRune("_-.@", c):
		default:
			return false
		}
	}
	// uuid4 and hex tokens, mkstemp's tmpXXXXXXXX
	return !(digits > 1 && hex >= 8 && hex*10 >= len(s)*8) && !strings.HasPrefix(s, "tmp") && digits*2 < len(s)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '/' || r > '~' {
			return '_'
		}
		return r
	}, s)
}

func first(a []string) string {
	if len(a) == 0 {
		return ""
	}
	return a[0]
}

func hasArg(cmdline []string, arg string) bool { return slices.Contains(cmdline, arg) }

// hasWord reports whether an argument named prog (by its base name) is followed by word.
func hasWord(cmdline []string, prog, word string) bool {
	for i := range len(cmdline) - 1 {
		if filepath.Base(cmdline[i]) == prog && cmdline[i+1] == word {
			return true
		}
	}
	return false
}
