package run

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// fillDisk writes until the Writer stops, then a known number more, and checks the account.
func fillDisk(t *testing.T, w *Writer, dir string) {
	t.Helper()
	records := randomRecords(5, 2003)
	written := 0
	for w.Err() == nil {
		if written > 1<<20 {
			t.Fatal("the disk does not fill")
		}
		put(w, records[written%len(records)])
		written++
	}
	for range 7 {
		put(w, records[written%len(records)])
		written++
	}
	err := w.Err()
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "disk full") || !strings.Contains(err.Error(), "stageline seal "+dir) {
		t.Errorf("error: %v", err)
	}
	if err := w.Request(&Request{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("request: %v", err)
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("close: %v", err)
	}
	r := mustOpen(t, dir)
	var lost, inLost uint64
	for _, l := range r.Meta.Spool.Lost {
		if l.What != "request" {
			lost += l.N
		}
	}
	got := replayed(t, r)
	for len(got) > 0 {
		l, ok := got[len(got)-1].(Loss)
		if !ok || l.Reason != "spool" {
			break
		}
		if l.What != "request" {
			inLost += l.N
		}
		got = got[:len(got)-1]
	}
	if uint64(len(got))+lost != uint64(written) || lost != inLost || lost < 7 || !r.Meta.Closed || r.Meta.Spool.Error == "" {
		t.Errorf("%d read + %d lost (%d as records) of %d written; account %+v", len(got), lost, inLost, written, r.Meta.Spool)
	}
	for k := range got {
		if !reflect.DeepEqual(got[k], records[k%len(records)]) {
			t.Fatalf("record %d differs", k)
		}
	}
	if len(r.Stats.Damaged) != 0 {
		t.Errorf("the last block was left torn: %+v", r.Stats.Damaged)
	}
}

func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(mount, unix.MNT_DETACH) })
	dir := filepath.Join(mount, "run")
	w := mustCreate(t, dir, segmentBytes)
	fillDisk(t, w, dir)
	var st unix.Statfs_t
	if err := unix.Statfs(mount, &st); err != nil || st.Bfree*uint64(st.Bsize) > reserveBytes {
		t.Errorf("%d bytes free: the disk was not full (%v)", st.Bfree*uint64(st.Bsize), err)
	}
	want := replayed(t, mustOpen(t, dir))
	// Nothing is given up for tables that do not fit, and what to do is said.
	for range 2 {
		_, err := Seal(dir)
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "stageline seal --keep-spool "+dir) {
			t.Errorf("seal on a full disk: %v", err)
		}
		for _, name := range mustList(t, dir) {
			if isTable(name) || strings.HasSuffix(name, suffixTemp) {
				t.Errorf("%s takes space and is of no use", name)
			}
		}
		diffRecords(t, replayed(t, mustOpen(t, dir)), want)
	}
	other := filepath.Join(mount, "kept")
	t.Run("space", func(t *testing.T) {
		if err := unix.Mount("", mount, "", unix.MS_REMOUNT, "size=8m"); err != nil {
			t.Skipf("enlarge tmpfs: %v", err)
		}
		if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		report, err := Seal(other)
		if err != nil || report.Kernel != KernelParquet {
			t.Errorf("seal with space: %+v, %v", report, err)
		}
		diffRecords(t, replayed(t, mustOpen(t, other)), want)
	})
	// What the reserve left is enough to seal the records as they are.
	os.RemoveAll(other)
	if report, err := Seal(dir, KeepSpool()); err != nil || report.Kernel != KernelSpool {
		t.Errorf("seal without tables: %+v, %v", report, err)
	}
	diffRecords(t, replayed(t, mustOpen(t, dir)), want)
}

// Without root: the spool file is replaced by one that is always full.
func TestDiskFullDevice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w := mustCreate(t, dir, segmentBytes)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("open /dev/full: %v", err)
	}
	w.spool.f.Close()
	w.spool.f = full
	fillDisk(t, w, dir)
}

func TestRequestsOnAFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w := mustCreate(t, dir, segmentBytes)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("open /dev/full: %v", err)
	}
	w.req.f.Close()
	w.req.f = full
	for range 3 {
		if err := w.Request(&Request{}); err != nil {
			t.Fatal(err)
		}
	}
	w.req.flush()
	if err := w.Request(&Request{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("request: %v", err)
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("close: %v", err)
	}
	l := mustOpen(t, dir).Meta.Spool.Lost
	if len(l) != 1 || l[0].What != "request" || l[0].N != 4 {
		t.Errorf("lost %+v", l)
	}
}
