package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/diagnose"
	"github.com/stageline/stageline/export"
)

// analyse opens a run, checks it, and builds the report from its records alone.
func analyse(dir string, o correlate.Options) (_ *export.Report, err error) {
	r, err := run.Open(dir, run.OpenOptions{Decoders: decoders()})
	if err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return analyseRun(r, o)
}

func analyseRun(r *run.Run, o correlate.Options) (*export.Report, error) {
	res, err := timelineOf(r, o)
	if err != nil {
		return nil, err
	}
	sum := diagnose.Summarise(res)
	report := &export.Report{Meta: &r.Meta, Result: res, Summary: sum, Verdict: diagnose.Judge(res, sum)}
	return report, res.Err()
}

// timelineOf builds the timeline of a run from its records.
func timelineOf(r *run.Run, o correlate.Options) (*correlate.Result, error) {
	t := correlate.New(o)
	// The load's own record first: ids that a client minted are then known when messages come.
	err := r.Requests(func(q *run.Request) error {
		t.Request(q)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read requests of run %s: %w", r.Meta.RunID, err)
	}
	if err := r.Replay(t); err != nil {
		return nil, fmt.Errorf("read records of run %s: %w", r.Meta.RunID, err)
	}
	for i := range r.Notes {
		t.Note(&r.Notes[i])
	}
	return t.Finish(), nil
}

// partialFile is the result that is being written, to be removed when a signal ends the command.
type partialFile struct {
	mu   sync.Mutex
	path string // "": none
}

var partial partialFile

func (p *partialFile) set(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.path = path
}

func (p *partialFile) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path != "" {
		os.Remove(p.path)
	}
}

// writeFile writes a result to a file, or to stdout when path is empty. A file appears whole or not
// at all.
func writeFile(path string, stdout io.Writer, write func(io.Writer) error) error {
	if path == "" {
		return write(stdout)
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return writeThrough(path, write)
	}
	// A new file of a name that nobody can foresee: where others may write too, as in /tmp, one of a
	// fixed name could be a link to something else.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.partial")
	if err != nil {
		return fmt.Errorf("create result: %w", err)
	}
	tmp := f.Name()
	partial.set(tmp)
	defer partial.set("")
	if err := errors.Join(write(f), f.Close()); err != nil {
		os.Remove(tmp)
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		os.Remove(tmp)
		return fmt.Errorf("put result in place: %w", err)
	}
	return nil
}

// writeThrough writes to a device or a pipe, which must not be replaced by a file.
func writeThrough(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open result: %w", err)
	}
	return errors.Join(write(f), f.Close())
}

// lossShare is the share of records that the ledger says are lost. Stretches of streams are not
// records: they follow from records that the ledger has counted, or from bytes without a frame.
func lossShare(res *correlate.Result) (lost uint64, share float64) {
	for _, l := range res.Loss {
		if l.Severity == "data-loss" && l.What != "stream" {
			lost += l.N
		}
	}
	if lost == 0 {
		return 0, 0
	}
	return lost, float64(lost) / float64(lost+res.Counts.Records)
}

// checkLoss is an error when more than max of the records are lost.
func checkLoss(res *correlate.Result, max float64) error {
	lost, share := lossShare(res)
	if share <= max {
		return nil
	}
	return withExit(exitLost, fmt.Errorf("%d of %d records were lost (%.2f %%, allowed %.2f %%); see the loss ledger, record with a larger ring or fewer targets, or raise --max-loss",
		lost, lost+res.Counts.Records, 100*share, 100*max))
}

// checkVerdict is an error when the verdict is inconclusive.
func checkVerdict(v diagnose.Verdict) error {
	if v.Kind != diagnose.KindInconclusive {
		return nil
	}
	return withExit(exitInconclusive, fmt.Errorf("the verdict is inconclusive: %s", v.Reason))
}
