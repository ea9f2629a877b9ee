package loadgen

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

func traceFile(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func replay(path string, change func(*Config)) Config {
	c := Config{URL: "http://127.0.0.1:1", Stream: true, Schedule: Schedule{Replay: path}}
	if change != nil {
		change(&c)
	}
	return c
}

const mooncake = `{"timestamp": 27482, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 30535, "input_length": 700, "output_length": 26, "hash_ids": [46, 57]}

{"timestamp": 30535.5, "input_length": 10, "output_length": 0, "hash_ids": []}
`

func TestMooncake(t *testing.T) {
	p := mustPlan(t, replay(traceFile(t, mooncake), func(c *Config) { c.ReplaySpeed = 2 }))
	got := planned(t, p)
	if len(got) != 3 || p.Planned() != 3 || !p.Open() {
		t.Fatalf("%d requests", len(got))
	}
	for i, want := range []Item{
		{OffsetNS: 0, PromptChars: 4200, MaxTokens: 52},
		{OffsetNS: 1_526_500_000, PromptChars: 4900, MaxTokens: 26},
		{OffsetNS: 1_526_750_000, PromptChars: 70, MaxTokens: 1},
	} {
		if g := got[i]; g.OffsetNS != want.OffsetNS || g.PromptChars != want.PromptChars || g.MaxTokens != want.MaxTokens {
			t.Errorf("request %d: %+v, want %+v", i+1, g, want)
		}
	}
	// Equal block identities are equal text, and no more than those.
	a, b := string(p.body.appendPrompt(nil, &got[0])), string(p.body.appendPrompt(nil, &got[1]))
	if len(a) != 4200 || a[:BlockChars] != b[:BlockChars] || a[:BlockChars+8] == b[:BlockChars+8] {
		t.Errorf("prompts of one shared block of %d differ elsewhere", BlockChars)
	}
	if _, body := rendered(t, replay(traceFile(t, mooncake), nil), 2); !strings.Contains(body, `"max_tokens":26`) {
		t.Errorf("body %.80s", body)
	}
}

func TestBurstGPT(t *testing.T) {
	const table = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n" +
		"5,ChatGPT,472,18,490,Conversation log\r\n45.5,GPT-4,10,0,10,\"API log\"\r\n"
	got := planned(t, mustPlan(t, replay(traceFile(t, table), func(c *Config) { c.N = 2 })))
	if len(got) != 2 || got[0].OffsetNS != 0 || got[0].PromptChars != 472*charsPerToken || got[0].MaxTokens != 18 ||
		got[1].OffsetNS != 40_500_000_000 || got[1].MaxTokens != 1 {
		t.Errorf("requests %+v", got)
	}
}

// A malformed trace is refused in one sentence that names the file and the line, before anything is
// sent.
func TestTraceRefused(t *testing.T) {
	const head = "Timestamp,Model,Request tokens,Response tokens\n"
	for want, text := range map[string]string{
		"line 1: the file is empty":                     "",
		"line 1: neither a frozen plan":                 "a,b\n1,2\n",
		"line 2: timestamp, input_length or":            mooncake[:strings.Index(mooncake, "\n")+1] + `{"timestamp": 1}`,
		"line 2: no JSON object":                        `{"timestamp":1,"input_length":1,"output_length":1}` + "\nnonsense\n",
		"line 2: the time is before":                    `{"timestamp":2,"input_length":1,"output_length":1}` + "\n" + `{"timestamp":1,"input_length":1,"output_length":1}`,
		"line 1: time or token count is out":            `{"timestamp":-1,"input_length":1,"output_length":1}`,
		"line 2: 3 columns, the head has 4":             head + "1,x,3\n",
		"line 2: timestamp or token count is no number": head + "1,x,3,y\n",
		"line 2: no line of a comma":                    head + "1,\"x,3,y\n",
		"line 2: time or token count is out of":         head + "1,x,3,99999999999\n",
		"holds no request":                              head,
	} {
		_, err := NewPlan(replay(traceFile(t, text), nil))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if _, err := NewPlan(replay("/nonexistent", nil)); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("error %v", err)
	}
}

// A frozen plan gives other systems the same list at the same times, open loop or closed.
func TestFrozenPlan(t *testing.T) {
	for name, rate := range map[string]float64{"open": 50, "closed": 0} {
		t.Run(name, func(t *testing.T) {
			first := mustPlan(t, open(rate, 300, mixed))
			var file bytes.Buffer
			if err := first.WriteManifest(&file); err != nil {
				t.Fatal(err)
			}
			path := traceFile(t, file.String())
			second := mustPlan(t, replay(path, func(c *Config) { c.Concurrency, c.URL, c.Seed = 3, "http://127.0.0.2:2", 99 }))
			if second.ScheduleHash() != first.ScheduleHash() || second.Open() != first.Open() || second.Planned() != 304 {
				t.Errorf("%d requests of hash %s, frozen %s", second.Planned(), second.ScheduleHash(), first.ScheduleHash())
			}
			a, b := planned(t, first)[41], planned(t, second)[41]
			if x, y := first.body.appendPrompt(nil, &a), second.body.appendPrompt(nil, &b); !bytes.Equal(x, y) {
				t.Errorf("prompt %.60q, frozen %.60q", y, x)
			}
			lines := strings.SplitAfter(file.String(), "\n")
			for want, text := range map[string]string{
				"was changed after it was frozen": strings.Replace(file.String(), `"prompt_chars":40`, `"prompt_chars":41`, 1),
				"must not be moved or left out":   strings.Join(append(lines[:3:3], lines[4:]...), ""),
			} {
				if _, err := NewPlan(replay(traceFile(t, text), nil)); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
			}
			_, err := NewPlan(replay(path, func(c *Config) { c.Prompts = []string{"x"} }))
			if err == nil || !strings.Contains(err.Error(), "leave out the prompts") {
				t.Errorf("other prompts: %v", err)
			}
			_, err = NewPlan(replay(path, func(c *Config) { c.N = 3 }))
			if err == nil || !strings.Contains(err.Error(), "sent whole") {
				t.Errorf("a part of it: %v", err)
			}
		})
	}
}

// A file that changes while it is sent is noticed.
func TestReplayedFileChanges(t *testing.T) {
	s := newServer(t, okHandler)
	const line = `{"timestamp":1,"input_length":600,"output_length":1}` + "\n"
	path := traceFile(t, line)
	p := mustPlan(t, replay(path, func(c *Config) { c.URL = s.url }))
	if err := os.WriteFile(path, []byte(line+line), 0o600); err != nil {
		t.Fatal(err)
	}
	rs := 0
	_, err := Run(t.Context(), p, func(*run.Request) { rs++ })
	if err == nil || !strings.Contains(err.Error(), "changed while it was sent") || rs == 0 {
		t.Errorf("%d requests, error %v", rs, err)
	}
}
