package loadgen

import (
	"testing"
	"time"
)

// A worker that comes back after the last request is through does not wait for another: the one whose
// request ends the load is still on its way to the idle ones when they are ended.
func TestWorkerAfterTheEnd(t *testing.T) {
	d := &dispatcher{}
	d.over = true
	ended := make(chan *shot)
	go func() { ended <- d.waitFor(&worker{in: make(chan *shot, 1)}, 0) }()
	select {
	case s := <-ended:
		if s != nil {
			t.Errorf("a late worker got %+v", s)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a late worker waits for a request that never comes")
	}
}

// A request that is late because no place was free is late by the generator only from then on, also
// when the worker that was free is found idle.
func TestLagOfAnIdlePlace(t *testing.T) {
	for limit, want := range map[int]int64{2: 500, 0: 0} {
		d := &dispatcher{limit: limit, workers: 2}
		for _, at := range []int64{500, 700} {
			d.idle = append(d.idle, &worker{in: make(chan *shot, 1), freeNS: at})
		}
		s := &shot{}
		d.assign(t.Context(), s)
		if s.freeNS != want || len(d.idle) != 1 {
			t.Errorf("limit %d: free since %d, want %d; %d idle", limit, s.freeNS, want, len(d.idle))
		}
	}
}
