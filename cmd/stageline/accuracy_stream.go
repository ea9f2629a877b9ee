package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/export"
)

// judged is a report that is judged, of which the requests are read one at a time.
type judged interface {
	// index calls each with the names of all requests, in order, and returns the report without them.
	index(each func(i int, q *export.RequestNames)) (*export.Document, error)
	request(i int) (*correlate.RequestTimeline, error)
	Close() error
}

// accuracyOf compares a JSON report, or that of a run, with a truth log. It holds one request at a
// time, or those few that share names, and of all others the figures, ids and places.
func accuracyOf(report, truthPath string, recorder, within bool) (_ *Accuracy, err error) {
	d, err := openJudged(report)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	log, err := openTruth(truthPath) // the report is complete before
	if err != nil {
		if _, bad := d.index(func(int, *export.RequestNames) {}); bad != nil {
			err = bad // of two faults the user first hears of the report's
		}
		return nil, err
	}
	defer log.Close()
	groups := newNameGroups(log.Len())
	head, err := d.index(func(_ int, q *export.RequestNames) { groups.add(log.of(namesOf(q.ID, q.Aliases))) })
	if err != nil {
		return nil, err
	}
	if head.Meta == nil {
		return nil, fmt.Errorf("%s: the report does not say which run it is of", report)
	}
	j := newJudgement(head.Stages, log.whole.stages, log.types)
	s := newScorer(log.whole.source, recorder)
	err = groups.each(func(truths, requests []int) error {
		t, err := log.read(truths)
		if err != nil {
			return err
		}
		if within {
			t.within(head.FromNS, head.ToNS)
		}
		l := make([]*correlate.RequestTimeline, len(requests))
		for k, i := range requests {
			if l[k], err = d.request(i); err != nil {
				return err
			}
		}
		s.add(j.match(l, requests, t))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.result(head.Meta.RunID), nil
}

// openJudged opens a JSON report, or builds that of a run when the path is one.
func openJudged(path string) (judged, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open report: %w", err)
	}
	if info.IsDir() {
		r, err := new(reportFlags).analyse(path)
		if err != nil {
			return nil, err
		}
		return runJudged{r}, nil
	}
	f, err := openWhole(path)
	if err != nil {
		return nil, fmt.Errorf("open report: %w", err)
	}
	return &fileJudged{File: f, path: path}, nil
}

// runJudged is the report of a run.
type runJudged struct{ r *export.Report }

func (j runJudged) index(each func(int, *export.RequestNames)) (*export.Document, error) {
	for i, q := range j.r.Result.All() {
		each(i, &export.RequestNames{ID: q.ID, Aliases: q.Aliases})
	}
	return export.NewDocument(j.r), j.r.Result.Err()
}

func (j runJudged) request(i int) (*correlate.RequestTimeline, error) {
	q := j.r.Result.Request(i)
	return q, j.r.Result.Err()
}

func (j runJudged) Close() error { return nil }

// fileJudged is a report in a file.
type fileJudged struct {
	*os.File
	path string
	rd   *export.Reader
}

func (j *fileJudged) index(each func(int, *export.RequestNames)) (*export.Document, error) {
	info, err := j.Stat()
	if err == nil {
		j.rd, err = export.NewReader(j.File, info.Size(), each)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", j.path, err)
	}
	return j.rd.Head, nil
}

func (j *fileJudged) request(i int) (*correlate.RequestTimeline, error) { return j.rd.Request(i) }

// nameGroups puts requests of a report and of a truth log together that share names, directly or by
// others: only those can be each other's.
type nameGroups struct {
	up    []int32 // by request of the truth: another of its group, toward the one that stands for it
	first []int32 // by request of the report: one of the truth, −1 none
}

func newNameGroups(truths int) *nameGroups {
	g := &nameGroups{up: make([]int32, truths)}
	for i := range g.up {
		g.up[i] = int32(i)
	}
	return g
}

// add takes the next request of the report, which may be any of those of the truth.
func (g *nameGroups) add(truths []uint32) {
	if len(truths) == 0 {
		g.first = append(g.first, -1)
		return
	}
	a := g.root(int32(truths[0]))
	g.first = append(g.first, a)
	for _, t := range truths[1:] {
		b := g.root(int32(t))
		a, b = min(a, b), max(a, b)
		g.up[b] = a // the first of a group stands for it
	}
}

func (g *nameGroups) root(i int32) int32 {
	for g.up[i] != i {
		g.up[i] = g.up[g.up[i]]
		i = g.up[i]
	}
	return i
}

// each calls fn with the members of each group, in order, by the first request of the truth, and
// then with each request of the report that is in none.
func (g *nameGroups) each(fn func(truths, requests []int) error) error {
	truths := chains(len(g.up), len(g.up), func(i int) int32 { return g.root(int32(i)) })
	requests := chains(len(g.first), len(g.up), func(i int) int32 {
		if g.first[i] < 0 {
			return -1
		}
		return g.root(g.first[i])
	})
	var t, r []int
	for i := range g.up {
		if g.root(int32(i)) != int32(i) {
			continue
		}
		t, r = truths.list(t[:0], i), requests.list(r[:0], i)
		if err := fn(t, r); err != nil {
			return err
		}
	}
	for i, of := range g.first {
		if of >= 0 {
			continue
		}
		if err := fn(nil, []int{i}); err != nil {
			return err
		}
	}
	return nil
}

// chained are lists of numbers in order, several in two tables.
type chained struct{ head, next []int32 }

// chains puts each of n numbers into one of so many lists, −1 into none.
func chains(n, lists int, of func(i int) int32) chained {
	c := chained{make([]int32, lists), make([]int32, n)}
	for i := range c.head {
		c.head[i] = -1
	}
	for i := n - 1; i >= 0; i-- {
		if l := of(i); l >= 0 {
			c.next[i], c.head[l] = c.head[l], int32(i)
		}
	}
	return c
}

func (c chained) list(out []int, l int) []int {
	for i := c.head[l]; i >= 0; i = c.next[i] {
		out = append(out, int(i))
	}
	return out
}
