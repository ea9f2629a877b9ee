// Package engine says what is particular to one engine: how its processes are recognised, which
// stage a process is, what its frames call an id, and where it reads a request id from.
//
// Everything here is a hint. The fields of all engines are merged into one set of rules
// (GenericRules), so that frames of an engine nobody described decode as well, and a process that
// no profile knows still gets a name (StageOf). A new engine is one new file with one Profile.
package engine

import (
	"slices"

	"github.com/stageline/stageline/collector/wire"
)

// ProcView is what is known of a process when it is named.
type ProcView struct {
	TGID, PPID uint32
	Comm       string // at most 15 bytes
	Exe        string
	Cmdline    []string // a process title set by setproctitle is Cmdline[0]
	Bound      []string // paths of unix sockets and "tcp:ip:port" it has bound
	PeerBound  []string // the same of the sockets it is connected to
	// Parent and Peers, where known, let a process be told from its surroundings.
	Parent *ProcView
}

// Profile describes one engine.
type Profile struct {
	Name    string
	Checked string // versions whose sources or traffic the profile was compared with
	// Matches reports whether a process belongs to the engine.
	Matches func(p *ProcView) bool
	// Stage names the stage of a process that Matches; "" leaves it to the generic rules.
	Stage func(p *ProcView) (name, rule string)
	Rules wire.Rules
	// Where the engine reads a request id from; "" nowhere.
	IDHeader string
	IDField  string // of the JSON body
	IDs      IDShape
}

// IDShape says how an engine derives ids from the one a request came with.
type IDShape struct {
	Prefixes   []string // "chatcmpl-": put before it
	HexSuffix  int      // digits of a random suffix "-xxxxxxxx"; 0 none
	Companions []string // suffixes of requests derived from one: "__cfg_text"
}

// profiles in the order in which they are asked: the more particular first.
var profiles = []*Profile{sglangOmni, vllmOmni, vllm, ollama, generic}

// Profiles returns all profiles; the generic one, which matches everything, is last.
func Profiles() []*Profile { return slices.Clone(profiles) }

// ByName returns a profile, nil if there is none of that name.
func ByName(name string) *Profile {
	for _, p := range profiles {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Of returns the profile of a process.
func Of(p *ProcView) *Profile {
	for _, f := range profiles {
		if f.Matches(p) {
			return f
		}
	}
	return generic
}

// GenericRules returns the union of the rules of all engines.
func GenericRules() *wire.Rules {
	r := &wire.Rules{Name: "generic/1"}
	for _, p := range profiles {
		q := &p.Rules
		for _, l := range []struct {
			to   *[]string
			from []string
		}{
			{&r.IDFields, q.IDFields}, {&r.TypeFields, q.TypeFields}, {&r.FromFields, q.FromFields},
			{&r.ToFields, q.ToFields}, {&r.ChunkFields, q.ChunkFields}, {&r.LastFields, q.LastFields},
			{&r.ShmNameFields, q.ShmNameFields}, {&r.ShmSizeFields, q.ShmSizeFields},
			{&r.HTTPIDHeaders, q.HTTPIDHeaders}, {&r.HTTPBodyFields, q.HTTPBodyFields},
		} {
			for _, v := range l.from {
				if !slices.Contains(*l.to, v) {
					*l.to = append(*l.to, v)
				}
			}
		}
		r.ArrayIDIndex = append(r.ArrayIDIndex, q.ArrayIDIndex...)
		r.ArrayIDPaths = append(r.ArrayIDPaths, q.ArrayIDPaths...)
		if len(r.ByteTypes) == 0 {
			r.ByteTypes = q.ByteTypes
		}
	}
	return r
}

// LoadHints says where to put the request id so that the named engine uses it. An engine that is
// not known gets both.
func LoadHints(name string) (header, field string) {
	p := ByName(name)
	if p == nil {
		p = generic
	}
	return p.IDHeader, p.IDField
}

// Derived reports whether id may have been derived from the request id base by this engine, and
// how: "contains" or "companion".
func (p *Profile) Derived(base, id string) (reason string, ok bool) {
	if base == "" || len(id) < len(base) {
		return "", false
	}
	rest := id
	for _, pre := range p.IDs.Prefixes {
		if len(rest) > len(pre) && rest[:len(pre)] == pre {
			rest = rest[len(pre):]
			break
		}
	}
	if len(rest) < len(base) || rest[:len(base)] != base {
		return "", false
	}
	rest = rest[len(base):]
	for _, c := range p.IDs.Companions {
		if len(rest) >= len(c) && rest[len(rest)-len(c):] == c && p.suffix(rest[:len(rest)-len(c)]) {
			return "companion", true
		}
	}
	return "contains", p.suffix(rest)
}

// suffix reports whether s is empty or the random suffix.
func (p *Profile) suffix(s string) bool {
	if s == "" {
		return true
	}
	if p.IDs.HexSuffix == 0 || len(s) != p.IDs.HexSuffix+1 || s[0] != '-' {
		return false
	}
	for _, c := range s[1:] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
