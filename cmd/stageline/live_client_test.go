package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/export"
)

// chatBody is the request of these tests' own client; %s is the id. The product's load generator
// sends the same through --body-template.
const chatBody = `{"request_id":"%s","model":"m","stream":true,"messages":[{"role":"user","content":"hello there"}]}`

// chatLoad sends chat completions from an HTTP client that is not the product's.
type chatLoad struct {
	url   string
	n     int
	id    func(i int) string // nil: no id is sent anywhere
	plain bool               // the reply is one JSON object
	ended chan int           // number of each request that was answered whole

	mu     sync.Mutex
	sentNS map[int]int64
	endNS  map[int]int64
	failed []error
	group  sync.WaitGroup
}

// start sends n requests, at most c at once.
func (l *chatLoad) start(ctx context.Context, c int) {
	l.sentNS, l.endNS, l.ended = map[int]int64{}, map[int]int64{}, make(chan int, l.n)
	work := make(chan int, l.n)
	for i := range l.n {
		work <- i
	}
	close(work)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: c}}
	for range c {
		l.group.Go(func() {
			for i := range work {
				l.one(ctx, client, i)
			}
		})
	}
	go func() {
		l.group.Wait()
		client.CloseIdleConnections()
		close(l.ended)
	}()
}

func (l *chatLoad) one(ctx context.Context, client *http.Client, i int) {
	l.mu.Lock()
	l.sentNS[i] = run.Mono()
	l.mu.Unlock()
	err := l.post(ctx, client, i)
	at := run.Mono()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = append(l.failed, fmt.Errorf("request %d: %w", i, err))
		return
	}
	l.endNS[i] = at
	l.ended <- i
}

func (l *chatLoad) post(ctx context.Context, client *http.Client, i int) error {
	body := strings.Replace(chatBody, `"request_id":"%s",`, "", 1)
	if l.id != nil {
		body = fmt.Sprintf(chatBody, l.id(i))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	if l.id != nil {
		req.Header.Set("X-Request-Id", l.id(i))
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	whole := l.plain || strings.HasSuffix(string(b), "data: [DONE]\n\n")
	if err == nil && (resp.StatusCode != http.StatusOK || !whole || strings.Contains(string(b), `"error"`)) {
		err = fmt.Errorf("HTTP %d, reply ends with %q", resp.StatusCode, b[max(0, len(b)-80):])
	}
	return err
}

// await returns once k more requests are answered; all of them when k is negative.
func (l *chatLoad) await(t *testing.T, k int) {
	t.Helper()
	limit := time.After(liveLimit)
	for ; k != 0; k-- {
		select {
		case _, more := <-l.ended:
			if !more && k < 0 {
				return
			}
			if !more {
				t.Fatalf("the load ended early: %v", l.failed)
			}
		case <-limit:
			t.Fatalf("the load was not done within %v", liveLimit)
		}
	}
}

// finish waits for the rest and fails the test for each request that was not answered whole.
func (l *chatLoad) finish(t *testing.T) {
	t.Helper()
	l.await(t, -1)
	for _, err := range l.failed {
		t.Error(err)
	}
}

// ids are those of the requests for which pass holds, by sending and end of reply (0: none).
func (l *chatLoad) ids(pass func(sentNS, endNS int64) bool) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]bool{}
	for i, at := range l.sentNS {
		if pass(at, l.endNS[i]) {
			out[l.id(i)] = true
		}
	}
	return out
}

// loadDocument builds the report of a run as the accuracy command does.
func loadDocument(t *testing.T, dir string) *export.Document {
	t.Helper()
	o, err := timelineOptions()
	if err != nil {
		t.Fatal(err)
	}
	r, err := analyse(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return export.NewDocument(r)
}

func loadTruth(t *testing.T, path string) *truth {
	t.Helper()
	tr, err := readTruth(path)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// compareSome scores a report against the truth for some requests only.
func compareSome(doc *export.Document, tr *truth, keep map[string]bool) (*Accuracy, *matching) {
	d, s := *doc, *tr
	d.Requests = slices.DeleteFunc(slices.Clone(doc.Requests), func(q correlate.RequestTimeline) bool {
		return !slices.ContainsFunc(tr.names(&q), func(n string) bool { return keep[n] })
	})
	s.requests = slices.DeleteFunc(slices.Clone(tr.requests), func(id string) bool { return !keep[id] })
	s.visits, s.hops = maps.Clone(tr.visits), maps.Clone(tr.hops)
	maps.DeleteFunc(s.visits, func(id string, _ []*truthVisit) bool { return !keep[id] })
	maps.DeleteFunc(s.hops, func(id string, _ []*truthHop) bool { return !keep[id] })
	m := match(&d, &s)
	return score(m, doc.Meta.RunID, false), m
}

func allOf(tr *truth) map[string]bool {
	out := map[string]bool{}
	for _, id := range tr.requests {
		out[id] = true
	}
	return out
}

// wantAllRight: every hop and join of the truth is there, and nothing else is.
func wantAllRight(t *testing.T, a *Accuracy, requests int) {
	t.Helper()
	if a.Counts.Requests != requests || a.Counts.RequestsMissed != 0 {
		t.Errorf("%d requests compared and %d missed, want %d and none", a.Counts.Requests, a.Counts.RequestsMissed, requests)
	}
	f := a.Figures
	if f.HopsMissed != 0 || f.HopsInvented != 0 || f.JoinsWrong != 0 || f.JoinsUnknown != 0 {
		t.Errorf("hops missed %d, invented %d, joins wrong %d, unknown %d of %d hops and %d joins; want none: %v",
			f.HopsMissed, f.HopsInvented, f.JoinsWrong, f.JoinsUnknown, a.Counts.Hops, a.Counts.Joins, a.Examples)
	}
	if a.Counts.Hops < requests {
		t.Errorf("truth has %d hops for %d requests: the comparison compares nothing", a.Counts.Hops, requests)
	}
}

// hopKey is what hops are counted by.
type hopKey struct{ from, to, typ string }

// hopCounts counts the hops of one request.
func hopCounts(q *correlate.RequestTimeline) map[hopKey]int {
	out := map[hopKey]int{}
	for i := range q.Hops {
		out[hopKey{q.Hops[i].From, q.Hops[i].To, q.Hops[i].Type}]++
	}
	return out
}
