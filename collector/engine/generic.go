package engine

import "github.com/stageline/stageline/collector/wire"

// generic is the profile of every process that no other one knows. Its rules hold the field names
// that messages between processes usually have.
var generic = &Profile{
	Name:    "generic",
	Checked: "any",
	Matches: func(*ProcView) bool { return true },
	Stage:   func(*ProcView) (string, string) { return "", "" },
	Rules: wire.Rules{
		IDFields: []string{"request_id", "requestId", "req_id", "rid", "rids", "request_ids", "req_ids",
			"trace_id", "correlation_id", "object_id", "external_req_id", "parent_request_id"},
		TypeFields:     []string{"type", "msg_type", "message_type"},
		FromFields:     []string{"from_stage", "source_stage", "src_stage", "from_stage_id", "from_role"},
		ToFields:       []string{"to_stage", "target_stage", "dst_stage", "to_stage_id", "to_role"},
		ChunkFields:    []string{"chunk_id", "chunk_idx", "chunk_index", "chunk_no"},
		LastFields:     []string{"is_done", "is_last", "is_final"},
		ShmNameFields:  []string{"shm_name", "shm_key", "shm_path", "segment_name"},
		ShmSizeFields:  []string{"size", "shm_size", "nbytes"},
		HTTPIDHeaders:  []string{"x-request-id", "x-correlation-id", "request-id", "x-trace-id"},
		HTTPBodyFields: []string{"id", "request_id", "requestId", "rid", "response_id"},
	},
	IDHeader: "X-Request-Id",
	IDField:  "request_id",
	IDs:      IDShape{Prefixes: []string{"chatcmpl-", "cmpl-"}, HexSuffix: 8},
}
