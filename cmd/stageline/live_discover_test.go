package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/export"
)

// Nobody tells the recorder what is sent: requests of a foreign client are found at the entry, and
// have the hops that the product's own load has on the same pipeline.
func TestLiveDiscovery(t *testing.T) {
	needLive(t)
	const n, c = 24, 4
	id := func(i int) string { return fmt.Sprintf("same-%06d", i+1) }
	for _, seed := range []string{"4", "5"} {
		t.Run("seed-"+seed, func(t *testing.T) {
			profiled := profileChat(t, seed, n, c)
			dir := workDir(t)
			doc, tr := recordForeign(t, dir, seed, &chatLoad{n: n, id: id}, c)
			a, _ := compareSome(doc, tr, allOf(tr))
			wantAllRight(t, a, n)
			if len(doc.Requests) != n {
				t.Errorf("%d requests discovered, want %d", len(doc.Requests), n)
			}
			for i := range doc.Requests {
				q := &doc.Requests[i]
				if q.Source != "discovered" || q.Client != nil || q.InFlight {
					t.Errorf("%s: source %q, client %v, in flight %v", q.ID, q.Source, q.Client, q.InFlight)
				}
				want := profiled[q.ID]
				if got := hopCounts(q); !maps.Equal(got, want) {
					t.Errorf("%s: hops %v, under the product's own load %v", q.ID, got, want)
				}
			}
		})
	}
}

