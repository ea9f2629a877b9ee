package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/stageline/stageline/export"
)

const openUsage = `usage: stageline open RUN [--from S] [--to S] [--last N]

Serves the timeline of a run on this machine and prints the link that opens it in
https://ui.perfetto.dev. Only that page may read it; the trace stays in the browser. Ends
on Ctrl-C.

From another machine: ssh -L 9001:127.0.0.1:9001 HOST, then open the link there.

`

const (
	perfettoUI = "https://ui.perfetto.dev"
	// The one local port that the content security policy of ui.perfetto.dev lets it read from.
	openAddress = "127.0.0.1:9001"
	openPath    = "/trace.pftrace"
)

// runOpen is `stageline open`.
func runOpen(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("open", openUsage, stdout)
	var f timelineFlags
	f.add(fs)
	if err := parse(fs, args, 1, "RUN"); err != nil {
		return err
	}
	// Before the analysis: a port that is taken should not cost its time.
	l, err := net.Listen("tcp", openAddress)
	if err != nil {
		return fmt.Errorf("serve the timeline: %w; %s can read from this port only: end what listens on it, or use `stageline export`", err, perfettoUI)
	}
	defer l.Close()
	leave := endWith(ctx, "open", stderr) // there is nothing to end in order before it serves
	defer leave()
	r, err := f.report(fs.Arg(0))
	if err != nil {
		return err
	}
	file, size, err := drawTimeline(r, f.options(r), stderr)
	if err != nil {
		return err
	}
	defer file.Close()
	leave()
	return serveTimeline(ctx, l, file, size, stdout, stderr)
}

// drawTimeline draws a report into a file without a name and returns its size.
func drawTimeline(r *export.Report, o export.PerfettoOptions, stderr io.Writer) (*os.File, int64, error) {
	file, err := nameless(os.TempDir())
	if err != nil {
		return nil, 0, fmt.Errorf("create the timeline in %s: %w; name another directory in TMPDIR", os.TempDir(), err)
	}
	stats, err := writePerfetto(file, r, o, false)
	if err != nil {
		file.Close()
		return nil, 0, fmt.Errorf("draw the timeline in %s: %w", os.TempDir(), err)
	}
	noteTimeline(stderr, "timeline of "+r.Meta.RunID, &stats)
	return file, stats.Bytes, nil
}

// serveTimeline serves it until ctx is done.
func serveTimeline(ctx context.Context, l net.Listener, file io.ReaderAt, size int64, stdout, stderr io.Writer) error {
	s := &http.Server{Handler: traceHandler(file, size), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(stdout, "%s/#!/?url=http://%s%s\n", perfettoUI, openAddress, openPath)
	fmt.Fprintln(stderr, "serving; Ctrl-C ends it")
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the timeline: %w", err)
	}
	return nil
}

// traceHandler serves one file to ui.perfetto.dev alone. A page of another origin is refused, and so
// is one whose name was made to point to this machine.
func traceHandler(file io.ReaderAt, size int64) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(openPath, func(w http.ResponseWriter, q *http.Request) {
		origin := q.Header.Get("Origin")
		if origin != "" && origin != perfettoUI || q.Host != openAddress {
			http.Error(w, "only "+perfettoUI+" may read this", http.StatusForbidden)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", perfettoUI)
		h.Set("Vary", "Origin")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Type", "application/octet-stream")
		switch q.Method {
		case http.MethodOptions: // a browser asks before a page of the net reads from this machine
			h.Set("Access-Control-Allow-Methods", "GET, HEAD")
			h.Set("Access-Control-Allow-Private-Network", "true")
			w.WriteHeader(http.StatusNoContent)
		case http.MethodGet, http.MethodHead:
			http.ServeContent(w, q, "", time.Time{}, io.NewSectionReader(file, 0, size))
		default:
			h.Set("Allow", "GET, HEAD, OPTIONS")
			http.Error(w, "want GET", http.StatusMethodNotAllowed)
		}
	})
	return mux
}
