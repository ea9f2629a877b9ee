package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A recording that never began leaves its directory as it found it, so that it can be tried again.
func TestDiscard(t *testing.T) {
	for _, there := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "run")
		if there {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			w := mustCreate(t, dir, segmentBytes)
			w.Note(&Note{AtNS: 1, Level: "info", Code: "x", Text: "x"})
			if err := w.Discard(); err != nil {
				t.Fatal(err)
			}
			names, err := os.ReadDir(dir)
			if there && (err != nil || len(names) > 0) || !there && !os.IsNotExist(err) {
				t.Fatalf("directory there before: %v; left: %v, %v", there, names, err)
			}
		}
	}
}

// No space at the start: said once, and nothing in the way of the next try.
func TestCreateWithoutSpace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	for _, options := range []string{"size=32k", "size=1m,nr_inodes=3", "size=1m,nr_inodes=4", "size=1m,nr_inodes=5", "size=1m,nr_inodes=6"} {
		mount := t.TempDir()
		if err := unix.Mount("tmpfs", mount, "tmpfs", 0, options); err != nil {
			t.Skipf("mount tmpfs: %v", err)
		}
		t.Cleanup(func() { unix.Unmount(mount, unix.MNT_DETACH) })
		dir := filepath.Join(mount, "run")
		w, err := Create(dir, Metadata{})
		if err == nil {
			w.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "no space left") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", options, err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: the directory stays (%v)", options, err)
		}
		if err := unix.Mount("", mount, "", unix.MS_REMOUNT, "size=8m,nr_inodes=100"); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, dir, segmentBytes).Close()
	}
}

// A file that grows while it is read has no end of its own. Those of /proc are longer than they say.
func TestGrowingFile(t *testing.T) {
	d, err := openDirectory("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if _, _, err := d.sumFile("status"); err == nil || !strings.Contains(err.Error(), "grows") {
		t.Errorf("hashed to its end: %v", err)
	}
	if err := lines(d, "status", func(*Request) error { return nil }); err != nil {
		t.Errorf("read beyond the size it had when it was opened: %v", err)
	}
}

// A line without an end is not kept in memory whole.
func TestEndlessLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	mustCreate(t, dir, segmentBytes).Close()
	if err := os.Truncate(filepath.Join(dir, FileRequests), 1<<30); err != nil {
		t.Fatal(err)
	}
	err := mustOpen(t, dir).Requests(func(*Request) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "longer than 67108864 bytes") {
		t.Errorf("%v", err)
	}
}
