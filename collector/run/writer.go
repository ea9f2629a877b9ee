package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	flushEvery   = 500 * time.Millisecond // with it a killed recorder loses less than a second
	reserveBytes = 64 << 10
)

// Writer writes a run while it is recorded. It is a Sink; the sink methods are meant for one
// goroutine, everything else may be called from any. A write error stops the spool, is kept for
// Err, and what comes later is counted as lost.
type Writer struct {
	dir   *directory
	stop  chan struct{}
	done  chan struct{}
	paced chan bool // true: flushes come from outside; see Pace

	mu     sync.Mutex
	spool  *spool
	closed bool

	metaMu sync.Mutex
	meta   Metadata

	req     requestLog
	quality qualityLog
}

// Create makes a run directory (0700) and takes it for this process. dir must be absent or empty.
func Create(dir string, meta Metadata) (*Writer, error) {
	return create(dir, meta, segmentBytes, nil)
}

// create lets a test choose the segment size and drive the flushes.
func create(dir string, meta Metadata, limit int64, tick <-chan time.Time) (w *Writer, err error) {
	made, err := makeDirectory(dir)
	if err != nil {
		return nil, err
	}
	d, err := openDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := d.lock(); err != nil {
		return nil, err
	}
	if err := d.empty(); err != nil {
		return nil, err
	}
	d.made = made
	defer func() {
		if err != nil {
			d.unclaim()
		}
	}()
	if err := d.claim(); err != nil {
		return nil, err
	}
	if err := meta.fill(); err != nil {
		return nil, err
	}
	w = &Writer{dir: d, meta: meta, stop: make(chan struct{}), done: make(chan struct{}), paced: make(chan bool)}
	w.spool = newSpool(d, meta.RunID, limit)
	w.spool.onStop = w.freeReserve
	w.req.onStop = w.freeReserve
	w.req.dir = dir
	if err := w.UpdateMeta(nil); err != nil {
		return nil, err
	}
	if w.req.f, err = d.open(FileRequests, os.O_WRONLY|os.O_CREATE|os.O_EXCL); err != nil {
		return nil, err
	}
	w.spool.openSegment()
	if w.spool.flush(); w.spool.err != nil {
		w.req.f.Close()
		return nil, w.spool.err
	}
	go w.flushLoop(tick)
	return w, nil
}

// makeDirectory tells whether the directory was not there before.
func makeDirectory(dir string) (made bool, err error) {
	if parent := filepath.Dir(filepath.Clean(dir)); parent != "." {
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return false, fmt.Errorf("create run directory: %w", err)
		}
	}
	err = os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return false, fmt.Errorf("create run directory: %w", err)
	}
	return err == nil, nil
}

// empty refuses a directory that holds anything.
func (d *directory) empty() error {
	if names, err := os.ReadDir(d.path); err != nil {
		return fmt.Errorf("create run: %w", err)
	} else if len(names) > 0 {
		return fmt.Errorf("create run: %s is not empty (it has %s); a run is never overwritten, choose another directory", d.path, names[0].Name())
	}
	return nil
}

// claim lays out an empty directory.
func (d *directory) claim() error {
	if err := d.f.Chmod(0o700); err != nil {
		return fmt.Errorf("create run: %w", err)
	}
	if err := unix.Mkdirat(int(d.f.Fd()), dirKernel, 0o700); err != nil {
		return fmt.Errorf("create run: make %s/%s: %w", d.path, dirKernel, err)
	}
	// Without this metadata.json could not be replaced on a full disk, and the loss would be untold.
	f, err := d.open(fileReserve, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return fmt.Errorf("create run: %w", err)
	}
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), 0, 0, reserveBytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.Write(make([]byte, reserveBytes))
	}
	if err != nil {
		return fmt.Errorf("create run: reserve %d bytes in %s: %w", reserveBytes, d.path, err)
	}
	return nil
}

