package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// storeInMemory is how much of a requestStore is kept in memory: reports of short runs need no file.
const storeInMemory = 4 << 20

// requestStore keeps finished requests for the report: the first megabytes in memory, then all of
// them in a file without a name, which is gone when the program ends.
type requestStore struct {
	memory []byte
	file   *os.File
}

func (s *requestStore) Write(p []byte) (int, error) {
	if s.file == nil && len(s.memory)+len(p) <= storeInMemory {
		s.memory = append(s.memory, p...)
		return len(p), nil
	}
	if s.file == nil {
		if err := s.spill(); err != nil {
			return 0, err
		}
	}
	n, err := s.file.Write(p)
	if err != nil {
		return n, noRoom(err)
	}
	return n, nil
}

// spill moves what is in memory to a file.
func (s *requestStore) spill() error {
	f, err := nameless(os.TempDir())
	if err != nil {
		return noRoom(err)
	}
	if _, err := f.Write(s.memory); err != nil {
		f.Close()
		return noRoom(err)
	}
	s.memory, s.file = nil, f
	return nil
}

// nameless makes a file that no name leads to, so that whatever ends this process leaves nothing.
func nameless(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return f, err
	}
	// This file system has none that never had a name, as NFS and older overlays.
	f, err = os.CreateTemp(dir, "stageline-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func noRoom(err error) error {
	return fmt.Errorf("%w; a report of a long run needs some kilobytes for each request in %s: make room, or name another directory in TMPDIR", err, os.TempDir())
}

func (s *requestStore) ReadAt(p []byte, off int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, off)
	}
	if off > int64(len(s.memory)) {
		return 0, io.EOF
	}
	n := copy(p, s.memory[off:])
	if n < len(p) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}
