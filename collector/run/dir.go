package run

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Names inside a run directory.
const (
	FileMetadata   = "metadata.json"
	FileRequests   = "requests.jsonl"
	FileEvents     = "events.jsonl"
	FileExperiment = "experiment.yaml"
	FileTopology   = "topology.json"
	FileQuality    = "quality.jsonl"
	FileStdout     = "stdout.log"
	FileStderr     = "stderr.log"
	FileSums       = "SHA256SUMS"

	dirKernel   = "kernel"
	fileReserve = "reserve.tmp" // space for the last metadata.json when the disk is full
	suffixTemp  = ".tmp"        // never part of a run; removed at sealing
)

const (
	maxFiles = 1 << 16 // entries a reader is willing to list
	maxSmall = 16 << 20
)

// ErrBusy is returned (wrapped) when a live recorder holds the directory.
var ErrBusy = errors.New("a recorder is still writing it")

// checkName refuses every name that could lead out of the run directory or cannot stand in
// SHA256SUMS as it is. Components do not begin with a dot.
func checkName(name string) error {
	if name == "" || len(name) > 1024 {
		return fmt.Errorf("file name %.40q: empty or too long", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || len(part) > 255 {
			return fmt.Errorf("file name %.80q: component %.40q is not allowed", name, part)
		}
		for k := range len(part) {
			b := part[k]
			if (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '.' && b != '_' && b != '-' {
				return fmt.Errorf("file name %.80q: only letters, digits, dot, dash and underscore are allowed", name)
			}
		}
	}
	return nil
}

// directory is an open run directory. Files are reached from its descriptor component by component
// without following symbolic links.
type directory struct {
	path string
	f    *os.File
	made bool // was not there before this recording
}

func openDirectory(p string) (*directory, error) {
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_DIRECTORY, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", p, unix.ENOENT)
	case err != nil:
		return nil, fmt.Errorf("open run directory: %w", err)
	}
	return &directory{path: p, f: f}, nil
}

// lock takes the directory for a recorder or for sealing; the kernel gives it back when the process
// ends, however it ends.
func (d *directory) lock() error {
	err := unix.Flock(int(d.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("run directory %s: %w; stop that recorder first or wait until it ends", d.path, ErrBusy)
	}
	return fmt.Errorf("lock run directory %s: %w; the file system may lack locks, record to a local disk", d.path, err)
}

// parent opens the directory that holds name and returns it with name's last component.
func (d *directory) parent(name string) (fd int, base string, done func(), err error) {
	if err := checkName(name); err != nil {
		return 0, "", nil, err
	}
	fd, done = int(d.f.Fd()), func() {}
	for {
		first, rest, more := strings.Cut(name, "/")
		if !more {
			return fd, name, done, nil
		}
		next, err := unix.Openat(fd, first, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		done()
		if err != nil {
			return 0, "", nil, &fs.PathError{Op: "open", Path: filepath.Join(d.path, first), Err: err}
		}
		fd, done, name = next, func() { unix.Close(next) }, rest
	}
}

// open opens a regular file. With O_CREAT, 0600.
func (d *directory) open(name string, flags int) (*os.File, error) {
	fd, base, done, err := d.parent(name)
	if err != nil {
		return nil, err
	}
	defer done()
	full := filepath.Join(d.path, name)
	// O_NONBLOCK: a FIFO put in the file's place must not hang the reader.
	n, err := unix.Openat(fd, base, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("open %s: is a symbolic link, which a run never contains", full)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: full, Err: err}
	}
	f := os.NewFile(uintptr(n), full)
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("open %s: not a regular file", full)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d *directory) remove(name string) error {
	fd, base, done, err := d.parent(name)
	if err != nil {
		return err
	}
	defer done()
	if err := unix.Unlinkat(fd, base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: filepath.Join(d.path, name), Err: err}
	}
	return nil
}

// replace writes a file so that a reader finds the old or the new content, never a part.
func (d *directory) replace(name string, write func(io.Writer) error) (err error) {
	temp := name + suffixTemp
	if err := d.remove(temp); err != nil {
		return err
	}
	f, err := d.open(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = d.remove(temp)
		return err
	}
	return d.rename(temp, name)
}

// rename gives a file its final name, in the same directory.
func (d *directory) rename(from, to string) error {
	fd, base, done, err := d.parent(to)
	if err != nil {
		return err
	}
	defer done()
	if err := unix.Renameat(fd, path.Base(from), fd, base); err != nil {
		return &fs.PathError{Op: "rename", Path: filepath.Join(d.path, from), Err: err}
	}
	return unix.Fsync(fd)
}

// syncDir stores which files a directory of the run holds.
func (d *directory) syncDir(name string) error {
	fd, _, done, err := d.parent(name + "/any")
	if err != nil {
		return err
	}
	defer done()
	return unix.Fsync(fd)
}

// small reads a file that is meant to be small.
func (d *directory) small(name string) ([]byte, error) {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err == nil && len(b) > maxSmall {
		err = fmt.Errorf("read %s: larger than %d bytes", f.Name(), maxSmall)
	}
	return b, err
}

// list names all regular files below the directory, sorted. Anything else in it is an error.
func (d *directory) list() ([]string, error) {
	var names []string
	err := fs.WalkDir(os.DirFS(d.path), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s: not a regular file, which a run never contains", name)
		case len(names) == maxFiles:
			return fmt.Errorf("more than %d files", maxFiles)
		}
		names = append(names, name)
		return checkName(name)
	})
	if err != nil {
		return nil, fmt.Errorf("list run directory %s: %w", d.path, err)
	}
	slices.Sort(names) // the walk sorts within each directory only
	return names, nil
}

func (d *directory) close() error { return d.f.Close() }
