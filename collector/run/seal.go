package run

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrSealed is returned (wrapped) by Seal for a run that is complete; nothing was changed.
var ErrSealed = errors.New("the run is already sealed")

// SealReport says what sealing found and did.
type SealReport struct {
	RunID   string
	Killed  bool      // the recorder had not ended by itself
	Spool   SpoolInfo // as in metadata.json
	Kernel  string    // form of the records, as in SealInfo
	Files   int       // covered by SHA256SUMS
	Bytes   int64
	Elapsed time.Duration
}

// SealOption adds to what Seal does.
type SealOption func(*sealing)

type sealing struct {
	events   func(*Run, io.Writer) error
	revision string
	keep     bool
}

// KeepSpool leaves the records in the form in which they were recorded. It needs no further space.
func KeepSpool() SealOption { return func(s *sealing) { s.keep = true } }

// WithEvents lets an analysis write events.jsonl from the completed records; revision names it in
// metadata.json. When it fails the run stays unsealed.
func WithEvents(revision string, write func(*Run, io.Writer) error) SealOption {
	return func(s *sealing) { s.events, s.revision = write, revision }
}

// Seal completes a run: cuts what a killed recorder left unfinished, has events.jsonl written, turns
// the spool into Parquet, closes metadata.json and lists the hashes of all files. Only then the spool
// is removed: whenever Seal is interrupted, it can be repeated. A spool that is damaged, or newer than
// this program, stays (SealInfo.WhySpool). Seal refuses a directory in which a recorder is alive
// (ErrBusy).
func Seal(dir string, options ...SealOption) (SealReport, error) {
	began := time.Now()
	var s sealing
	for _, o := range options {
		o(&s)
	}
	d, err := openDirectory(dir)
	if err != nil {
		return SealReport{}, err
	}
	defer d.close()
	report, err := s.seal(d)
	report.Elapsed = time.Since(began)
	if err != nil {
		return report, fmt.Errorf("seal: %w", err)
	}
	return report, nil
}

func (s *sealing) seal(d *directory) (SealReport, error) {
	var report SealReport
	if err := d.lock(); err != nil {
		return report, err
	}
	meta, err := d.readMeta()
	if err != nil {
		return report, err
	}
	report.RunID, report.Killed, report.Spool = meta.RunID, !meta.Closed, meta.Spool
	if f, err := d.open(FileSums, os.O_RDONLY); err == nil {
		f.Close()
		err = d.finishRemoval(meta, &report)
		return report, err
	} else if !errors.Is(err, os.ErrNotExist) {
		return report, err
	}
	if meta.tables() {
		if err := d.checkTables(meta); err != nil {
			return report, err
		}
		err = s.closeRun(d, meta, &report)
		return report, err
	}
	if err := d.sweep(false); err != nil {
		return report, err
	}
	newer, err := d.complete(meta)
	if err != nil {
		return report, err
	}
	// What was cut must not be forgotten when the rest fails.
	if err := d.writeMeta(meta); err != nil {
		return report, err
	}
	if err := s.writeEvents(d, meta); err != nil {
		return report, err
	}
	sealed := &SealInfo{At: time.Now().UTC(), Tool: ThisTool(), EventsRevision: s.revision, Kernel: KernelSpool}
	if sealed.WhySpool = whySpool(meta, s.keep, newer); sealed.WhySpool == "" {
		if err := d.convert(meta); err != nil {
			return report, err
		}
		sealed.Kernel = KernelParquet
	}
	meta.Sealed = sealed
	if !newer {
		meta.Schema = SchemaVersion
	}
	if err := d.writeMeta(meta); err != nil {
		return report, err
	}
	err = s.closeRun(d, meta, &report)
	return report, err
}

// closeRun ends the sealing of a run whose metadata.json says what it is.
func (s *sealing) closeRun(d *directory, meta *Metadata, report *SealReport) (err error) {
	report.Spool, report.Kernel = meta.Spool, meta.Sealed.Kernel
	if err := d.sweep(meta.tables()); err != nil {
		return err
	}
	report.Files, report.Bytes, err = d.closeFiles(meta.tables())
	if err == nil && meta.tables() {
		err = d.removeSpool()
	}
	return err
}

// checkTables reads the tables of a run that was sealed but for its hashes. The spool may be gone, so
// that they are not made anew.
func (d *directory) checkTables(meta *Metadata) error {
	r := &Run{Dir: d.path, Meta: *meta, dir: d}
	sink := &taker{take: func(uint64) {}}
	if err := r.replayTables(&replay{sink: sink, stats: new(ReplayStats)}); err != nil {
		return fmt.Errorf("%s: %w; %s is missing too, so nothing vouches for this run", d.path, err, FileSums)
	}
	return nil
}

// finishRemoval removes what an interrupted sealing left of the spool of a run that is complete.
func (d *directory) finishRemoval(meta *Metadata, report *SealReport) error {
	sealed := fmt.Errorf("%s: %w; it cannot be changed any more", d.path, ErrSealed)
	if !meta.tables() {
		return sealed
	}
	left, err := d.verify(true)
	switch {
	case err != nil:
		return err
	case len(left) == 0:
		return sealed
	}
	if err := d.removeSpool(); err != nil {
		return err
	}
	report.Kernel = meta.Sealed.Kernel
	names, err := d.list()
	for _, name := range names {
		if st, e := os.Lstat(filepath.Join(d.path, name)); e == nil && name != FileSums {
			report.Files, report.Bytes = report.Files+1, report.Bytes+st.Size()
		}
	}
	return err
}

