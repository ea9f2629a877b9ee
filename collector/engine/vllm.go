package engine

import (
	"strings"

	"github.com/stageline/stageline/collector/wire"
)

// vllmRules: a message is [1-byte type][msgpack][buffers]. Requests and outputs are structs encoded
// as lists: EngineCoreRequest and EngineCoreOutput begin with the request id; EngineCoreOutputs is
// [engine_index, [output…], scheduler_stats, timestamp, utility_output, finished_requests, …].
var vllmRules = wire.Rules{
	IDFields:       []string{"request_id", "request_ids", "external_req_id", "req_ids"},
	TypeFields:     []string{"type"},
	ArrayIDIndex:   []int{0},
	ArrayIDPaths:   [][]int{{1, -1, 0}, {5, -1}},
	ByteTypes:      []string{"add", "abort", "start_dp_wave", "utility"},
	HTTPIDHeaders:  []string{"x-request-id"},
	HTTPBodyFields: []string{"id", "request_id"},
}

var vllm = &Profile{
	Name:    "vllm",
	Checked: "0.26 (0934b267, read)",
	Matches: func(p *ProcView) bool {
		return strings.HasPrefix(first(p.Cmdline), "VLLM::") || hasWord(p.Cmdline, "vllm", "serve") ||
			strings.Contains(strings.Join(p.Cmdline, " "), "vllm.entrypoints") || childOf(p, "VLLM::")
	},
	Stage:    vllmStage,
	Rules:    vllmRules,
	IDHeader: "X-Request-Id",
	IDs:      IDShape{Prefixes: []string{"chatcmpl-", "cmpl-"}, HexSuffix: 8},
}

// vllmStage reads the process title: VLLM::EngineCore_DP0 is enginecore_dp0.
func vllmStage(p *ProcView) (string, string) {
	if t, ok := strings.CutPrefix(first(p.Cmdline), "VLLM::"); ok {
		return titleStage(p, t), RuleTitle
	}
	if hasWord(p.Cmdline, "vllm", "serve") || strings.Contains(strings.Join(p.Cmdline, " "), "vllm.entrypoints") {
		return "api", RuleCmdline
	}
	return "", ""
}

// titleStage turns what stands behind VLLM:: or vLLM-Omni:: into a stage name. A worker of a stage
// process is named after its parent, because its own title does not say which stage it serves.
func titleStage(p *ProcView, title string) string {
	title, _, _ = strings.Cut(strings.TrimSpace(title), " ")
	if i := strings.Index(title, "stage"); i >= 0 && strings.HasPrefix(title, "StageEngineCoreProc_") {
		s, _, _ := strings.Cut(title[i:], "_DP")
		return s
	}
	name := strings.ToLower(title)
	if strings.HasPrefix(name, "apiserver") {
		return "api"
	}
	if strings.HasPrefix(title, "Worker") && p.Parent != nil {
		if t, ok := strings.CutPrefix(first(p.Parent.Cmdline), "VLLM::StageEngineCoreProc_"); ok {
			s, _, _ := strings.Cut(t, "_DP")
			return s + "_" + name
		}
	}
	return name
}

// vllmOmni: vLLM's processes with a stage in their titles; stage payloads in /dev/shm named
// {request_id}_{from}_{chunk}; orchestrator ↔ diffusion stages by msgpack maps. The orchestrator is
// a thread of the API process.
var vllmOmni = &Profile{
	Name:    "vllm-omni",
	Checked: "0.26.0 (a4ea67a2, read)",
	Matches: func(p *ProcView) bool {
		t := first(p.Cmdline)
		return strings.HasPrefix(t, "vLLM-Omni::") || strings.HasPrefix(t, "VLLM::StageEngineCoreProc") ||
			hasWord(p.Cmdline, "vllm", "serve") && hasArg(p.Cmdline, "--omni") ||
			strings.Contains(strings.Join(p.Cmdline, " "), "vllm_omni") || childOf(p, "VLLM::StageEngineCoreProc")
	},
	Stage: func(p *ProcView) (string, string) {
		if t, ok := strings.CutPrefix(first(p.Cmdline), "vLLM-Omni::"); ok {
			return titleStage(p, t), RuleTitle
		}
		return vllmStage(p)
	},
	Rules: wire.Rules{
		IDFields:       []string{"request_id", "request_ids", "parent_request_id"},
		TypeFields:     []string{"type"},
		FromFields:     []string{"from_stage"},
		ToFields:       []string{"to_stage"},
		ChunkFields:    []string{"chunk_id", "chunk_index"},
		ArrayIDIndex:   vllmRules.ArrayIDIndex,
		ArrayIDPaths:   vllmRules.ArrayIDPaths,
		ByteTypes:      vllmRules.ByteTypes,
		HTTPIDHeaders:  []string{"x-request-id"},
		HTTPBodyFields: []string{"id", "request_id"},
	},
	IDHeader: "X-Request-Id",
	IDs: IDShape{
		Prefixes:   []string{"chatcmpl-", "speech-", "img_gen-", "img_edit-", "audiogen-", "video_sync-", "rt-", "xfer-"},
		HexSuffix:  8,
		Companions: []string{"__cfg_text", "__cfg_img", "__cfg_uncond"},
	},
}

// childOf reports whether the parent's title begins with prefix.
func childOf(p *ProcView, prefix string) bool {
	return p.Parent != nil && strings.HasPrefix(first(p.Parent.Cmdline), prefix)
}
