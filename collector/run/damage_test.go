package run

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// closedRun writes records to one segment and returns the directory.
func closedRun(t testing.TB, records []any, limit int64) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w := mustCreate(t, dir, limit)
	for _, r := range records {
		put(w, r)
	}
	if err := w.Request(&Request{ID: "one"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func sealedRun(t testing.TB, records []any, limit int64, options ...SealOption) string {
	t.Helper()
	dir := closedRun(t, records, limit)
	if _, err := Seal(dir, options...); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustRead(t testing.TB, parts ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustWrite(t testing.TB, b []byte, parts ...string) {
	t.Helper()
	name := filepath.Join(parts...)
	_ = os.Chmod(name, 0o600)
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustList(t testing.TB, dir string) []string {
	t.Helper()
	d, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	names, err := d.list()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// decodeBytes replays the bytes of segment 0 of a run.
func decodeBytes(b []byte, runID string) (got []any, err error) {
	var c collected
	re := &replay{sink: &c, stats: &ReplayStats{Unknown: make(map[uint64]uint64)}, runID: runID}
	err = re.segment(bytes.NewReader(b), int64(len(b)), 0)
	return c.all, err
}

func TestTruncationAtEveryByte(t *testing.T) {
	want := randomRecords(7, 61)
	dir := closedRun(t, want, segmentBytes)
	whole := mustRead(t, dir, segmentName(0))
	id := mustOpen(t, dir).Meta.RunID
	ends, before := 0, 0
	for n := range len(whole) + 1 {
		got, err := decodeBytes(whole[:n], id)
		if len(got) > len(want) || len(got) < before || !reflect.DeepEqual(got, want[:len(got)]) && len(got) > 0 {
			t.Fatalf("cut at %d: %d records, not the first ones", n, len(got))
		}
		before = len(got)
		var d *damage
		switch {
		case err == nil:
			ends++
		case !errors.As(err, &d):
			t.Fatalf("cut at %d: %v", n, err)
		case d.Offset+d.Bytes != int64(n) || d.Bytes <= 0:
			t.Fatalf("cut at %d: torn tail %d+%d", n, d.Offset, d.Bytes)
		}
		// What is left after the cut must be whole.
		if d != nil {
			if again, err := decodeBytes(whole[:d.Offset], id); err != nil || len(again) != len(got) {
				t.Fatalf("cut at %d, then at %d: %d records, %v", n, d.Offset, len(again), err)
			}
		}
	}
	if before != len(want) || ends < len(want) {
		t.Errorf("%d of %d records, %d clean ends", before, len(want), ends)
	}
}

func TestSealCutsTornTail(t *testing.T) {
	want := randomRecords(8, 31)
	dir := closedRun(t, want, segmentBytes)
	seg, req := mustRead(t, dir, segmentName(0)), mustRead(t, dir, FileRequests)
	mustWrite(t, append(seg, 200, 1, 2, 3, 4), dir, segmentName(0))
	mustWrite(t, append(req, `{"request_id":"tw`...), dir, FileRequests)

	// Unsealed, the same loss is told.
	got := replayed(t, mustOpen(t, dir))
	if l := got[len(got)-1].(Loss); l.What != "damaged" || l.Bytes != 5 {
		t.Errorf("unsealed: %+v", l)
	}
	report, err := Seal(dir, KeepSpool())
	if err != nil {
		t.Fatal(err)
	}
	if report.Spool.TornBytes != 5 || report.Spool.TornRequestBytes != 17 || report.Killed {
		t.Errorf("report %+v", report)
	}
	if !bytes.Equal(mustRead(t, dir, segmentName(0)), seg) || !bytes.Equal(mustRead(t, dir, FileRequests), req) {
		t.Error("not cut where it was torn")
	}
	got = replayed(t, mustOpen(t, dir))
	diffRecords(t, got[:len(got)-1], want)
	if l := got[len(got)-1].(Loss); l.Reason != "spool" || l.What != "torn" || l.N != 1 || l.Bytes != 5 {
		t.Errorf("sealed: %+v", l)
	}
}

func TestZeroedTailIsTorn(t *testing.T) {
	want := randomRecords(9, 31)
	dir := closedRun(t, want, segmentBytes)
	mustWrite(t, append(mustRead(t, dir, segmentName(0)), make([]byte, 4096)...), dir, segmentName(0))
	if report, err := Seal(dir); err != nil || report.Spool.TornBytes != 4096 {
		t.Errorf("%+v, %v", report.Spool, err)
	}
}

// A fault inside the recording is not its end: the bytes stay, the segments after it are read.
func TestDamageInAnEarlierSegmentIsKept(t *testing.T) {
	want := randomRecords(10, 12007)
	dir := closedRun(t, want, 300<<10)
	seg := mustRead(t, dir, segmentName(0))
	seg[len(seg)/2] ^= 1
	mustWrite(t, seg, dir, segmentName(0))
	report, err := Seal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Spool.Damaged) != 1 || report.Spool.TornBytes != 0 || report.Spool.Segments < 3 {
		t.Fatalf("report %+v", report.Spool)
	}
	if !bytes.Equal(mustRead(t, dir, segmentName(0)), seg) {
		t.Error("the damaged segment was changed")
	}
	got := replayed(t, mustOpen(t, dir))
	l := got[len(got)-1].(Loss)
	if l.What != "damaged" || l.Bytes != uint64(report.Spool.Damaged[0].Bytes) {
		t.Errorf("%+v", l)
	}
	// The records of the last segment are the last ones written.
	tail := got[len(got)-1-50 : len(got)-1]
	diffRecords(t, tail, want[len(want)-50:])
	if len(got)-1 >= len(want) {
		t.Error("nothing was lost")
	}
}

func TestEveryBitFlipIsDetected(t *testing.T) {
	want := randomRecords(11, 23)
	dir := closedRun(t, want, segmentBytes)
	whole := mustRead(t, dir, segmentName(0))
	id := mustOpen(t, dir).Meta.RunID
	for at := range whole {
		whole[at] ^= 1 << (at % 8)
		got, err := decodeBytes(whole, id)
		if err == nil {
			t.Fatalf("flip in byte %d went unseen", at)
		}
		if len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)]) {
			t.Fatalf("flip in byte %d: a wrong record was passed on", at)
		}
		whole[at] ^= 1 << (at % 8)
	}
}

func TestUnknownKindsAndFieldsAreSkipped(t *testing.T) {
	want := []any{Note{Text: "before"}, Gap{EP: 3, Pos: 5, End: 9}, Note{Text: "after"}}
	dir := closedRun(t, want[:1], segmentBytes)
	seg := mustRead(t, dir, segmentName(0))
	seg = appendFrame(seg, []byte{kindEnd, 1, 2, 3})
	seg = appendFrame(seg, []byte{0xff, 0x7f, 9}) // kind of two bytes
	c := codec{b: []byte{kindGap}}
	gap := want[1].(Gap)
	c.gap(&gap)
	seg = appendFrame(seg, append(c.b, 77, 77)) // fields of a later minor version
	c.b = []byte{kindNote}
	note := want[2].(Note)
	c.note(&note)
	seg = appendFrame(seg, c.b)
	mustWrite(t, seg, dir, segmentName(0))
	report, err := Seal(dir)
	if err != nil || report.Spool.Records["unknown"] != 2 {
		t.Errorf("%+v, %v", report.Spool, err)
	}
	r := mustOpen(t, dir)
	got := replayed(t, r)
	gapGot := got[1].(Gap)
	if len(got) != 3 || got[0] != want[0] || gapGot.Pos != 5 || gapGot.End != 9 || got[2] != want[2] {
		t.Errorf("got %+v", got)
	}
	if r.Stats.Unknown[kindEnd] != 1 || r.Stats.Unknown[0x3fff] != 1 || r.Stats.Records != 3 {
		t.Errorf("stats %+v", r.Stats)
	}
}

func TestTamperingWithASealedRun(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	mustWrite(t, []byte("x"), outside)
	for name, change := range map[string]func(dir string) error{
		"has changed": func(dir string) error {
			b := mustRead(t, dir, tableFile(tableNote, 0))
			b[len(b)-1] ^= 1
			mustWrite(t, b, dir, tableFile(tableNote, 0))
			return nil
		},
		"io-00000.parquet is gone": func(dir string) error { return os.Remove(filepath.Join(dir, tableFile(tableIO, 0))) },
		"spool-00000.txt was added": func(dir string) error {
			mustWrite(t, nil, dir, dirKernel, "x-spool-00000.txt")
			return nil
		},
		"requests.jsonl is gone": func(dir string) error { return os.Remove(filepath.Join(dir, FileRequests)) },
		"extra.txt was added":    func(dir string) error { mustWrite(t, nil, dir, "extra.txt"); return nil },
		"SHA256SUMS is gone":     func(dir string) error { return os.Remove(filepath.Join(dir, FileSums)) },
		"not a regular file": func(dir string) error {
			if err := os.Remove(filepath.Join(dir, FileRequests)); err != nil {
				return err
			}
			return os.Symlink(outside, filepath.Join(dir, FileRequests))
		},
		"is not allowed": func(dir string) error {
			mustWrite(t, append([]byte(strings.Repeat("0", 64)+"  ../outside\n"), mustRead(t, dir, FileSums)...), dir, FileSums)
			return nil
		},
		"is not a recorded run": func(dir string) error { return os.Remove(filepath.Join(dir, FileMetadata)) },
	} {
		dir := sealedRun(t, randomRecords(12, 61), segmentBytes)
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, OpenOptions{})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error with %q, got: %v", name, err)
		}
		if name != "is not a recorded run" && !errors.Is(err, ErrIntegrity) {
			t.Errorf("%s: not an integrity error: %v", name, err)
		}
	}
}

