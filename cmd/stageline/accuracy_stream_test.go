package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stageline/stageline/correlate"
)

// Read one request at a time, a report has the accuracy that it has as a whole: with requests that
// share names, faults of each kind in more requests than are listed, and a log in any order.
func TestAccuracyByRequest(t *testing.T) {
	dir := t.TempDir()
	report, log := filepath.Join(dir, "report.json"), filepath.Join(dir, "truth.jsonl")
	doc := perfect()
	one := doc.Requests[0]
	doc.Requests = nil
	head, lines, _ := strings.Cut(strings.TrimSpace(truthOne), "\n")
	var all []string
	const n = 60
	for i := range n {
		id := fmt.Sprintf("r%02d", i)
		for line := range strings.Lines(lines) {
			all = append(all, strings.ReplaceAll(strings.TrimSpace(line), `"request":"r1"`, fmt.Sprintf(`"request":%q`, id)))
		}
		b, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		var q correlate.RequestTimeline
		if err := json.Unmarshal(b, &q); err != nil {
			t.Fatal(err)
		}
		q.ID = id
		switch i % 6 {
		case 1:
			q.Visits = q.Visits[:len(q.Visits)-1]
		case 2:
			q.Hops = append(q.Hops, q.Hops[0], q.Hops[0])
		case 3:
			q.ID, q.Aliases = "own-"+id, []correlate.Alias{{Value: id, Reason: "contains"}, {Value: fmt.Sprintf("r%02d", n-1-i), Reason: "contains"}}
		case 4:
			q.ID = "reply-" + id // known by the log alone
			all = append(all, fmt.Sprintf(`{"t":"request","request":%q,"reply_id":%q,"messages":{"x":1}}`, id, q.ID))
		case 5:
			q.ID = "unknown-" + id
		}
		*q.Visits[len(q.Visits)-1].Start.NS += int64(1000 * i)
		doc.Requests = append(doc.Requests, q)
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	rnd.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	rnd.Shuffle(n, func(i, k int) { doc.Requests[i], doc.Requests[k] = doc.Requests[k], doc.Requests[i] })
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{report: b, log: []byte(head + "\n" + strings.Join(all, "\n") + "\n")} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, within := range []bool{false, true} {
		tr := loadTruth(t, log)
		if within {
			tr.within(doc.FromNS, doc.ToNS)
		}
		whole := score(match(doc, tr), doc.Meta.RunID, false)
		got, err := accuracyOf(report, log, false, within)
		if err != nil {
			t.Fatal(err)
		}
		var a, z bytes.Buffer
		if err := writeAccuracy(&a, whole, true); err != nil {
			t.Fatal(err)
		}
		if err := writeAccuracy(&z, got, true); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Bytes(), z.Bytes()) {
			t.Errorf("within %v: by request\n%s\nas a whole\n%s", within, z.String(), a.String())
		}
		if c := got.Counts; !within && (c.Requests != n || c.RequestsMissed == 0 || c.VisitsMissed <= maxExamples || got.Figures.HopsInvented <= maxExamples) {
			t.Errorf("the test does not test: %+v", c)
		}
	}
}

// Requests are together that share a name, also through others.
func TestNameGroups(t *testing.T) {
	g := newNameGroups(5)
	for _, of := range [][]uint32{{3}, nil, {4, 1}, {1, 3}, {0}} {
		g.add(of)
	}
	var got []string
	if err := g.each(func(truths, requests []int) error {
		got = append(got, fmt.Sprint(truths, requests))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := "[0] [4]; [1 3 4] [0 2 3]; [2] []; [] [1]"; strings.Join(got, "; ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, "; "), want)
	}
}
