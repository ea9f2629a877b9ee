package wire

import (
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// Long messages are written in two calls and read in pieces of 8 KiB that end where none of them
// ends: the reader's bytes alone prove nothing, and what the sender speaks tells what they are.
func TestReaderFollowsSender(t *testing.T) {
	msg := func(id string) string {
		return zframe(1, mp([]any{id, "m"})) + zframe(0, strings.Repeat("\x07", 48_000))
	}
	early, late := msg("req-aaaaaaaa-1")+msg("req-aaaaaaaa-2"), msg("req-aaaaaaaa-3")
	read := func(f *feeder, text string) {
		for len(text) > 0 {
			n := min(8192, len(text))
			f.call(run.Recv, text[:n], all)
			text = text[n:]
		}
	}
	for _, follow := range []bool{false, true} {
		s, r := newFeeder(t, nil), newFeeder(t, nil)
		for _, id := range []string{"req-aaaaaaaa-1", "req-aaaaaaaa-2"} {
			s.call(run.Send, msg(id)[:8192], all)
			s.call(run.Send, msg(id)[8192:], all)
		}
		read(r, early)
		if follow && !r.c.Follow(s.c) {
			t.Fatal("the sender's protocol is not known")
		}
		read(r, late)
		r.c.Close(r.now)
		got := strings.Join(r.rows(), "\n")
		if has := strings.Contains(got, "[0]=req-aaaaaaaa-3"); has != follow {
			t.Errorf("follow %v: third message found %v:\n%s", follow, has, got)
		}
	}
	if f := newFeeder(t, nil); f.c.Follow(newFeeder(t, nil).c) {
		t.Error("a sender that said nothing was followed")
	}
}
