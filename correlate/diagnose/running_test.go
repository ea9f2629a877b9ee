package diagnose

import (
	"reflect"
	"testing"

	"github.com/stageline/stageline/correlate"
)

// Two requests that meet in one moment, one without an end, one of no duration; two activations of
// one stage at a time.
func TestRunning(t *testing.T) {
	one := []correlate.Visit{{Stage: "work"}}
	got := Running(&correlate.Result{
		Requests: []correlate.RequestTimeline{
			{Entry: seen(10), Exit: seen(30), Visits: one}, {Entry: seen(20), Exit: seen(40), Visits: one}, {Entry: seen(40), Exit: seen(50), Visits: one},
			{Entry: seen(15), Exit: unknown()}, {Entry: seen(60), Exit: seen(60)}, {Entry: seen(70), Exit: seen(69)},
		},
		Activations: []correlate.Activation{
			{Stage: "work", Start: seen(10), Finish: seen(30), Members: [][2]int{{0, 0}, {1, 0}}},
			{Stage: "work", Start: seen(20), Finish: seen(25), Members: [][2]int{{2, 0}}},
			{Stage: "work", Start: unknown(), Finish: seen(90), Members: [][2]int{{2, 0}}},
		},
	})
	want := Counts{
		InFlight: []Count{{10, 1}, {20, 2}, {30, 1}, {50, 0}},
		Batch:    map[string][]Count{"work": {{10, 2}, {20, 3}, {25, 2}, {30, 0}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