// unclaim takes back what a run that never began has put into its directory, so that the same command
// can be tried again.
func (d *directory) unclaim() {
	for _, name := range []string{fileReserve, FileMetadata, FileMetadata + suffixTemp, FileRequests, FileQuality, segmentName(0)} {
		_ = d.remove(name)
	}
	_ = unix.Unlinkat(int(d.f.Fd()), dirKernel, unix.AT_REMOVEDIR)
	if d.made {
		_ = os.Remove(d.path) // only an empty directory goes
	}
}

// Discard ends a recording that never began, and leaves nothing of it. A run of more than a moment is
// not touched.
func (w *Writer) Discard() error {
	fd, err := unix.FcntlInt(w.dir.f.Fd(), unix.F_DUPFD_CLOEXEC, 0) // keeps the lock
	if err != nil {
		return errors.Join(err, w.Close())
	}
	d := &directory{path: w.dir.path, f: os.NewFile(uintptr(fd), w.dir.path), made: w.dir.made}
	err = w.Close()
	d.unclaim()
	return errors.Join(err, d.close())
}

func (w *Writer) freeReserve() { _ = w.dir.remove(fileReserve) }

func (w *Writer) flushLoop(tick <-chan time.Time) {
	defer close(w.done)
	own := time.NewTicker(flushEvery)
	defer own.Stop()
	if tick == nil {
		tick = own.C
	}
	for paced := false; ; {
		from := tick
		if paced {
			from = nil
		}
		select {
		case <-from:
			w.Flush()
		case paced = <-w.paced:
			if own.Stop(); !paced {
				own.Reset(flushEvery)
			}
		case <-w.stop:
			return
		}
	}
}

// Pace leaves it to the caller, who wakes up anyway, to call Flush often enough, until the returned
// function is called. A timer for it would be much of what a recorder of a quiet engine does.
func (w *Writer) Pace() (end func()) {
	tell := func(paced bool) {
		select {
		case w.paced <- paced:
		case <-w.done:
		}
	}
	tell(true)
	return func() { tell(false) }
}

// Flush passes what was written so far to the kernel, which keeps it whatever becomes of this process.
func (w *Writer) Flush() {
	w.mu.Lock()
	w.spool.flush()
	w.mu.Unlock()
	w.req.flush()
}

// RunID is the id of the run being written.
func (w *Writer) RunID() string { return w.spool.runID }

// Dir is the run's directory.
func (w *Writer) Dir() string { return w.dir.path }

// Err returns the first write error. After it nothing more is written.
func (w *Writer) Err() error {
	w.mu.Lock()
	err := w.spool.err
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.req.error()
}

// Request appends one line to requests.jsonl. Lines reach the file in batches, within a second.
func (w *Writer) Request(r *Request) error {
	if err := w.Err(); err != nil {
		w.req.lose()
		return err
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode request %q: %w", r.ID, err)
	}
	err = w.req.add(line)
	if r.Quality != nil {
		err = errors.Join(err, w.Quality(r.Quality))
	}
	return err
}

// UpdateMeta changes metadata.json atomically. change may be nil and must not call the Writer.
func (w *Writer) UpdateMeta(change func(*Metadata)) error {
	w.metaMu.Lock()
	defer w.metaMu.Unlock()
	if change != nil {
		change(&w.meta)
	}
	w.meta.Schema, w.meta.RunID = SchemaVersion, w.spool.runID
	for k := range w.meta.Targets {
		t := &w.meta.Targets[k]
		t.Cmdline = Redact(t.Cmdline)
	}
	if err := w.dir.writeMeta(&w.meta); err != nil {
		return fmt.Errorf("update metadata: %w", err)
	}
	return nil
}

// WriteFile adds a file such as experiment.yaml or topology.json to the run.
func (w *Writer) WriteFile(name string, data []byte) error {
	if err := checkFree(name); err != nil {
		return err
	}
	return w.dir.replace(name, func(f io.Writer) error {
		_, err := f.Write(data)
		return err
	})
}

