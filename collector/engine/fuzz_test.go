package engine

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// What a process says of itself gives a stage with a name of printable ASCII, a rule and a known engine;
// the same every time.
func FuzzStage(f *testing.F) {
	f.Add("python3", "/usr/bin/python3", "python3\x00-m\x00vllm.entrypoints.openai.api_server\x00--port\x008000", "tcp:0.0.0.0:8000")
	f.Add("VLLM::EngineCor", "/usr/bin/python3", "VLLM::EngineCore_DP0", "unix:/tmp/abc")
	f.Add("ollama", "/usr/bin/ollama", "/usr/bin/ollama\x00runner\x00--model\x00/x/y\x00--port\x0040001", "tcp:127.0.0.1:40001")
	f.Add("sgl\x1b[2J", "", "sglang::scheduler\x00--stage\x00../../etc\x00--name=\xff\x00", "unix:/run/x/thinker.sock\x00unix:@a")
	f.Add("", "", "", "")
	f.Fuzz(func(t *testing.T, comm, exe, cmdline, bound string) {
		p := ProcView{TGID: 7, PPID: 1, Comm: comm, Exe: exe, Cmdline: strings.Split(cmdline, "\x00"), Bound: strings.Split(bound, "\x00")}
		name, rule, engine := StageOf(p)
		if again, _, _ := StageOf(p); again != name || name == "" || rule == "" || engine == "" {
			t.Errorf("stage %q, then %q; rule %q, engine %q", name, again, rule, engine)
		}
		if i := strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == utf8.RuneError || r == 0x7f }); i >= 0 {
			t.Errorf("stage %q", name)
		}
	})
}

// The head of a chunk gives no body that is not in it.
func FuzzRingMessage(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 0, 2, 'a', 'b'})
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0x80, 5, '.'})
	f.Add([]byte{1, 0, 0})
	f.Fuzz(func(t *testing.T, head []byte) {
		m := RingLayout{ChunkBytes: 1 << 20, Chunks: 10, Readers: 1}.Message(head)
		if len(m.Body) > len(head) || m.Bytes < -1 || m.Bytes > 1<<20 || m.Elsewhere && m.Body != nil || m.Whole && m.Bytes >= 0 && int64(len(m.Body)) > m.Bytes {
			t.Errorf("%+v of a head of %d bytes", m, len(head))
		}
	})
}
