package loadgen

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/loadgen/mock"
)

// Times by token: a read has the time of its last token, what it brought is as long as that took.
func TestTokenErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		at, wrote []int64
		want      []float64
	}{
		"one a read":              {[]int64{11, 21, 31}, []int64{10, 20, 30}, []float64{0, 0}},
		"one late":                {[]int64{11, 25, 31}, []int64{10, 20, 30}, []float64{4, -4}},
		"two in one read":         {[]int64{11, 31, 31, 41}, []int64{10, 20, 30, 40}, []float64{0, 0, 0}},
		"two in one late read":    {[]int64{11, 37, 37, 41}, []int64{10, 20, 30, 40}, []float64{3, 3, -6}},
		"first read has two":      {[]int64{21, 21, 31}, []int64{10, 20, 30}, []float64{0}},
		"all in one read":         {[]int64{31, 31, 31}, []int64{10, 20, 30}, nil},
		"last read has two, late": {[]int64{11, 33, 33}, []int64{10, 20, 30}, []float64{1, 1}},
	} {
		if got := tokenErrors(tc.at, tc.wrote); fmt.Sprint([]float64(got)) != fmt.Sprint(tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// A certificate says what is wrong with it: errors beyond the bound, replies that did not come.
func TestCompareWithTheMock(t *testing.T) {
	const ms = int64(1e6)
	seen := map[string]sighting{}
	var records []mock.Record
	for i := range int64(10) {
		id, sent := fmt.Sprint(i), i*100*ms
		r := &run.Request{ID: id, State: run.StateSuccess, SentNS: &sent}
		// Arrival 1 ms after the send, tokens after 50 and 60 ms, seen 2 and 3 ms after they were written.
		rec := mock.Record{ID: id, ArrivedNS: sent + ms, DueNS: sent + 51*ms, WriteNS: []int64{sent + 51*ms, sent + 61*ms}}
		for j, w := range rec.WriteNS {
			r.Events = append(r.Events, run.ReplyEvent{MonoNS: w + (2+int64(j))*ms, Kind: "content"})
		}
		seen[id], records = sightingOf(r), append(records, rec)
	}
	truth := mock.Config{TTFT: 50 * time.Millisecond, ITL: 10 * time.Millisecond, Tokens: 2}
	c := compare(seen, records, truth)
	for name, tc := range map[string]struct {
		got  Moments
		want float64
	}{
		"stamp of the first token": {c.TTFTError, 2}, "TTFT from send": {c.TTFTFromSend, 3},
		"time by token": {c.ITLError, 1}, "gap between events": {c.EventGapError, 1}, "lateness": {c.MockLateness, 0},
	} {
		if tc.got.Mean == nil || math.Abs(*tc.got.Mean-tc.want) > 1e-9 || *tc.got.Sigma > 1e-6 {
			t.Errorf("%s: %+v, want a mean of %v", name, tc.got, tc.want)
		}
	}
	if len(c.Because) != 0 || c.Requests != 10 || c.Events != 20 {
		t.Errorf("%+v", c)
	}
	for bound, want := range map[float64]int{5: 0, 2: 1, 0.5: 2} {
		c.Bound = &bound
		if why := c.wrong(); len(why) != want || want > 0 && !strings.Contains(why[0], "TTFT from send") {
			t.Errorf("bound %v ms: %q", bound, why)
		}
	}
	if c := compare(seen, records[1:], truth); len(c.Because) != 1 || !strings.Contains(c.Because[0], "1 of 10 replies") {
		t.Errorf("a reply is missing: %q", c.Because)
	}
}