// NewFile creates a file of the run that grows while recording, such as stdout.log.
func (w *Writer) NewFile(name string) (*os.File, error) {
	if err := checkFree(name); err != nil {
		return nil, err
	}
	return w.dir.open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND)
}

// checkFree refuses the names that the Writer itself writes.
func checkFree(name string) error {
	switch name {
	case FileMetadata, FileRequests, FileEvents, FileSums:
		return fmt.Errorf("add %s to the run: the name is taken", name)
	}
	if filepath.Base(name) != name || filepath.Ext(name) == suffixTemp {
		return fmt.Errorf("add %q to the run: not a plain file name", name)
	}
	return checkName(name)
}

// Sync passes everything to the kernel and asks it to store it.
func (w *Writer) Sync() error {
	w.Flush()
	w.mu.Lock()
	var err error
	if w.spool.f != nil {
		err = w.spool.f.Sync()
	}
	w.mu.Unlock()
	return errors.Join(w.Err(), err, w.req.sync())
}

// Close ends the recording and leaves the spool for Seal. It returns the first write error, if any.
func (w *Writer) Close() error {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	w.mu.Unlock()
	if again {
		return nil
	}
	close(w.stop)
	<-w.done
	err := w.Sync()
	w.mu.Lock()
	info := w.spool.info()
	if f := w.spool.f; f != nil {
		err = errors.Join(err, f.Close())
		w.spool.f = nil
	}
	// A record that comes after this is the caller's mistake; it must not open a new segment.
	if w.spool.err == nil {
		w.spool.err = errors.New("run writer is closed")
	}
	w.mu.Unlock()
	requests, e := w.req.close()
	err = errors.Join(err, e, w.quality.close())
	if requests.N > 0 {
		info.Lost = append(info.Lost, requests)
	}
	w.freeReserve()
	end, e := ReadClocks(16)
	err = errors.Join(err, e, w.UpdateMeta(func(m *Metadata) {
		m.Clocks.End, m.Spool, m.Closed = end, info, true
	}))
	return errors.Join(err, w.dir.close())
}

// requestLog is requests.jsonl while it grows.
type requestLog struct {
	dir    string
	onStop func()
	mu     sync.Mutex
	f      *os.File
	buf    []byte // whole lines
	err    error
	lost   SpoolLoss
}

func (q *requestLog) add(line []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return q.err
	}
	q.buf = append(append(q.buf, line...), '\n')
	if len(q.buf) >= flushBytes {
		q.write()
	}
	return q.err
}

func (q *requestLog) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.buf) > 0 && q.err == nil {
		q.write()
	}
}

// write passes the batch to the kernel. Of a batch that fails the whole lines written are kept.
func (q *requestLog) write() {
	n, err := q.f.Write(q.buf)
	if err != nil {
		whole := bytes.LastIndexByte(q.buf[:n], '\n') + 1
		if at, e := q.f.Seek(0, io.SeekCurrent); e == nil {
			_ = q.f.Truncate(at - int64(n-whole))
		}
		q.count(uint64(bytes.Count(q.buf[whole:], []byte{'\n'})), uint64(len(q.buf)-whole))
		q.err = writeError(q.dir, err)
		q.onStop()
	}
	q.buf = q.buf[:0]
}

func (q *requestLog) count(n, size uint64) {
	now := Mono()
	if q.lost.N == 0 {
		q.lost.What, q.lost.FromNS = "request", now
	}
	q.lost.ToNS = now
	q.lost.N += n
	q.lost.Bytes += size
}

func (q *requestLog) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count(1, 0)
}

func (q *requestLog) error() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

func (q *requestLog) sync() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil // told by Err
	}
	return q.f.Sync()
}

func (q *requestLog) close() (SpoolLoss, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.f.Close()
	if q.err == nil {
		q.err = errors.New("run writer is closed")
	}
	return q.lost, err
}