// Without the hashes the checksums of the records still hold.
func TestReplayOfAnUncheckedRunFindsDamage(t *testing.T) {
	dir := sealedRun(t, randomRecords(13, 101), segmentBytes, KeepSpool())
	b := mustRead(t, dir, segmentName(0))
	b[len(b)/2] ^= 4
	mustWrite(t, b, dir, segmentName(0))
	r, err := Open(dir, OpenOptions{SkipHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Replay(nowhere{}); !errors.Is(err, ErrIntegrity) {
		t.Errorf("replay: %v", err)
	}
}

func TestSymbolicLinksAreNotFollowed(t *testing.T) {
	other := closedRun(t, randomRecords(14, 11), segmentBytes)
	for _, name := range []string{FileMetadata, FileRequests, segmentName(0), dirKernel} {
		dir := closedRun(t, randomRecords(15, 11), segmentBytes)
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(other, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		r, err := Open(dir, OpenOptions{})
		if err == nil {
			err = errors.Join(r.Replay(nowhere{}), r.Requests(func(*Request) error { return nil }))
			r.Close()
		}
		if err == nil {
			t.Errorf("%s: the link was followed", name)
		}
		if _, err := Seal(dir); err == nil {
			t.Errorf("%s: sealed a link", name)
		}
	}
}

func TestMissingAndForeignSegments(t *testing.T) {
	a := closedRun(t, randomRecords(16, 9001), 300<<10)
	if err := os.Remove(filepath.Join(a, segmentName(1))); err != nil {
		t.Fatal(err)
	}
	if err := mustOpen(t, a).Replay(nowhere{}); err == nil || !strings.Contains(err.Error(), "spool-00001.sl is missing") {
		t.Errorf("missing segment: %v", err)
	}
	b := closedRun(t, randomRecords(17, 9001), 300<<10)
	mustWrite(t, mustRead(t, a, segmentName(0)), b, segmentName(0))
	if err := mustOpen(t, b).Replay(nowhere{}); err == nil || !strings.Contains(err.Error(), "of run") {
		t.Errorf("segment of another run: %v", err)
	}
}

func TestAnotherSchemaIsRefused(t *testing.T) {
	dir := closedRun(t, nil, segmentBytes)
	b := mustRead(t, dir, FileMetadata)
	old := fmt.Sprintf(`"schema_version": %q`, SchemaVersion)
	for version, refused := range map[string]bool{"2.0": true, "": true, "1.9": false} {
		mustWrite(t, bytes.Replace(b, []byte(old), fmt.Appendf(nil, `"schema_version": %q`, version), 1), dir, FileMetadata)
		r, err := Open(dir, OpenOptions{})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "recorded with schema") {
			t.Errorf("schema %q: %v", version, err)
		}
		if err == nil {
			r.Close()
		}
	}
}

func TestARunInsideIsNamed(t *testing.T) {
	dir := sealedRun(t, randomRecords(12, 11), segmentBytes)
	outer := t.TempDir()
	inner := filepath.Join(outer, "run")
	if err := os.Symlink(dir, inner); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(outer, OpenOptions{}); err == nil || !strings.HasSuffix(err.Error(), "; "+inner+" is one") {
		t.Errorf("want the run inside named, got: %v", err)
	}
	if err := os.Remove(inner); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(outer, OpenOptions{}); err == nil || strings.Contains(err.Error(), "is one") {
		t.Errorf("want no run named, got: %v", err)
	}
}
