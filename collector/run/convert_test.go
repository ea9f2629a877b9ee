package run

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// copyRun makes a copy that can be changed.
func copyRun(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range mustList(t, to) {
		if err := os.Chmod(filepath.Join(to, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func TestListsAndTextSurviveTheTables(t *testing.T) {
	want := []any{
		Message{IDs: []IDRef{{"a", "1"}, {"a", "1"}, {"", ""}}, Shm: []ShmRef{{"x", -1}}, Type: "\xff\xfe"},
		Proc{Cmdline: []string{"", "a", "\xee\xbe\x80"}, Bound: []string{"/tmp/\xc3"}},
		Message{},
		Message{Shm: []ShmRef{{"x", 1}, {"y", 2}}},
		Proc{Bound: []string{"b"}},
		IO{Pos: 1<<64 - 1, Ret: -11, EP: 1<<32 - 1},
		Endpoint{Inode: 1 << 63, PosAbsolute: true},
	}
	dir := sealedRun(t, want, segmentBytes)
	diffRecords(t, replayed(t, mustOpen(t, dir)), want)
}

// Runs sealed before schema 1.2, and those sealed with KeepSpool, are read from the spool.
func TestSealedSpoolIsRead(t *testing.T) {
	want := randomRecords(31, 997)
	dir := sealedRun(t, want, segmentBytes, KeepSpool())
	r := mustOpen(t, dir)
	if r.Meta.Sealed.Kernel != KernelSpool || r.Meta.Sealed.WhySpool == "" {
		t.Errorf("sealed as %+v", r.Meta.Sealed)
	}
	diffRecords(t, replayed(t, r), want)
	for _, name := range mustList(t, dir) {
		if isTable(name) {
			t.Errorf("%s beside the spool", name)
		}
	}
}

func TestSpoolOfANewerVersionIsKept(t *testing.T) {
	dir := closedRun(t, randomRecords(32, 11), segmentBytes)
	meta := mustRead(t, dir, FileMetadata)
	mustWrite(t, bytes.Replace(meta, []byte(`"schema_version": "`+SchemaVersion+`"`), []byte(`"schema_version": "1.99"`), 1), dir, FileMetadata)
	report, err := Seal(dir)
	if err != nil || report.Kernel != KernelSpool {
		t.Errorf("%+v, %v", report, err)
	}
	if r := mustOpen(t, dir); r.Meta.Schema != "1.99" || !strings.Contains(r.Meta.Sealed.WhySpool, "newer version") {
		t.Errorf("schema %s, %+v", r.Meta.Schema, r.Meta.Sealed)
	}
}

// Whatever moment a sealing is interrupted at, sealing again completes the run and no record is lost.
func TestSealAfterAnInterruptionAnywhere(t *testing.T) {
	want := randomRecords(33, 503)
	closed := closedRun(t, want, segmentBytes)
	spool := mustRead(t, closed, segmentName(0))
	sealed := copyRun(t, closed)
	if _, err := Seal(sealed); err != nil {
		t.Fatal(err)
	}
	table := tableFile(tableIO, 0)
	for name, prepare := range map[string]func() string{
		"half a table": func() string {
			dir := copyRun(t, closed)
			b := mustRead(t, sealed, table)
			mustWrite(t, b[:len(b)/2], dir, table+suffixTemp)
			return dir
		},
		"some tables in place": func() string {
			dir := copyRun(t, closed)
			mustWrite(t, mustRead(t, sealed, table), dir, table)
			mustWrite(t, []byte("PAR1"), dir, tableFile(tableNote, 3))
			return dir
		},
		"all tables in place": func() string {
			dir := copyRun(t, sealed)
			mustWrite(t, spool, dir, segmentName(0))
			mustWrite(t, mustRead(t, closed, FileMetadata), dir, FileMetadata)
			return dir
		},
		"metadata written": func() string {
			dir := copyRun(t, sealed)
			mustWrite(t, spool, dir, segmentName(0))
			return dir
		},
	} {
		dir := prepare()
		if name != "half a table" && name != "some tables in place" {
			if err := os.Remove(filepath.Join(dir, FileSums)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Seal(dir); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		diffRecords(t, replayed(t, mustOpen(t, dir)), want)
		if n, err := mustOpen(t, dir).dir.segments(); n != 0 || err != nil {
			t.Errorf("%s: %d segments are left (%v)", name, n, err)
		}
	}
}

// The hashes are there but the spool was not removed.
func TestLeftSpoolIsToldAndRemoved(t *testing.T) {
	want := randomRecords(34, 101)
	closed := closedRun(t, want, segmentBytes)
	spool := mustRead(t, closed, segmentName(0))
	first, err := Seal(closed)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, spool, closed, segmentName(0))
	r := mustOpen(t, closed)
	if len(r.Notes) != 1 || r.Notes[0].Code != "spool-left" {
		t.Errorf("notes %+v", r.Notes)
	}
	diffRecords(t, replayed(t, r), want)
	if again, err := Seal(closed); err != nil || again.Kernel != KernelParquet || again.Files != first.Files || again.Bytes != first.Bytes {
		t.Errorf("%+v, then %+v, %v", first, again, err)
	}
	if _, err := Seal(closed); !errors.Is(err, ErrSealed) {
		t.Errorf("third seal: %v", err)
	}
	if r := mustOpen(t, closed); len(r.Notes) != 0 {
		t.Errorf("notes %+v", r.Notes)
	}
}

// killedSealer is the child of the test below.
func killedSealer(dir string) int {
	_, err := Seal(dir, WithEvents("r", func(r *Run, w io.Writer) error {
		_, err := io.WriteString(os.Stdout, "sealing\n")
		return err
	}))
	if err != nil {
		return 1
	}
	return 0
}

func TestSealAfterKillWhileSealing(t *testing.T) {
	want := randomRecords(35, 20011)
	closed := closedRun(t, want, segmentBytes)
	// The kill comes the later the more the child has done: after its nth new file is seen.
	for _, name := range []string{"", tableFile(tableEndpoint, 0) + suffixTemp, tableFile(tableProcText, 0), FileSums} {
		dir := copyRun(t, closed)
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "STAGELINE_TEST_SEALER="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("sealing\n"))); err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		go func() { io.Copy(io.Discard, out); close(gone) }()
		for seen := false; !seen; {
			_, err := os.Lstat(filepath.Join(dir, name))
			select {
			case <-gone: // it was quicker: the run must be complete
				seen = true
			default:
				seen = err == nil
			}
		}
		child.Process.Kill()
		child.Wait()
		if _, err := Seal(dir); err != nil && !errors.Is(err, ErrSealed) {
			t.Errorf("killed at %q: %v", name, err)
			continue
		}
		diffRecords(t, replayed(t, mustOpen(t, dir)), want)
	}
}

func TestMissingRowsAreAnIntegrityError(t *testing.T) {
	want := randomRecords(36, 301)
	sealed, other := sealedRun(t, want, segmentBytes), sealedRun(t, randomRecords(37, 299), segmentBytes)
	for name, change := range map[string]func(dir string){
		"comes where record": func(dir string) { os.Remove(filepath.Join(dir, tableFile(tableIO, 0))) },
		"belongs to no record": func(dir string) {
			mustWrite(t, mustRead(t, other, tableFile(tableMessageID, 0)), dir, tableFile(tableMessageID, 0))
		},
		"column seq": func(dir string) {
			b := mustRead(t, dir, tableFile(tableIO, 0))
			b[60] ^= 1
			mustWrite(t, b, dir, tableFile(tableIO, 0))
		},
		"not a whole Parquet file": func(dir string) {
			b := mustRead(t, dir, tableFile(tableIO, 0))
			mustWrite(t, b[:len(b)-1], dir, tableFile(tableIO, 0))
		},
		"no column seq": func(dir string) {
			b := mustRead(t, dir, tableFile(tableIO, 0))
			mustWrite(t, bytes.ReplaceAll(b, []byte("\x03seq"), []byte("\x03sex")), dir, tableFile(tableIO, 0))
		},
	} {
		dir := copyRun(t, sealed)
		change(dir)
		r, err := Open(dir, OpenOptions{SkipHashes: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Replay(nowhere{}); !errors.Is(err, ErrIntegrity) || !strings.Contains(err.Error(), name) {
			t.Errorf("want an integrity error with %q, got: %v", name, err)
		}
		r.Close()
	}
}

// A field of a later version is a column that files of this one may lack.
func TestLaterColumns(t *testing.T) {
	var c columns
	var a, b int64
	num(&c, "a", varied, &a)
	c.later()
	num(&c, "b", varied, &b)
	if c.declared[0].Later || !c.declared[1].Later {
		t.Errorf("declared %+v", c.declared)
	}
}

// The tables as others read them. STAGELINE_TABLES_PYTHON names a Python that has duckdb and pyarrow.
func TestOtherReaders(t *testing.T) {
	python := os.Getenv("STAGELINE_TABLES_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import duckdb, pyarrow").CombinedOutput(); err != nil {
		t.Skipf("%s with duckdb and pyarrow: %v: %s", python, err, out)
	}
	dir := sealedRun(t, randomRecords(38, 4001), segmentBytes)
	out, err := exec.Command(python, "../../scripts/read-tables.py", dir).CombinedOutput()
	if err != nil || bytes.Count(out, []byte("\n")) != tableEnd {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTablesAreReadFromTheRunOnly(t *testing.T) {
	sealed := sealedRun(t, randomRecords(39, 211), segmentBytes)
	name := tableFile(tableShm, 0)
	for what, replace := range map[string]func(at string) error{
		"symbolic link":      func(at string) error { return os.Symlink(filepath.Join(sealed, name), at) },
		"not a regular file": func(at string) error { return unix.Mkfifo(at, 0o600) },
	} {
		dir := copyRun(t, sealed)
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := replace(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		r, err := Open(dir, OpenOptions{SkipHashes: true})
		if err == nil {
			err = r.Replay(nowhere{})
			r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
