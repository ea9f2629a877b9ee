package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// What was written is read again, from memory and from the file that takes over; nothing of it stays
// in the directory.
func TestRequestStore(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var s requestStore
	var all []byte
	part := make([]byte, storeInMemory/4-1)
	for k := range 7 {
		for i := range part {
			part[i] = byte(i*7 + k)
		}
		if n, err := s.Write(part); err != nil || n != len(part) {
			t.Fatal(n, err)
		}
		all = append(all, part...)
		got := make([]byte, len(part)+3)
		at := max(0, len(all)-len(got))
		got = got[:len(all)-at]
		if _, err := s.ReadAt(got, int64(at)); err != nil || !bytes.Equal(got, all[at:]) {
			t.Fatalf("part %d: read otherwise than written (%v)", k, err)
		}
		if inFile := s.file != nil; inFile != (len(all) > storeInMemory) || inFile && s.memory != nil {
			t.Errorf("%d bytes: in a file %v", len(all), inFile)
		}
	}
	if _, err := s.ReadAt(make([]byte, 2), int64(len(all)-1)); err == nil {
		t.Error("more was read than written")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if st, err := s.file.Stat(); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	s.file.Close()
	t.Setenv("TMPDIR", dir+"/none")
	if _, err := new(requestStore).Write(make([]byte, storeInMemory+1)); err == nil || !strings.Contains(err.Error(), "name another directory in TMPDIR") {
		t.Errorf("without a directory: %v", err)
	}
}
