package run

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Metadata is metadata.json: what was recorded, by what, where, and what became of the recording.
// Create fills whatever the caller left empty of the parts marked *.
type Metadata struct {
	Schema   string   `json:"schema_version"` // *
	RunID    string   `json:"run_id"`         // *
	Tool     Tool     `json:"tool"`           // *
	Decoders []string `json:"decoders"`       // "name/version" of each decoder that produced records
	Host     Host     `json:"host"`           // *
	Clocks   Clocks   `json:"clocks"`         // * start at Create, end at Close
	Targets  []Target `json:"targets"`
	// TargetsUnlisted counts targets beyond the first thousand that ended; their records are in the run.
	TargetsUnlisted int               `json:"targets_unlisted,omitempty"`
	Options         map[string]string `json:"options"`
	Ledger          []Fact            `json:"ledger"`   // versions found (contract C2)
	Closed          bool              `json:"closed"`   // the recorder ended by itself
	Overhead        *Overhead         `json:"overhead"` // of the recording; null: not known
	Spool           SpoolInfo         `json:"spool"`
	Sealed          *SealInfo         `json:"sealed"`
}

// Tool is the program that wrote the run.
type Tool struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Revision string `json:"revision"` // of its source; "" when built outside a checkout
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
}

// Host is the machine.
type Host struct {
	Name    string `json:"name"`
	Kernel  string `json:"kernel"` // release
	Build   string `json:"build"`  // version line of uname
	Machine string `json:"machine"`
	CPUs    int    `json:"cpus"`
	BootID  string `json:"boot_id"` // monotonic times of two runs compare only within one boot
}

// Clocks brackets the wall clock at both ends, so that a step of it in between is visible.
type Clocks struct {
	Start *ClockReading `json:"start"`
	End   *ClockReading `json:"end"` // null: the recorder was killed
}

// ClockReading is one reading of three clocks, in nanoseconds. MonoNS is the middle of the bracket;
// the others were read within WidthNS/2 of it.
type ClockReading struct {
	MonoNS  int64 `json:"mono_ns"`
	RealNS  int64 `json:"real_ns"`
	BootNS  int64 `json:"boot_ns"`
	WidthNS int64 `json:"width_ns"`
}

// Target is a process that was attached to.
type Target struct {
	TGID    uint32   `json:"tgid"`
	NSPID   uint32   `json:"ns_pid,omitempty"`
	StartNS int64    `json:"start_boot_ns"` // boot clock; tells reused PIDs apart
	Comm    string   `json:"comm"`
	Exe     string   `json:"exe"`
	Cmdline []string `json:"cmdline"` // secrets redacted when written
	Named   bool     `json:"named"`   // by the user; else followed
}

// Fact is one entry of the ledger of versions.
type Fact struct {
	TGID   uint32 `json:"tgid,omitempty"` // 0: the host
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"` // file or call it was read from
}

// SpoolInfo accounts for the kernel records.
type SpoolInfo struct {
	Segments uint32            `json:"segments"`
	Bytes    int64             `json:"bytes"`
	Records  map[string]uint64 `json:"records"` // by kind
	Lost     []SpoolLoss       `json:"lost"`    // taken by the recorder, not written
	Damaged  []SpoolDamage     `json:"damaged"` // written, not readable; found at sealing
	Error    string            `json:"error,omitempty"`
	// Bytes after the last whole record and line, cut at sealing.
	TornBytes        int64 `json:"torn_bytes"`
	TornRequestBytes int64 `json:"torn_request_bytes"`
}

// SpoolLoss counts records of one kind that did not reach the disk.
type SpoolLoss struct {
	What   string `json:"what"`
	N      uint64 `json:"n"`
	Bytes  uint64 `json:"bytes"`
	FromNS int64  `json:"from_mono_ns"`
	ToNS   int64  `json:"to_mono_ns"`
}

// SpoolDamage is a stretch of a segment, up to its end, that holds no whole record.
type SpoolDamage struct {
	Segment uint32 `json:"segment"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"`
	Why     string `json:"why"`
}

// SealInfo says when and by what the run was completed.
type SealInfo struct {
	At             time.Time `json:"at"`
	Tool           Tool      `json:"tool"`
	EventsRevision string    `json:"events_revision,omitempty"` // of the analysis that wrote events.jsonl
	Kernel         string    `json:"kernel_format"`             // KernelParquet | KernelSpool; "" before schema 1.2: spool
	WhySpool       string    `json:"why_spool,omitempty"`
}

// Forms of the records in kernel/ of a sealed run.
const (
	KernelParquet = "parquet"
	KernelSpool   = "spool"
)

// tables reports that the records of the sealed run are in tables.
func (m *Metadata) tables() bool { return m.Sealed != nil && m.Sealed.Kernel == KernelParquet }

