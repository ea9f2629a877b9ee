package correlate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// Handed out one by one, requests are what Result would have listed, in its order.
func TestDoneIsGivenWhatTheResultLists(t *testing.T) {
	for _, apart := range []int{500, 200_000} {
		text := strings.Join(recording(300, apart), "\n")
		kept := New(Options{StageOf: byComm})
		feed(t, kept, text)
		want := kept.Finish()
		for i := range want.Requests {
			for k := range want.Requests[i].Visits {
				want.Requests[i].Visits[k].Activation = -1
			}
		}
		var got []string
		var tl *Timeline
		most := 0
		tl = New(Options{StageOf: byComm, Done: func(q *RequestTimeline) {
			for k := range q.Visits {
				q.Visits[k].Activation = -1
			}
			got = append(got, encoded(t, q))
			most = max(most, len(tl.unhanded))
		}})
		feed(t, tl, text)
		early, held := len(got), most
		res := tl.Finish()
		if len(res.Requests) != 0 || res.Counts != want.Counts || len(got) != len(want.Requests) {
			t.Fatalf("%d kept, %d handed out of %d", len(res.Requests), len(got), len(want.Requests))
		}
		for i := range want.Requests {
			if got[i] != encoded(t, &want.Requests[i]) {
				t.Fatalf("request %d:\n got %s\nwant %s", i, got[i], encoded(t, &want.Requests[i]))
			}
		}
		if apart > 500 && (early < len(got)*3/4 || held > 50) { // it takes seconds until one is settled
			t.Errorf("%d of %d before the end, up to %d held back", early, len(got), held)
		}
	}
}

func encoded(t *testing.T, q *RequestTimeline) string {
	t.Helper()
	b, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A request whose id the engine never showed is tied to its client before it is handed out.
func TestDoneLinksByConnection(t *testing.T) {
	at := func(us int64) *int64 { return ptr(baseNS + us*1000) }
	q := run.Request{Source: "loadgen", ID: "load-7", State: run.StateSuccess, Local: "127.0.0.1:40001", Remote: "127.0.0.1:8000", SentNS: at(90), EndNS: at(1020)}
	var got []RequestTimeline
	tl := New(Options{StageOf: byComm, Done: func(q *RequestTimeline) { got = append(got, *q) }})
	tl.Request(&q)
	feed(t, tl, twoProcs+`
		recv 1 10 100-110 0+300 POST_/v1/x x=1 flags=first,last
		send 2 10 150-160 0+50 submit id=minted-0001
		recv 3 20 155-170 0+50 submit id=minted-0001
		send 1 10 1000-1010 0+99 200 x=1 status=200 flags=first,last
		shm 10 open 90000000-90000001 psm_8
		shm 10 open 95000000-95000001 psm_9
		shm 10 open 99000000-99000001 psm_9`)
	if len(got) != 1 || got[0].ID != "load-7" || got[0].Client == nil || got[0].Source != "loadgen" {
		t.Errorf("handed out before the end: %+v", got)
	}
	tl.Finish()
	if len(got) != 1 {
		t.Errorf("%d requests in all", len(got))
	}
}
