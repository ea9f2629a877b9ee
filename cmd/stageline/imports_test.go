package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/stageline/stageline"

// room is a package directory, what it may import of this module, and what of others. A room that
// ends in / holds any package below it.
type room struct {
	dir     string
	own     []string
	foreign []string
}

const (
	ebpf      = "github.com/cilium/ebpf"
	sys       = "golang.org/x/sys"
	compress  = "github.com/klauspost/compress"
	parquet   = "github.com/parquet-go/parquet-go"
	flags     = "github.com/spf13/pflag"
	protowire = "google.golang.org/protobuf/encoding/protowire"
)

// rooms is the import table of the house. "*" is everything but a command.
var rooms = []room{
	{"bpf", nil, []string{ebpf}},
	// The snapshot of what was there before the probes speaks in records of the run.
	{"collector/attach", []string{"bpf", "collector/run"}, []string{ebpf, sys}},
	// Bytes are decoded as they are drained, so that they never leave memory.
	{"collector/drain", []string{"bpf", "collector/run", "collector/wire"}, []string{ebpf, sys}},
	{"collector/wire", []string{"collector/run"}, nil},
	// Rings are found among the mappings of targets, and what is in them is decoded as it is read.
	{"collector/shadow", []string{"collector/attach", "collector/engine", "collector/run", "collector/wire"}, []string{sys}},
	{"collector/engine", []string{"collector/wire", "collector/run"}, nil},
	{"collector/host", []string{"collector/run"}, []string{sys}},
	{"collector/run", []string{"collector/run/table"}, []string{sys}},
	{"collector/run/table", nil, []string{compress, parquet}},
	// HTTP/2's frames; the client itself is loadgen's, because reads have to be stamped.
	{"loadgen", []string{"collector/run", "collector/engine", "loadgen/mock"}, []string{sys, "golang.org/x/net/http2"}},
	// The server of known times knows nothing of the client that it is to certify.
	{"loadgen/mock", []string{"collector/run"}, []string{sys}},
	{"correlate", []string{"collector/run", "collector/engine"}, nil},
	{"correlate/stat", []string{"correlate", "collector/run"}, nil},
	{"correlate/diagnose", []string{"correlate", "correlate/stat", "collector/run"}, nil},
	{"export", []string{"correlate", "correlate/stat", "correlate/diagnose", "collector/run"}, []string{parquet, protowire}},
	{"cmd/stageline", []string{"*"}, []string{flags, sys, ebpf}},
	{"cmd/refpipe", nil, []string{sys, flags}},
	{"cmd/refpipe/", []string{"cmd/refpipe"}, []string{sys}},
	{"scripts/", []string{"*"}, []string{sys}},
}

type listedPackage struct {
	ImportPath string
	Imports    []string
	Standard   bool
	Module     *struct{ Path string }
}

func TestImportRules(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Standard,Module", module+"/...").Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	var packages []listedPackage
	standard := map[string]bool{"C": true, "unsafe": true}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("read package list: %v", err)
		}
		standard[p.ImportPath] = standard[p.ImportPath] || p.Standard
		packages = append(packages, p)
	}
	checked := 0
	for _, p := range packages {
		if p.Module == nil || p.Module.Path != module {
			continue
		}
		checked++
		for _, fault := range importFaults(p, standard) {
			t.Error(fault)
		}
	}
	if checked < 5 {
		t.Fatalf("only %d packages of the module were listed", checked)
	}
}

// importFaults says which imports of a package its room does not allow.
func importFaults(p listedPackage, standard map[string]bool) []string {
	dir := strings.TrimPrefix(p.ImportPath, module+"/")
	r := roomOf(dir)
	if r == nil {
		return []string{dir + ": no room of the house; add it to the import table with what it may import"}
	}
	var faults []string
	for _, imp := range p.Imports {
		if standard[imp] {
			continue
		}
		own, isOwn := strings.CutPrefix(imp, module+"/")
		allowed := !isOwn && slices.ContainsFunc(r.foreign, func(f string) bool { return imp == f || strings.HasPrefix(imp, f+"/") })
		if isOwn {
			allowed = slices.Contains(r.own, own) || slices.Contains(r.own, "*") && !strings.HasPrefix(own, "cmd/")
		}
		if !allowed {
			faults = append(faults, dir+" must not import "+imp)
		}
	}
	return faults
}

func roomOf(dir string) *room {
	for i := range rooms {
		if r := &rooms[i]; r.dir == dir || strings.HasSuffix(r.dir, "/") && strings.HasPrefix(dir, r.dir) {
			return r
		}
	}
	return nil
}

func TestImportFaultsAreFound(t *testing.T) {
	standard := map[string]bool{"fmt": true}
	for _, c := range []struct {
		dir, imp string
		faults   int
	}{
		{"export", "fmt", 0},
		{"export", module + "/correlate", 0},
		{"export", module + "/collector/wire", 1},
		{"correlate", module + "/export", 1},
		{"correlate", "golang.org/x/sys/unix", 1},
		{"collector/run", "golang.org/x/sys/unix", 0},
		{"collector/run", "golang.org/x/system", 1},
		{"cmd/stageline", module + "/loadgen", 0},
		{"cmd/stageline", module + "/cmd/refpipe/plan", 1},
		{"cmd/refpipe", module + "/collector/run", 1},
		{"common", "fmt", 1},
	} {
		p := listedPackage{ImportPath: module + "/" + c.dir, Imports: []string{c.imp}}
		if got := importFaults(p, standard); len(got) != c.faults {
			t.Errorf("%s imports %s: %v", c.dir, c.imp, got)
		}
	}
}