// profileChat runs the product's own load and returns each request's hops.
func profileChat(t *testing.T, seed string, n, c int) map[string]map[hopKey]int {
	t.Helper()
	dir := workDir(t)
	e := startEngine(t, dir, nil, "--seed", seed)
	template := filepath.Join(dir, "body.json")
	if err := os.WriteFile(template, []byte(strings.Replace(chatBody, "%s", "{{id}}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	o := stageline(t, "profile", "-u", e.URL, "-p", e.pids(), "-c", fmt.Sprint(c), "-n", fmt.Sprint(n),
		"--id-prefix", "same", "--body-template", template, "-o", filepath.Join(dir, "run"))
	o.want(t, exitOK, fmt.Sprintf("%d of %d requests succeeded", n, n))
	e.stop(t)
	out := map[string]map[hopKey]int{}
	doc := loadDocument(t, filepath.Join(dir, "run"))
	for i := range doc.Requests {
		out[doc.Requests[i].ID] = hopCounts(&doc.Requests[i])
	}
	if len(out) != n {
		t.Errorf("the profile has %d requests, want %d", len(out), n)
	}
	return out
}

// recordForeign records the pipeline under another client's load.
func recordForeign(t *testing.T, dir, seed string, l *chatLoad, c int) (*export.Document, *truth) {
	t.Helper()
	e := startEngine(t, dir, nil, "--seed", seed)
	r := startRecord(t, "-p", e.pids(), "-o", filepath.Join(dir, "run"))
	l.url = e.URL
	l.start(t.Context(), c)
	l.finish(t)
	r.interrupt(t).want(t, exitOK)
	e.stop(t)
	return loadDocument(t, filepath.Join(dir, "run")), loadTruth(t, e.truth)
}

// A client that sends no id at all: the engine mints one, and everything is found under it. Seed 3
// wraps ids inside the pipeline.
func TestLiveDiscoveryWithoutIDs(t *testing.T) {
	needLive(t)
	const n = 24
	for _, seed := range []string{"4", "3"} {
		t.Run("seed-"+seed, func(t *testing.T) {
			doc, tr := recordForeign(t, workDir(t), seed, &chatLoad{n: n}, 4)
			a, _ := compareSome(doc, tr, allOf(tr))
			wantAllRight(t, a, n)
			if len(doc.Requests) != n {
				t.Errorf("%d requests discovered, want %d", len(doc.Requests), n)
			}
		})
	}
}

// Attached while 8 requests are in flight: what came later is complete, what was under way is
// graded down, and nothing is claimed that the truth does not have. One stage stands still until the
// probes are on, so that however long that takes some requests are in flight all the while.
func TestLiveAttachInFlight(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	e := startEngine(t, dir, nil, "--seed", "1")
	l := &chatLoad{url: e.URL, n: 80, id: func(i int) string { return fmt.Sprintf("mid-%06d", i) }}
	l.start(t.Context(), 8)
	l.await(t, 12)
	held := int(e.stage(t, "llm").PIDs[0])
	sendSignal(t, held, syscall.SIGSTOP)
	r := startRecord(t, "-p", e.pids(), "-o", filepath.Join(dir, "run"))
	attached := run.Mono()
	sendSignal(t, held, syscall.SIGCONT)
	l.finish(t)
	r.interrupt(t).want(t, exitOK)
	e.stop(t)
	doc, tr := loadDocument(t, filepath.Join(dir, "run")), loadTruth(t, e.truth)

	later := l.ids(func(sent, _ int64) bool { return sent > attached })
	a, _ := compareSome(doc, tr, later)
	wantAllRight(t, a, len(later))

	earlier := l.ids(func(sent, _ int64) bool { return sent <= attached })
	_, m := compareSome(doc, tr, earlier)
	if len(m.hopsInvented) > 0 || len(m.visitsInvented) > 0 {
		t.Errorf("of requests in flight at attach %d hops and %d visits are invented", len(m.hopsInvented), len(m.visitsInvented))
	}
	wrongInputs(t, m)
	_, all := compareSome(doc, tr, allOf(tr))
	for _, s := range misplaced(all) {
		t.Error(s)
	}
	under := l.ids(func(sent, end int64) bool { return sent < doc.FromNS && end > doc.FromNS })
	if len(under) < 7 {
		t.Fatalf("%d requests were in flight at attach, want 7 or 8: the test does not test", len(under))
	}
	// What ended within the milliseconds of attaching may have left nothing to mark.
	inFlight := l.ids(func(sent, end int64) bool { return sent < doc.FromNS && end > attached })
	flagged := 0
	for i := range doc.Requests {
		q := &doc.Requests[i]
		for _, name := range tr.names(q) {
			// Sent just before the first record, read by the engine after it: nothing of it was missed.
			whole := q.Entry.NS != nil && *q.Entry.NS >= doc.FromNS
			switch {
			case inFlight[name] && whole && !q.InFlight:
			case inFlight[name] && !q.InFlight:
				t.Errorf("%s was under way at attach and is not marked", name)
			case inFlight[name]:
				flagged++
			case later[name] && q.InFlight:
				t.Errorf("%s came after attach and is marked as under way", name)
			}
		}
	}
	t.Logf("%d requests in flight at attach, %d found and marked; %d later", len(under), flagged, len(later))
	if flagged == 0 {
		t.Error("no request that was under way is in the report")
	}
}

// wrongInputs fails for each input of a matched visit that the truth's visit did not have.
func wrongInputs(t *testing.T, m *matching) {
	t.Helper()
	for tv, v := range m.visits {
		had := map[string]bool{}
		for _, a := range tv.Arrivals {
			had[a.From] = true
		}
		for _, in := range v.Inputs {
			if !had[in.From] {
				t.Errorf("%s at %s: input from %q, truth has %v", tv.Request, tv.Stage, in.From, had)
			}
		}
	}
}

// seenEnd is one end of a hop of the truth and where the report says that it was seen.
type seenEnd struct {
	truth, ns int64
	hop       *truthHop
}

// misplaced lists the seen ends of hops that were paired with another message's. Between two
// processes one thread sends and one receives, and the pipeline stamps before it calls write and after
// read has returned: a send is seen after its own stamp and before that of the next write, a receive
// before its own stamp and after that of the read before. However late a thread gets to run between
// its call and its stamp, this holds.
func misplaced(m *matching) []string {
	type channel struct {
		from, to uint32
		send     bool
	}
	ends := map[channel][]seenEnd{}
	for th, h := range m.hops {
		if h.Send.Timing == correlate.TimingSeen {
			k := channel{h.FromTGID, h.ToTGID, true}
			ends[k] = append(ends[k], seenEnd{*th.Send, *h.Send.NS, th})
		}
		if h.Recv.Timing == correlate.TimingSeen {
			// As a send, with time running backwards.
			k := channel{h.FromTGID, h.ToTGID, false}
			ends[k] = append(ends[k], seenEnd{-*th.Recv, -*h.Recv.NS, th})
		}
	}
	var out []string
	for k, l := range ends {
		slices.SortFunc(l, func(a, b seenEnd) int { return cmp.Compare(a.truth, b.truth) })
		for i, e := range l {
			late := slices.IndexFunc(l[i:], func(x seenEnd) bool { return x.ns != e.ns }) // the first of another call
			if e.ns < e.truth || late > 0 && e.ns > l[i+late].truth {
				out = append(out, fmt.Sprintf("%s: hop %s → %s %s (send %v) is seen %d µs after its stamp, at another message's place", e.hop.Request, e.hop.From, e.hop.To, e.hop.Type, k.send, (e.ns-e.truth)/1000))
			}
		}
	}
	return out
}

// Late stamps and messages that share a call are no misplacement; a swap and a shift are.
func TestMisplaced(t *testing.T) {
	truth := []int64{100, 200, 300, 400}
	for _, c := range []struct {
		name string
		send []int64
		want int
	}{
		{"in place", []int64{101, 201, 301, 401}, 0},
		{"late stamps before, as if the thread lost the CPU", []int64{199, 299, 399, 9000}, 0},
		{"two in one call", []int64{101, 301, 301, 401}, 0},
		{"before its stamp", []int64{99, 201, 301, 401}, 1},
		{"two swapped", []int64{101, 301, 201, 401}, 2},
		{"each one later", []int64{201, 301, 401, 501}, 3},
	} {
		m := &matching{hops: map[*truthHop]*foundHop{}}
		for i, at := range truth {
			recv, back := 10000-at, 10000-c.send[i] // the same, mirrored
			h := &correlate.Hop{FromTGID: 1, ToTGID: 2, Send: seen(c.send[i]), Recv: seen(back)}
			m.hops[&truthHop{Send: &at, Recv: &recv}] = &foundHop{nil, h}
		}
		if got := misplaced(m); len(got) != 2*c.want {
			t.Errorf("%s: %v, want %d of each end", c.name, got, c.want)
		}
	}
}
