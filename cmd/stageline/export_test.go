package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/export"
)

func TestExportUsage(t *testing.T) {
	for _, c := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"export", "x"}, "use -o FILE.pftrace"},
		{[]string{"export", "x", "-o", "t.html"}, "there are .pftrace and .perfetto-trace, each also with .gz"},
		{[]string{"export", "x", "-o", "t.gz"}, "no format has this extension"},
		{[]string{"export", "-o", "t.pftrace"}, "wanted RUN"},
		{[]string{"export", "x", "-o", "t.pftrace", "--last", "-1"}, "--last -1"},
		{[]string{"export", "x", "-o", "t.pftrace", "--from", "2", "--to", "1"}, "--from 2 --to 1"},
		{[]string{"export", "x", "-o", "t.pftrace", "--from", "NaN"}, "--from NaN"},
		{[]string{"export", "x", "-o", "t.pftrace", "--stage", "nonsense"}, "want NAME=PATTERN"},
		{[]string{"open"}, "wanted RUN"},
	} {
		if code, _, notes := call(t, c.args...); code != exitUsage || !strings.Contains(notes, c.stderr) {
			t.Errorf("%q: exit %d, %q, want %q", c.args, code, notes, c.stderr)
		}
	}
}

func TestExportWritesAndCompresses(t *testing.T) {
	dir := emptyRun(t)
	files := map[string][]byte{}
	for _, name := range []string{"t.pftrace", "t.perfetto-trace", "t.pftrace.gz"} {
		path := filepath.Join(t.TempDir(), name)
		code, out, notes := call(t, "export", dir, "-o", path)
		b, err := os.ReadFile(path)
		if code != 0 || out != "" || err != nil || !strings.Contains(notes, "0 requests, 1 slices") || !strings.Contains(notes, "no request lies in this part") {
			t.Fatalf("%s: exit %d, %q, %q, %v", name, code, out, notes, err)
		}
		files[name] = b
	}
	z, err := gzip.NewReader(bytes.NewReader(files["t.pftrace.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil || !bytes.Equal(plain, files["t.pftrace"]) || !bytes.Equal(plain, files["t.perfetto-trace"]) || len(plain) < 100 {
		t.Fatalf("%d bytes decompressed, %d and %d plain, %v", len(plain), len(files["t.pftrace"]), len(files["t.perfetto-trace"]), err)
	}
}

func TestTimelineFlagsCountFromTheFirstRecord(t *testing.T) {
	f := timelineFlags{from: 1.5, to: 2, last: 3}
	o := f.options(&export.Report{Result: &correlate.Result{FromNS: 10_000_000_000}})
	if want := (export.PerfettoOptions{FromNS: 11_500_000_000, ToNS: 12_000_000_000, Last: 3}); o != want {
		t.Fatalf("got %+v, want %+v", o, want)
	}
}

func TestNoteTimelineSaysHowToCut(t *testing.T) {
	var b bytes.Buffer
	noteTimeline(&b, "x", &export.PerfettoStats{Requests: 1, Slices: manySlices, Instants: 1, FlowsLeftOut: 2})
	if s := b.String(); !strings.Contains(s, "--last N") || !strings.Contains(s, "2 hops have no arrow") {
		t.Fatal(s)
	}
}

// The page of the UI gets the trace, anybody else's does not, and the end of the command ends it.
func TestOpenServesTheUIOnly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	link, linked := io.Pipe()
	done := make(chan error, 1)
	r := &export.Report{Meta: &run.Metadata{RunID: "run-1"}, Result: &correlate.Result{FromNS: 1, ToNS: 2}}
	file, size, err := drawTimeline(r, export.PerfettoOptions{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	go func() { done <- serveTimeline(ctx, l, file, size, linked, io.Discard) }()
	b := make([]byte, 200)
	n, err := link.Read(b)
	if want := "https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/trace.pftrace\n"; err != nil || string(b[:n]) != want {
		t.Fatalf("link %q, %v", b[:n], err)
	}
	checkServed(t, l.Addr().String())
	stop()
	if err := <-done; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Fatalf("ended with %v", err)
	}
}

func checkServed(t *testing.T, address string) {
	t.Helper()
	for _, c := range []struct {
		method, host, origin, path string
		status                     int
	}{
		{"GET", openAddress, perfettoUI, openPath, 200},
		{"GET", openAddress, "", openPath, 200},
		{"HEAD", openAddress, perfettoUI, openPath, 200},
		{"OPTIONS", openAddress, perfettoUI, openPath, 204},
		{"GET", openAddress, "https://evil.example", openPath, 403},
		{"GET", openAddress, "null", openPath, 403},
		{"GET", "evil.example:9001", "", openPath, 403},
		{"POST", openAddress, perfettoUI, openPath, 405},
		{"GET", openAddress, perfettoUI, "/", 404},
	} {
		q, err := http.NewRequest(c.method, "http://"+address+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Host = c.host
		if c.origin != "" {
			q.Header.Set("Origin", c.origin)
		}
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status {
			t.Errorf("%+v: %s, %v", c, resp.Status, err)
		}
		if c.status == 200 && (resp.Header.Get("Access-Control-Allow-Origin") != perfettoUI || c.method == "GET" && !bytes.Contains(body, []byte("run run-1"))) {
			t.Errorf("%+v: %v, %d bytes", c, resp.Header, len(body))
		}
		if c.status >= 400 && (resp.Header.Get("Access-Control-Allow-Origin") == "*" || bytes.Contains(body, []byte("run run-1"))) {
			t.Errorf("%+v: the trace is given away", c)
		}
	}
}
