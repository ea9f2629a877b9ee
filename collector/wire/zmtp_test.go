package wire

import (
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

const testID = "req-0123456789abcdef"

// zmtpScript is one PUSH side: bytes beside the message they make.
func zmtpScript() script {
	id := testID
	dataReady := mp(kv{"type", "data_ready", "request_id", id, "from_stage", "encoder", "to_stage", "thinker", "chunk_id", 3,
		"object_id", id + ":stream:encoder:thinker:3",
		"data_ref", kv{"buffer", kv{"info", kv{"transfer_info", kv{"shm_name", "/psm_12ab34cd", "size", 70000, "req_id", id}}}}})
	add := mp([]any{id, "m", 1, nil, []any{1, 2, 3}})
	outputs := mp([]any{0, []any{[]any{"chatcmpl-a1b2c3", 5}, []any{"chatcmpl-d4e5f6", 6}}, nil})
	return script{
		{greeting(), "zmtp GREETING"},
		{ready(), "zmtp READY"},
		{zframe(0, submit(id)), "zmtp submit request_id=" + id},
		{zframe(0, dataReady), "zmtp data_ready encoder>thinker #3 request_id=" + id + " object_id=" + id +
			":stream:encoder:thinker:3 shm:psm_12ab34cd/70000"},
		{zframe(1, "\x00") + zframe(1, add) + zframe(0, strings.Repeat("\x07", 300)), "zmtp add [0]=" + id},
		{zframe(0, outputs), "zmtp  [1][0][0]=chatcmpl-a1b2c3 [1][1][0]=chatcmpl-d4e5f6 +several"},
		{"\x04\x07\x04PING\x00\x00", "zmtp PING"},
		{"\x04\x0d\x09SUBSCRIBEabc", "zmtp SUBSCRIBE"},
		{zframe(1, "\x01") + "\x04\x07\x04PONG\x00\x00" + zframe(0, mp([]any{id, "x"})), "zmtp abort [0]=" + id},
		{zframe(1, "\x00\x01\x02\x03\x04") + zframe(1, "") + zframe(0, submit(id)), "zmtp submit request_id=" + id},
		{zframe(0, mp(kv{"type", "abort", "request_ids", []any{"aa-1", "bb-2"}})), "zmtp abort request_ids=aa-1 request_ids=bb-2 +several"},
		{zframe(0, "no structure at all, only words"), "zmtp "},
		{zframe(0, mp(kv{"type", "unknown", "note", "wrap-" + id + "-0a1b2c3d"})), "zmtp unknown value=wrap-" + id + "-0a1b2c3d"},
	}
}

func TestZMTP(t *testing.T) { zmtpScript().test(t, run.Send) }

func TestZMTPShares(t *testing.T) {
	f := newFeeder(t, nil)
	a, b := zframe(0, submit("a-1")), zframe(0, submit("b-2"))
	f.call(run.Send, greeting()+ready(), all)
	f.call(run.Send, a+b+a[:5], all)
	f.call(run.Send, a[5:], all)
	got := f.rows()
	for i, want := range []bool{true, false, true, true, false} {
		if c := strings.Contains(got[i], "+coalesced"); c != want {
			t.Errorf("message %d: %s: coalesced %v, want %v", i, got[i], c, want)
		}
	}
	m := f.out.msgs[4]
	if m.FirstEnterNS != 1e9+2000 || m.LastEnterNS != 1e9+3000 || m.LastExitNS != 1e9+3500 {
		t.Errorf("times of a message over two calls: %d %d %d", m.FirstEnterNS, m.LastEnterNS, m.LastExitNS)
	}
}
