package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDirectoryIsPrivateAndThenReadOnly(t *testing.T) {
	defer unix.Umask(unix.Umask(0))
	dir := filepath.Join(t.TempDir(), "a", "run")
	w := mustCreate(t, dir, segmentBytes)
	if err := w.WriteFile(FileExperiment, []byte("question: x\n")); err != nil {
		t.Fatal(err)
	}
	f, err := w.NewFile(FileStdout)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "ready")
	f.Close()
	w.IO(sampleIO())
	checkModes(t, dir, 0o600)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	checkModes(t, dir, 0o600)
	if _, err := Seal(dir); err != nil {
		t.Fatal(err)
	}
	checkModes(t, dir, 0o400)

	names := mustList(t, dir)
	want := []string{FileSums, FileExperiment, tableFile(tableIO, 0), FileMetadata, FileRequests, FileStdout}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	if tool, err := exec.LookPath("sha256sum"); err == nil {
		c := exec.Command(tool, "-c", "--strict", FileSums)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil || bytes.Count(out, []byte(": OK")) != len(want)-1 {
			t.Errorf("sha256sum -c: %v\n%s", err, out)
		}
	}
	r := mustOpen(t, dir)
	e, err := r.File(FileExperiment)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if b, _ := io.ReadAll(e); string(b) != "question: x\n" {
		t.Errorf("experiment %q", b)
	}
	if _, err := r.File(FileTopology); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func checkModes(t *testing.T, dir string, file fs.FileMode) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		want := file
		if e.IsDir() {
			want = 0o700
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", p, st.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCreateNeverOverwrites(t *testing.T) {
	dir := closedRun(t, nil, segmentBytes)
	before := mustRead(t, dir, FileMetadata)
	if _, err := Create(dir, Metadata{}); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("create over a run: %v", err)
	}
	if !bytes.Equal(before, mustRead(t, dir, FileMetadata)) {
		t.Error("the run was changed")
	}
	empty := t.TempDir()
	w, err := Create(empty, Metadata{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := Create(empty, Metadata{}); !errors.Is(err, ErrBusy) {
		t.Errorf("second recorder: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	mustWrite(t, nil, file)
	if _, err := Create(file, Metadata{}); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("create on a file: %v", err)
	}
}

func TestSealTwiceIsRefused(t *testing.T) {
	dir := sealedRun(t, randomRecords(1, 11), segmentBytes)
	before := mustRead(t, dir, FileSums)
	report, err := Seal(dir)
	if !errors.Is(err, ErrSealed) || report.RunID == "" {
		t.Errorf("%+v, %v", report, err)
	}
	if !bytes.Equal(before, mustRead(t, dir, FileSums)) {
		t.Error("the run was changed")
	}
	mustOpen(t, dir)
}

func TestSealInterruptedBeforeTheHashesIsRepeated(t *testing.T) {
	want := randomRecords(2, 11)
	dir := sealedRun(t, want, segmentBytes)
	if err := os.Remove(filepath.Join(dir, FileSums)); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, []byte("half"), dir, FileSums+suffixTemp)
	if _, err := Seal(dir); err != nil {
		t.Fatal(err)
	}
	diffRecords(t, replayed(t, mustOpen(t, dir)), want)
}

func TestEventsAreWrittenAtSealing(t *testing.T) {
	want := randomRecords(3, 101)
	dir := closedRun(t, want, segmentBytes)
	if _, err := Seal(dir, WithEvents("r1", func(*Run, io.Writer) error { return errors.New("no") })); err == nil {
		t.Fatal("a failed analysis was sealed")
	}
	_, err := Seal(dir, WithEvents("r2", func(r *Run, w io.Writer) error {
		var c collected
		if err := r.Replay(&c); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, `{"run_id":%q,"stage":"a","event":"ready","mono_ns":%d,"status":"ok"}`+"\n", r.Meta.RunID, len(c.all))
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, dir)
	var events []Event
	if err := r.Events(func(e *Event) error { events = append(events, *e); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0].RunID != r.Meta.RunID || *events[0].MonoNS != int64(len(want)) || events[0].ChunkID != nil {
		t.Errorf("events %+v", events)
	}
	if r.Meta.Sealed.EventsRevision != "r2" || r.Meta.Sealed.At.IsZero() {
		t.Errorf("seal %+v", r.Meta.Sealed)
	}
}

func TestRequestsFromManyGoroutines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w := mustCreate(t, dir, segmentBytes)
	const workers, each = 7, 211
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			for n := range each {
				ns := int64(n)
				q := &Request{RunID: w.RunID(), ID: fmt.Sprintf("%d-%d", k, n), SentNS: &ns, State: StateSuccess,
					Events: []ReplyEvent{{MonoNS: ns, Kind: "content", Bytes: 3}}}
				if err := w.Request(q); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, r := range randomRecords(4, 1009) {
		put(w, r)
	}
	if err := w.UpdateMeta(func(m *Metadata) { m.Options = map[string]string{"rate": "4"} }); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, dir)
	seen := make(map[string]bool)
	err := r.Requests(func(q *Request) error {
		if q.Events[0].MonoNS != *q.SentNS || q.EndNS != nil || q.State != StateSuccess {
			t.Errorf("request %+v", q)
		}
		seen[q.ID] = true
		return nil
	})
	if err != nil || len(seen) != workers*each {
		t.Errorf("%d requests, %v", len(seen), err)
	}
	if r.Meta.Options["rate"] != "4" {
		t.Errorf("options %v", r.Meta.Options)
	}
}

func TestMetadata(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, Metadata{Decoders: []string{"zmtp/1", "http1/1"}, Targets: []Target{{TGID: 7, Cmdline: []string{"serve", "--api-key", "abc"}}}})
	if err != nil {
		t.Fatal(err)
	}
	m := mustOpen(t, dir).Meta
	if m.Schema != SchemaVersion || m.RunID == "" || m.Tool.Go == "" || m.Host.Kernel == "" || m.Host.CPUs < 1 || m.Clocks.Start == nil || m.Clocks.End != nil || m.Closed {
		t.Errorf("at the start: %+v", m)
	}
	if !reflect.DeepEqual(m.Targets[0].Cmdline, []string{"serve", "--api-key", "***"}) {
		t.Errorf("command line %q", m.Targets[0].Cmdline)
	}
	if bytes.Contains(mustRead(t, dir, FileMetadata), []byte("abc")) {
		t.Error("the secret is in the file")
	}
	w.Proc(&Proc{Event: ProcExec, Cmdline: []string{"env", "HF_TOKEN=hf_abcdefghijkl", "run"}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := w.Request(&Request{}); err == nil {
		t.Error("a request after the end was taken")
	}
	r, err := Open(dir, OpenOptions{Decoders: []string{"zmtp/2", "http1/1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(r.Notes) != 2 || r.Notes[1].Code != "decoder-version" || !strings.Contains(r.Notes[1].Text, "zmtp/1") {
		t.Errorf("notes %+v", r.Notes)
	}
	if c := r.Meta.Clocks; c.End == nil || c.End.MonoNS <= c.Start.MonoNS || c.Start.WidthNS <= 0 || !r.Meta.Closed {
		t.Errorf("at the end: %+v", r.Meta)
	}
	if p := replayed(t, r)[0].(Proc); p.Cmdline[1] != "HF_TOKEN=***" {
		t.Errorf("process %+v", p)
	}
}

func TestWallClockStepIsTold(t *testing.T) {
	dir := closedRun(t, nil, segmentBytes)
	d, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	m, err := d.readMeta()
	if err != nil {
		t.Fatal(err)
	}
	m.Clocks.End.RealNS -= 3e9
	if err := d.writeMeta(m); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, dir)
	if n := r.Notes[len(r.Notes)-1]; n.Code != "wall-clock-step" || !strings.Contains(n.Text, "-3.000 s") && !strings.Contains(n.Text, "-2.999 s") {
		t.Errorf("notes %+v", r.Notes)
	}
	if got := r.Meta.Clocks.WallNS(m.Clocks.Start.MonoNS + 5); got != m.Clocks.Start.RealNS+5 {
		t.Errorf("wall time %d", got)
	}
}

func TestNamesAreChecked(t *testing.T) {
	w := mustCreate(t, filepath.Join(t.TempDir(), "run"), segmentBytes)
	defer w.Close()
	for _, name := range []string{"", ".", "..", "../x", "/etc/passwd", "a/b", "a\nb", ".hidden", "a b", "x.tmp", FileMetadata, FileRequests, FileSums, FileEvents, strings.Repeat("a", 300)} {
		if err := w.WriteFile(name, nil); err == nil {
			t.Errorf("%q was written", name)
		}
		if f, err := w.NewFile(name); err == nil {
			f.Close()
			t.Errorf("%q was created", name)
		}
	}
	for _, name := range []string{"kernel/../metadata.json", "../x", "kernel//x", "/x", "kernel/"} {
		if _, err := w.dir.open(name, os.O_RDONLY); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Errorf("open %q: %v", name, err)
		}
	}
}
