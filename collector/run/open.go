package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// OpenOptions say how much is checked.
type OpenOptions struct {
	SkipHashes bool     // do not read every file to compare it with SHA256SUMS
	Decoders   []string // "name/version" of this program's decoders, compared with the run's
}

// Run is an opened run directory. It may be read many times, by one goroutine at a time.
type Run struct {
	Dir    string
	Meta   Metadata
	Sealed bool
	Notes  []Note // what a reader of any result of this run must be told
	Stats  ReplayStats

	dir  *directory
	left []string // segments of the spool that an interrupted sealing did not remove; not part of the run
}

// ReplayStats describe the last Replay.
type ReplayStats struct {
	Records uint64
	Unknown map[uint64]uint64 // skipped records of kinds this program does not know
	Damaged []SpoolDamage     // not readable; in an unsealed run, the torn tail
}

// Open opens a run. A sealed run is compared with its hashes first; one that is not sealed is
// readable up to its last whole record, and a note says so.
func Open(dir string, o OpenOptions) (*Run, error) {
	d, err := openDirectory(dir)
	if err != nil {
		return nil, err
	}
	r, err := open(d, o)
	if err != nil {
		d.close()
		return nil, err
	}
	return r, nil
}

func open(d *directory, o OpenOptions) (*Run, error) {
	meta, err := d.readMeta()
	if err != nil {
		return nil, err
	}
	r := &Run{Dir: d.path, Meta: *meta, dir: d}
	sums, err := d.open(FileSums, os.O_RDONLY)
	switch {
	case err == nil:
		sums.Close()
		r.Sealed = true
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	case meta.Sealed != nil:
		return nil, fmt.Errorf("%s: %w: %s is gone, or sealing was interrupted; `stageline seal %s` completes it", d.path, ErrIntegrity, FileSums, d.path)
	}
	if r.Sealed && meta.Sealed == nil {
		return nil, fmt.Errorf("%s: %w: %s does not say that it is sealed", d.path, ErrIntegrity, FileMetadata)
	}
	if r.Sealed && !o.SkipHashes {
		if r.left, err = d.verify(meta.tables()); err != nil {
			return nil, err
		}
	}
	r.remark(o)
	return r, nil
}

// remark collects the notes on a run.
func (r *Run) remark(o OpenOptions) {
	add := func(code, format string, args ...any) {
		r.Notes = append(r.Notes, Note{Level: "warn", Code: code, Text: fmt.Sprintf(format, args...)})
	}
	if !r.Sealed {
		add("unsealed", "the run is not sealed: read up to the last whole record, nothing vouches for it; `stageline seal %s` completes it", r.Dir)
	}
	if len(r.left) > 0 {
		add("spool-left", "sealing was interrupted when all was done but removing %d files of the spool, which are not read; `stageline seal %s` removes them", len(r.left), r.Dir)
	}
	if !r.Meta.Closed {
		add("killed", "the recorder has not ended by itself: up to one second before the last record may be missing")
	}
	if r.Sealed && o.SkipHashes {
		add("unverified", "the hashes of the run were not checked")
	}
	if r.Meta.Spool.Error != "" {
		add("spool-error", "recording stopped early: %s", r.Meta.Spool.Error)
	}
	if step, uncertain, ok := r.Meta.Clocks.StepNS(); ok && max(step, -step) > uncertain+10e6 {
		add("wall-clock-step", "the wall clock moved by %.3f s against the monotonic clock while recording; times of day are those of the start", float64(step)/1e9)
	}
	mine := make(map[string]string)
	for _, d := range o.Decoders {
		name, version, _ := strings.Cut(d, "/")
		mine[name] = version
	}
	for _, d := range r.Meta.Decoders {
		name, version, _ := strings.Cut(d, "/")
		if v, ok := mine[name]; ok && v != version {
			add("decoder-version", "messages were decoded by %s, this program has %s/%s; payload is not kept, so they are not decoded again", d, name, v)
		}
	}
}

// File opens one more file of the run, such as experiment.yaml. A file that the run lacks is an
// error that wraps os.ErrNotExist.
func (r *Run) File(name string) (*os.File, error) { return r.dir.open(name, os.O_RDONLY) }

// Close releases the directory.
func (r *Run) Close() error { return r.dir.close() }

