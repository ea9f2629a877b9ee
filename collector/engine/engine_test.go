package engine

import (
	"slices"
	"testing"
)

func TestStageOf(t *testing.T) {
	spawn := []string{"/venv/bin/python", "-B", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=7, pipe_handle=9)", "--multiprocessing-fork"}
	core := &ProcView{TGID: 50, Comm: "VLLM::StageEngi", Cmdline: []string{"VLLM::StageEngineCoreProc_stage1_replica0_DP0"}}
	for _, c := range []struct {
		what               string
		p                  ProcView
		name, rule, engine string
	}{
		{"SGLang-Omni stage", ProcView{TGID: 11, PPID: 10, Comm: "python", Cmdline: spawn,
			Bound: []string{"/tmp/sglang_omni/p-ab12cd34/comm_thinker_rank0.sock", "/tmp/sglang_omni/p-ab12cd34/stage_thinker.sock"}},
			"thinker", RuleBoundPath, "sglang-omni"},
		{"SGLang-Omni replica under another base", ProcView{TGID: 11, Comm: "python", Cmdline: spawn,
			Bound: []string{"/run/x/pipe-ab12cd34/stage_code2wav@r1.sock"}}, "code2wav@r1", RuleBoundPath, "sglang-omni"},
		{"SGLang-Omni API", ProcView{TGID: 10, Comm: "python", Cmdline: []string{"/venv/bin/python", "/srv/launch.py"},
			Bound: []string{"tcp:0.0.0.0:8000", "/tmp/sglang_omni/p-ab12cd34/completion.sock", "/tmp/sglang_omni/p-ab12cd34/abort.sock"}},
			"api", RuleBoundPath, "sglang-omni"},
		{"vLLM API", ProcView{TGID: 20, Comm: "vllm", Cmdline: []string{"/venv/bin/python", "/venv/bin/vllm", "serve", "m"}}, "api", RuleCmdline, "vllm"},
		{"vLLM API by title", ProcView{TGID: 20, Comm: "VLLM::APIServer", Cmdline: []string{"VLLM::APIServer_0"}}, "api", RuleTitle, "vllm"},
		{"vLLM core", ProcView{TGID: 21, Comm: "VLLM::EngineCor", Cmdline: []string{"VLLM::EngineCore_DP1"}}, "enginecore_dp1", RuleTitle, "vllm"},
		{"vLLM worker", ProcView{TGID: 22, Comm: "VLLM::Worker_TP", Cmdline: []string{"VLLM::Worker_TP1"}}, "worker_tp1", RuleTitle, "vllm"},
		{"vLLM-Omni API", ProcView{TGID: 30, Comm: "vllm", Cmdline: []string{"python", "vllm", "serve", "m", "--omni"}}, "api", RuleCmdline, "vllm-omni"},
		{"vLLM-Omni stage", *core, "stage1_replica0", RuleTitle, "vllm-omni"},
		{"vLLM-Omni worker of a stage", ProcView{TGID: 51, PPID: 50, Comm: "VLLM::Worker", Cmdline: []string{"VLLM::Worker"}, Parent: core},
			"stage1_replica0_worker", RuleTitle, "vllm-omni"},
		{"vLLM-Omni diffusion worker", ProcView{TGID: 52, Cmdline: []string{"vLLM-Omni::DiffusionWorker-0"}}, "diffusionworker-0", RuleTitle, "vllm-omni"},
		{"Ollama", ProcView{TGID: 60, Comm: "ollama", Exe: "/usr/bin/ollama", Cmdline: []string{"/usr/bin/ollama", "serve"}}, "api", RuleCmdline, "ollama"},
		{"Ollama runner", ProcView{TGID: 61, Comm: "ollama", Exe: "/usr/bin/ollama", Cmdline: []string{"/usr/bin/ollama", "runner", "--model", "x"}}, "runner", RuleCmdline, "ollama"},
		{"unknown, bound stage socket", ProcView{TGID: 70, Comm: "w", Cmdline: []string{"w"}, Bound: []string{"/run/p/zz.sock", "/run/p/stage_talker.sock"}},
			"talker", RuleBoundPath, "generic"},
		{"unknown, bound socket with a name", ProcView{TGID: 70, Comm: "w", Cmdline: []string{"w"}, Bound: []string{"/run/p/vocoder.sock"}}, "vocoder", RuleBoundPath, "generic"},
		{"unknown, random socket, option", ProcView{TGID: 71, Comm: "w", Exe: "/opt/w", Cmdline: []string{"w", "--port", "1", "--role=prefill"},
			Bound: []string{"/tmp/0b0e7a54-9c1d-4a53-8d2f-5e0c0a1b2c3d", "/tmp/3f9a2b1c4d5e.sock"}}, "prefill", RuleArgument, "generic"},
		{"unknown, option apart", ProcView{TGID: 71, Comm: "w", Exe: "/opt/w", Cmdline: []string{"w", "--stage", "decode"}}, "decode", RuleArgument, "generic"},
		{"unknown, title", ProcView{TGID: 72, Comm: "acme", Exe: "/usr/bin/python3.12", Cmdline: []string{"acme::Encoder rank 0"}}, "encoder", RuleTitle, "generic"},
		{"nothing to go by", ProcView{TGID: 73, Comm: "my app", Exe: "/opt/w", Cmdline: []string{"/opt/w"}}, "my_app-73", RuleProcess, "generic"},
		{"nothing at all", ProcView{TGID: 74}, "process-74", RuleProcess, "generic"},
	} {
		name, rule, eng := StageOf(c.p)
		if name != c.name || rule != c.rule || eng != c.engine {
			t.Errorf("%s: %s by %s (%s), want %s by %s (%s)", c.what, name, rule, eng, c.name, c.rule, c.engine)
		}
	}
}