// sweep removes the temporary files of an interrupted recorder or sealing, and opens again what the
// latter had made read-only. Tables are removed too unless they are part of the run already: they are
// made again from the spool.
func (d *directory) sweep(tables bool) error {
	names, err := d.list()
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, suffixTemp) || !tables && isTable(name) {
			err = d.remove(name)
		} else {
			err = d.chmod(name, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// complete checks every record, cuts the torn ends, and brings the account up to date. newer: a
// segment was written under a later minor version of the schema.
func (d *directory) complete(meta *Metadata) (newer bool, err error) {
	segments, err := d.segments()
	if err != nil {
		return false, err
	}
	info := &meta.Spool
	info.Segments, info.Bytes, info.Records, info.Damaged = segments, 0, make(map[string]uint64), nil
	for n := range segments {
		if err := d.completeSegment(info, n, n+1 == segments); err != nil {
			return false, err
		}
	}
	torn, err := d.cutLine(FileRequests)
	info.TornRequestBytes += torn
	return newerSchema(meta.Schema), err
}

func (d *directory) completeSegment(info *SpoolInfo, n uint32, last bool) error {
	f, err := d.open(segmentName(n), os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	size := st.Size()
	bad, err := countRecords(f, size, info.Records)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name(), err)
	}
	switch {
	case bad == nil:
	case last:
		if err := f.Truncate(bad.Offset); err != nil {
			return fmt.Errorf("cut the torn end of %s: %w", f.Name(), err)
		}
		size = bad.Offset
		info.TornBytes += bad.Bytes
	default: // not the end of the recording: evidence of a fault, kept as it is
		info.Damaged = append(info.Damaged, SpoolDamage{Segment: n, Offset: bad.Offset, Bytes: bad.Bytes, Why: bad.Why})
	}
	info.Bytes += size
	return f.Sync()
}

// countRecords counts the whole records of a segment by kind name and returns where they end, if
// that is not the end of the segment.
func countRecords(r io.Reader, size int64, counts map[string]uint64) (*damage, error) {
	var kinds [kindEnd + 1]uint64 // the last: kinds this program does not know
	defer func() {
		for k, n := range kinds[kindEndpoint:kindEnd] {
			if n > 0 {
				counts[kindNames[kindEndpoint+k]] += n
			}
		}
		if kinds[kindEnd] > 0 {
			counts["unknown"] += kinds[kindEnd]
		}
	}()
	s, err := newScanner(r, size)
	for err == nil {
		var payload []byte
		if payload, err = s.next(); err == nil {
			kinds[min(payload[0], kindEnd)]++
		}
	}
	var d *damage
	switch {
	case err == io.EOF:
		return nil, nil
	case errors.As(err, &d):
		return d, nil
	}
	return nil, err
}

// cutLine removes a last line without an end and returns its length.
func (d *directory) cutLine(name string) (int64, error) {
	f, err := d.open(name, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := st.Size()
	buf := make([]byte, 64<<10)
	for end > 0 {
		n := min(end, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return 0, fmt.Errorf("read %s: %w", f.Name(), err)
		}
		if at := strings.LastIndexByte(string(buf[:n]), '\n'); at >= 0 {
			end = end - n + int64(at) + 1
			break
		}
		end -= n
	}
	if torn := st.Size() - end; torn > 0 {
		if err := f.Truncate(end); err != nil {
			return 0, fmt.Errorf("cut the torn line of %s: %w", f.Name(), err)
		}
		return torn, f.Sync()
	}
	return 0, nil
}

func (s *sealing) writeEvents(d *directory, meta *Metadata) error {
	if s.events == nil {
		return nil
	}
	r := &Run{Dir: d.path, Meta: *meta, dir: d}
	err := d.replace(FileEvents, func(f io.Writer) error {
		w := bufio.NewWriterSize(f, 64<<10)
		if err := s.events(r, w); err != nil {
			return err
		}
		return w.Flush()
	})
	if err != nil {
		return fmt.Errorf("write %s/%s: %w", d.path, FileEvents, err)
	}
	return nil
}

// closeFiles makes every file read-only and stored, then lists their hashes. The spool of a run with
// tables is left out.
func (d *directory) closeFiles(tables bool) (files int, size int64, err error) {
	names, err := d.list()
	if err != nil {
		return 0, 0, err
	}
	var sums []fileSum
	for _, name := range names {
		if tables && isSpool(name) {
			continue
		}
		sum, n, err := d.sumFile(name)
		if err != nil {
			return 0, 0, err
		}
		sums, size = append(sums, sum), size+n
		if err := d.chmod(name, 0o400); err != nil {
			return 0, 0, err
		}
	}
	if err := d.writeSums(sums); err != nil {
		return 0, 0, err
	}
	return len(sums), size, d.chmod(FileSums, 0o400)
}

func (d *directory) chmod(name string, mode os.FileMode) error {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	return f.Sync()
}
