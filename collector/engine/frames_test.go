package engine

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/collector/wire"
)

type got struct{ msgs []run.Message }

func (g *got) Message(m *run.Message) { g.msgs = append(g.msgs, *m) }
func (g *got) Gap(*run.Gap)           {}

type kv []any

// pack encodes strings, small ints, booleans and maps as msgpack.
func pack(v any) string {
	switch v := v.(type) {
	case string:
		return "\xd9" + string([]byte{byte(len(v))}) + v
	case int:
		return "\xcd" + string([]byte{byte(v >> 8), byte(v)})
	case bool:
		return map[bool]string{true: "\xc3", false: "\xc2"}[v]
	case []any:
		b := string([]byte{0x90 | byte(len(v))})
		for _, e := range v {
			b += pack(e)
		}
		return b
	case kv:
		b := string([]byte{0x80 | byte(len(v)/2)})
		for _, e := range v {
			b += pack(e)
		}
		return b
	}
	return "\xc0"
}

func frame(flags byte, b string) string {
	var l [8]byte
	binary.BigEndian.PutUint64(l[:], uint64(len(b)))
	if len(b) < 256 {
		return string([]byte{flags, l[7]}) + b
	}
	return string([]byte{flags | 2}) + string(l[:]) + b
}

// decode runs frames through a connection with the generic rules.
func decode(frames ...string) []run.Message {
	var g got
	c := wire.NewConn(&run.Endpoint{ID: 1, Transport: run.TransportUnix}, GenericRules(), wire.NewIDSet(), &g)
	text := "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL" + strings.Repeat("\x00", 48) + strings.Join(frames, "")
	c.Feed(run.Send, &wire.Chunk{Len: uint64(len(text)), Data: []byte(text), EnterNS: 1, ExitNS: 2})
	c.Close(3)
	return g.msgs[1:]
}

func TestSGLangOmniFrames(t *testing.T) {
	id := "req-0002-0123456789abcdef"
	ref := kv{"_type", "DataRef", "version", 1, "kind", "stage_payload", "object_id", id + ":payload:encoder:thinker", "transport", "shm",
		"buffer", kv{"transport", "shm", "info", kv{"engine_id", "e", "transfer_info", kv{"shm_name", "psm_0a1b2c3d", "size", 12000, "req_id", id}}, "length", 12000}}
	m := decode(
		frame(0, pack(kv{"type", "submit", "request_id", id, "data", kv{"_type", "StagePayload", "request_id", id, "inputs", kv{"type", "text", "text", "words here"}}})),
		frame(0, pack(kv{"type", "data_ready", "request_id", id, "from_stage", "encoder", "to_stage", "thinker", "data_ref", ref})),
		frame(0, pack(kv{"type", "data_ready", "request_id", id, "from_stage", "thinker", "to_stage", "decode", "data_ref", kv{"_type", "InlineStreamChunk"}, "chunk_id", 2})),
		frame(0, pack(kv{"type", "data_ready", "request_id", id, "from_stage", "thinker", "to_stage", "decode", "is_done", true})),
		frame(0, pack(kv{"type", "data_ack", "request_id", id, "from_stage", "thinker", "to_stage", "encoder", "object_id", id + ":payload:encoder:thinker", "success", true})),
		frame(0, pack(kv{"type", "complete", "request_id", id, "from_stage", "decode", "success", true})),
	)
	want := []struct {
		typ, from, to string
		chunk         int64
		shm           string
		last          bool
	}{
		{"submit", "", "", -1, "", false}, {"data_ready", "encoder", "thinker", -1, "psm_0a1b2c3d", false},
		{"data_ready", "thinker", "decode", 2, "", false}, {"data_ready", "thinker", "decode", -1, "", true},
		{"data_ack", "thinker", "encoder", -1, "", false}, {"complete", "decode", "", -1, "", false},
	}
	if len(m) != len(want) {
		t.Fatalf("%d messages, want %d", len(m), len(want))
	}
	for i, w := range want {
		shm := ""
		if len(m[i].Shm) == 1 && m[i].Shm[0].Size == 12000 {
			shm = m[i].Shm[0].Name
		}
		if m[i].Type != w.typ || m[i].From != w.from || m[i].To != w.to || m[i].Chunk != w.chunk || shm != w.shm || (m[i].Flags&run.MsgLast != 0) != w.last {
			t.Errorf("message %d: %+v, want %+v", i, m[i], w)
		}
		if len(m[i].IDs) == 0 || m[i].IDs[0].Value != id || m[i].Flags&run.MsgDuplicateID != 0 {
			t.Errorf("message %d: ids %v", i, m[i].IDs)
		}
	}
}

func TestVLLMFrames(t *testing.T) {
	add := pack([]any{"chatcmpl-a1b2c3d4-00112233", []any{1, 2}, nil, "lora"})
	out := pack([]any{0, []any{[]any{"chatcmpl-a1b2c3d4-00112233", []any{5}}, []any{"cmpl-99887766", []any{6}}}, nil, 1, nil, []any{"cmpl-55443322"}})
	m := decode(frame(1, "\x00")+frame(0, add), frame(1, "\x01")+frame(0, pack([]any{"chatcmpl-a1b2c3d4-00112233"})), frame(0, out))
	for i, w := range []struct {
		typ string
		ids []string
	}{
		{"add", []string{"chatcmpl-a1b2c3d4-00112233"}}, {"abort", []string{"chatcmpl-a1b2c3d4-00112233"}},
		{"", []string{"chatcmpl-a1b2c3d4-00112233", "cmpl-99887766", "cmpl-55443322"}},
	} {
		var ids []string
		for _, r := range m[i].IDs {
			ids = append(ids, r.Value)
		}
		if m[i].Type != w.typ || !slices.Equal(ids, w.ids) {
			t.Errorf("message %d: %q %v, want %q %v", i, m[i].Type, ids, w.typ, w.ids)
		}
	}
}