func TestStageWith(t *testing.T) {
	p := ProcView{TGID: 73, Comm: "python", Exe: "/usr/bin/python3", Cmdline: []string{"python", "serve.py", "--gpu", "1"}, Bound: []string{"/run/x/stage_a.sock"}}
	for pattern, want := range map[string]string{"73": "mine", "7": "a", "serve.py": "mine", "*--gpu 1*": "mine", "stage_?.sock": "mine", "python*": "mine", "talker": "a", "": "a"} {
		if name, _, _ := StageWith(p, []Override{{"mine", pattern}}); name != want {
			t.Errorf("--stage mine=%s gives %s, want %s", pattern, name, want)
		}
	}
}

func TestGenericRulesHoldAll(t *testing.T) {
	r := GenericRules()
	for _, p := range Profiles() {
		for _, f := range slices.Concat(p.Rules.IDFields, p.Rules.TypeFields, p.Rules.ShmNameFields, p.Rules.HTTPBodyFields, p.Rules.HTTPIDHeaders, p.Rules.LastFields) {
			all := slices.Concat(r.IDFields, r.TypeFields, r.ShmNameFields, r.HTTPBodyFields, r.HTTPIDHeaders, r.LastFields)
			if !slices.Contains(all, f) {
				t.Errorf("%s: field %s is not in the generic rules", p.Name, f)
			}
		}
	}
	if len(r.ByteTypes) == 0 || len(r.ArrayIDIndex) == 0 {
		t.Error("generic rules lack the type bytes or the place of ids in lists")
	}
	if n := len(r.IDFields); n != len(slices.Compact(slices.Sorted(slices.Values(r.IDFields)))) {
		t.Errorf("id fields repeat: %v", r.IDFields)
	}
}

func TestDerived(t *testing.T) {
	for _, c := range []struct {
		engine, base, id, reason string
		ok                       bool
	}{
		{"vllm", "r1", "chatcmpl-r1", "contains", true},
		{"vllm", "r1", "chatcmpl-r1-0a1b2c3d", "contains", true},
		{"vllm", "r1", "chatcmpl-r12", "contains", false},
		{"vllm", "r1", "r1-0a1b2c3", "contains", false},
		{"vllm-omni", "r1", "chatcmpl-r1-0a1b2c3d__cfg_text", "companion", true},
		{"sglang-omni", "r1", "audio-r1", "contains", true},
		{"vllm", "", "x", "", false},
	} {
		reason, ok := ByName(c.engine).Derived(c.base, c.id)
		if ok != c.ok || ok && reason != c.reason {
			t.Errorf("%s: %s from %s: %q %v, want %q %v", c.engine, c.id, c.base, reason, ok, c.reason, c.ok)
		}
	}
}

func TestLoadHints(t *testing.T) {
	for name, want := range map[string][2]string{"sglang-omni": {"", "request_id"}, "vllm": {"X-Request-Id", ""}, "nobody's": {"X-Request-Id", "request_id"}} {
		if h, f := LoadHints(name); h != want[0] || f != want[1] {
			t.Errorf("%s: header %q field %q, want %q", name, h, f, want)
		}
	}
}