// ReadClocks takes the tightest of n brackets.
func ReadClocks(n int) (*ClockReading, error) {
	var best *ClockReading
	for range n {
		var before, real, boot, after unix.Timespec
		err := errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &before),
			unix.ClockGettime(unix.CLOCK_REALTIME, &real),
			unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot),
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after))
		if err != nil {
			return nil, fmt.Errorf("read clocks: %w", err)
		}
		width := after.Nano() - before.Nano()
		if best == nil || width < best.WidthNS {
			best = &ClockReading{MonoNS: before.Nano() + width/2, RealNS: real.Nano(), BootNS: boot.Nano(), WidthNS: width}
		}
	}
	return best, nil
}

// WallNS converts a monotonic time to the wall clock as it stood at the start; 0 when unknown.
func (c *Clocks) WallNS(monoNS int64) int64 {
	if c.Start == nil || monoNS == 0 {
		return 0
	}
	return monoNS - c.Start.MonoNS + c.Start.RealNS
}

// StepNS is how far the wall clock moved against the monotonic clock between both readings; ok is
// false when one is missing. Up to UncertainNS of it is reading error.
func (c *Clocks) StepNS() (step, uncertainNS int64, ok bool) {
	if c.Start == nil || c.End == nil {
		return 0, 0, false
	}
	step = (c.End.RealNS - c.End.MonoNS) - (c.Start.RealNS - c.Start.MonoNS)
	return step, (c.Start.WidthNS + c.End.WidthNS) / 2, true
}

// fill completes what the caller left empty.
func (m *Metadata) fill() error {
	m.Schema = SchemaVersion
	if m.Tool == (Tool{}) {
		m.Tool = ThisTool()
	}
	if m.Host == (Host{}) {
		m.Host = ThisHost()
	}
	var err error
	if m.Clocks.Start == nil {
		m.Clocks.Start, err = ReadClocks(16)
	}
	if m.RunID == "" {
		m.RunID = NewRunID(time.Now())
	}
	return err
}

// NewRunID returns an id that sorts by time.
func NewRunID(at time.Time) string {
	var b [5]byte
	rand.Read(b[:]) // never fails
	return at.UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(b[:])
}

// ThisTool describes the running program from its build information.
func ThisTool() Tool {
	t := Tool{Name: "stageline", Version: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return t
	}
	if info.Main.Version != "" {
		t.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			t.Revision = s.Value
		case "vcs.modified":
			t.Modified = s.Value == "true"
		}
	}
	return t
}

// ThisHost describes the machine; what cannot be read stays empty.
func ThisHost() Host {
	h := Host{CPUs: runtime.NumCPU()}
	var n unix.Utsname
	if unix.Uname(&n) == nil {
		h.Name = unix.ByteSliceToString(n.Nodename[:])
		h.Kernel = unix.ByteSliceToString(n.Release[:])
		h.Build = unix.ByteSliceToString(n.Version[:])
		h.Machine = unix.ByteSliceToString(n.Machine[:])
	}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		h.BootID = strings.TrimSpace(string(b))
	}
	return h
}

func (d *directory) writeMeta(m *Metadata) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return fmt.Errorf("encode %s: %w", FileMetadata, err)
	}
	return d.replace(FileMetadata, func(w io.Writer) error {
		_, err := w.Write(b.Bytes())
		return err
	})
}

// isRun reports that a directory looks like a recorded run.
func isRun(dir string) bool {
	st, err := os.Lstat(filepath.Join(dir, FileMetadata))
	return err == nil && st.Mode().IsRegular()
}

func (d *directory) readMeta() (*Metadata, error) {
	b, err := d.small(FileMetadata)
	if errors.Is(err, os.ErrNotExist) {
		hint := ""
		if inner := filepath.Join(d.path, "run"); isRun(inner) {
			hint = "; " + inner + " is one"
		}
		return nil, fmt.Errorf("%s is not a recorded run: it has no %s%s", d.path, FileMetadata, hint)
	}
	if err != nil {
		return nil, err
	}
	m := new(Metadata)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("read %s/%s: %w", d.path, FileMetadata, err)
	}
	if m.RunID == "" {
		return nil, fmt.Errorf("%s/%s names no run", d.path, FileMetadata)
	}
	return m, checkSchema(d.path, m.Schema)
}

// checkSchema refuses another major version; a newer minor one only adds.
func checkSchema(where, schema string) error {
	major, _, _ := strings.Cut(schema, ".")
	mine, _, _ := strings.Cut(SchemaVersion, ".")
	if major != mine {
		return fmt.Errorf("%s was recorded with schema %.20q, this program reads %s.x; use the stageline version that recorded it", where, schema, mine)
	}
	return nil
}

// newerSchema reports a later minor version than this program's.
func newerSchema(schema string) bool {
	_, minor, _ := strings.Cut(schema, ".")
	_, mine, _ := strings.Cut(SchemaVersion, ".")
	a, err := strconv.Atoi(minor)
	b, _ := strconv.Atoi(mine)
	return err != nil || a > b
}
