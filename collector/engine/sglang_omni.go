package engine

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/stageline/stageline/collector/wire"
)

// sglangOmni: the API process (launcher, HTTP, coordinator) binds completion.sock and abort.sock in
// a directory of its own, its spawned children bind stage_<stage>.sock and comm_<stage>_rankN.sock
// beside them. Titles and thread names say nothing. One msgpack map a ZMTP message.
var sglangOmni = &Profile{
	Name:    "sglang-omni",
	Checked: "0.1.0 (read), 0.1.9 (read and observed), 7daa5be3 (read)",
	Matches: func(p *ProcView) bool {
		for _, b := range slices.Concat(p.Bound, p.PeerBound) {
			_, stage := sglangStage(filepath.Base(b))
			if strings.Contains(b, "/sglang_omni/") || (stage || sglangCoordinator(filepath.Base(b))) && sglangDir(filepath.Dir(b)) {
				return true
			}
		}
		return strings.Contains(strings.Join(p.Cmdline, " "), "sglang_omni") || strings.HasPrefix(filepath.Base(first(p.Cmdline)), "sgl-omni")
	},
	Stage: func(p *ProcView) (string, string) {
		for _, b := range p.Bound {
			if s, ok := sglangStage(filepath.Base(b)); ok {
				return s, RuleBoundPath
			}
		}
		for _, b := range p.Bound {
			if sglangCoordinator(filepath.Base(b)) {
				return "api", RuleBoundPath
			}
		}
		return "", ""
	},
	Rules: wire.Rules{
		IDFields:       []string{"request_id", "req_id", "object_id"},
		TypeFields:     []string{"type"},
		FromFields:     []string{"from_stage"},
		ToFields:       []string{"to_stage"},
		ChunkFields:    []string{"chunk_id"},
		LastFields:     []string{"is_done"},
		ShmNameFields:  []string{"shm_name"},
		ShmSizeFields:  []string{"size"},
		HTTPIDHeaders:  []string{"x-sglang-omni-request-id", "x-request-id", "x-correlation-id"},
		HTTPBodyFields: []string{"request_id", "id", "rid"},
	},
	IDField: "request_id",
	IDs:     IDShape{Prefixes: []string{"chatcmpl-", "audio-"}},
}

// sglangDir reports whether a directory is named <pipeline>-<8 random>, which is what is left of
// the usual path when the user has set another base.
func sglangDir(dir string) bool {
	i := strings.LastIndexByte(dir, '-')
	return i > 0 && len(dir)-i-1 == 8 && !strings.Contains(dir[i:], "/")
}

func sglangCoordinator(base string) bool { return base == "completion.sock" || base == "abort.sock" }

// sglangStage takes the stage name out of stage_<name>.sock, replicas as <name>@rN.
func sglangStage(base string) (string, bool) {
	s, ok := strings.CutPrefix(base, "stage_")
	if !ok {
		return "", false
	}
	s, ok = strings.CutSuffix(s, ".sock")
	return s, ok && s != ""
}