// Replay passes all kernel records to sink in the order they were recorded, in constant memory.
// Strings and slices of a record may be kept, the record itself not. What could not be written or
// cannot be read follows as Loss records with reason "spool".
func (r *Run) Replay(sink Sink) error {
	r.Stats = ReplayStats{Unknown: make(map[uint64]uint64)}
	re := &replay{sink: sink, stats: &r.Stats, runID: r.Meta.RunID}
	if r.Sealed && r.Meta.tables() {
		if err := r.replayTables(re); err != nil {
			return fmt.Errorf("replay %s: %w", r.Dir, err)
		}
	} else if err := r.replaySpool(re); err != nil {
		return err
	}
	r.losses(re)
	return nil
}

func (r *Run) replaySpool(re *replay) error {
	last, err := r.dir.segments()
	if err != nil {
		return err
	}
	for n := range last {
		if err := r.replaySegment(re, n); err != nil {
			return fmt.Errorf("replay %s/%s: %w", r.Dir, segmentName(n), err)
		}
	}
	return nil
}

func (r *Run) replaySegment(re *replay, n uint32) error {
	f, err := r.dir.open(segmentName(n), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	err = re.segment(f, st.Size(), n)
	var d *damage
	if !errors.As(err, &d) {
		return err
	}
	found := SpoolDamage{Segment: n, Offset: d.Offset, Bytes: d.Bytes, Why: d.Why}
	if r.Sealed {
		// Only what sealing found may be there.
		for _, known := range r.Meta.Spool.Damaged {
			if known.Segment == n && known.Offset == d.Offset {
				r.Stats.Damaged = append(r.Stats.Damaged, found)
				return nil
			}
		}
		return fmt.Errorf("%w: %w", ErrIntegrity, d)
	}
	r.Stats.Damaged = append(r.Stats.Damaged, found)
	return nil
}

// losses states what the spool itself lost.
func (r *Run) losses(re *replay) {
	for _, l := range r.Meta.Spool.Lost {
		re.sink.Loss(&Loss{FromNS: l.FromNS, ToNS: l.ToNS, Reason: "spool", What: l.What, N: l.N, Bytes: l.Bytes})
	}
	end := re.last
	if r.Meta.Clocks.End != nil {
		end = max(end, r.Meta.Clocks.End.MonoNS)
	}
	// How many records a damaged stretch held cannot be known; at least one.
	for _, d := range r.Stats.Damaged {
		re.sink.Loss(&Loss{FromNS: re.last, ToNS: end, Reason: "spool", What: "damaged", N: 1, Bytes: uint64(d.Bytes)})
	}
	if torn := r.Meta.Spool.TornBytes; torn > 0 {
		re.sink.Loss(&Loss{FromNS: re.last, ToNS: end, Reason: "spool", What: "torn", N: 1, Bytes: uint64(torn)})
	}
}

// segments counts the segments, which are numbered without a hole.
func (d *directory) segments() (uint32, error) {
	names, err := d.list()
	if err != nil {
		return 0, err
	}
	n := uint32(0)
	for _, name := range names {
		if !isSpool(name) {
			continue
		}
		if name != segmentName(n) {
			return 0, fmt.Errorf("%s: %s is missing (next is %s)", d.path, segmentName(n), name)
		}
		n++
	}
	return n, nil
}

const maxLine = 64 << 20

// Requests passes all lines of requests.jsonl in file order. A last line without an end, as a killed
// recorder leaves it, is left out.
func (r *Run) Requests(each func(*Request) error) error {
	return lines(r.dir, FileRequests, each)
}

// Events passes all lines of events.jsonl; a run without one has none.
func (r *Run) Events(each func(*Event) error) error {
	return lines(r.dir, FileEvents, each)
}

func lines[T any](d *directory, name string, each func(*T) error) error {
	f, err := d.open(name, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.LimitReader(f, st.Size()), 64<<10) // a recorder may be adding to it
	var line []byte
	for n := 1; ; {
		piece, err := in.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case err == bufio.ErrBufferFull && len(line) < maxLine:
			continue
		case err == bufio.ErrBufferFull:
			return fmt.Errorf("read %s line %d: longer than %d bytes, which no run has", f.Name(), n, maxLine)
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("read %s line %d: %w", f.Name(), n, err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			v := new(T)
			if err := json.Unmarshal(line, v); err != nil {
				return fmt.Errorf("read %s line %d: %w", f.Name(), n, err)
			}
			if err := each(v); err != nil {
				return err
			}
		}
		line = line[:0]
		n++
	}
}
