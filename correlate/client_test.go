package correlate

import (
	"testing"

	"github.com/stageline/stageline/collector/run"
)

func TestFromEntry(t *testing.T) {
	at := func(ns int64) *int64 { return &ns }
	entry := seen(2_000_000, "read returned")
	f := NewFromEntry(&run.Request{SentNS: at(1_500_000), FirstNS: at(5_000_000), Audio: &run.Audio{FirstPlayableNS: at(6_000_000)}}, entry)
	if f == nil || *f.SentBeforeUS != 500 || *f.FirstContentUS != 3000 || *f.PlayableUS != 4000 || f.EndUS != nil {
		t.Errorf("figures %+v", f)
	}
	if NewFromEntry(nil, entry) != nil || NewFromEntry(&run.Request{}, unknown("not seen")) != nil {
		t.Error("figures without a client or without the engine's read")
	}
}
