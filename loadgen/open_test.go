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
