package loadgen

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func open(rate float64, n int, change func(*Config)) Config {
	c := Config{URL: "http://127.0.0.1:1", Rate: rate, N: n, Stream: true, Seed: 7}
	if change != nil {
		change(&c)
	}
	return c
}

// planned returns the requests of the plan in order.
func planned(t testing.TB, p *Plan) []Item {
	t.Helper()
	src, done, err := p.items()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	var out []Item
	for {
		it, ok, err := src.next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return out
		}
		it.ID = p.ID(it.N)
		out = append(out, it)
	}
}

func item(t testing.TB, p *Plan, n int) Item { return planned(t, p)[n-1] }

func offsets(t testing.TB, p *Plan) []int64 {
	var out []int64
	for _, it := range planned(t, p) {
		out = append(out, it.OffsetNS)
	}
	return out
}

func TestScheduleHash(t *testing.T) {
	base := mustPlan(t, open(40, 1000, nil)).ScheduleHash()
	same := mustPlan(t, open(40, 1000, func(c *Config) { c.Concurrency, c.IDPrefix, c.Model = 9, "x", "m" })).ScheduleHash()
	if base != same || len(base) != 64 {
		t.Errorf("hash %q with another cap, prefix and prompt length, want %q", same, base)
	}
	for name, change := range map[string]func(*Config){
		"seed":    func(c *Config) { c.Seed = 8 },
		"rate":    func(c *Config) { c.Rate = 41 },
		"count":   func(c *Config) { c.N = 999 },
		"warm-up": func(c *Config) { c.N, c.Warmup = 999, 1 },
		"arrival": func(c *Config) { c.Arrival = ArrivalConstant },
	} {
		if mustPlan(t, open(40, 1000, change)).ScheduleHash() == base {
			t.Errorf("another %s leaves the hash as it is", name)
		}
	}
}

// Kolmogorov–Smirnov distance of n values from the exponential distribution of the given mean;
// 1.95/√n is exceeded with probability 0.001 when they are from it, and the seed is fixed.
func TestPoissonGapsAreExponential(t *testing.T) {
	const n = 20000
	p := mustPlan(t, open(200, n, nil))
	gap := make([]float64, n)
	last := int64(0)
	for i, at := range offsets(t, p) {
		gap[i] = float64(at-last) / 1e9
		last = at
	}
	slices.Sort(gap)
	d := 0.0
	for i, g := range gap {
		f := 1 - math.Exp(-g*200)
		d = max(d, f-float64(i)/n, float64(i+1)/n-f)
	}
	if limit := 1.95 / math.Sqrt(n); d > limit {
		t.Errorf("distance %.5f from exponential, limit %.5f", d, limit)
	}
	// Gaps that were scaled to end on N/rate would hit it exactly.
	if end := float64(last) / 1e9; end == n/200.0 || math.Abs(end-n/200.0) > 4*math.Sqrt(n)/200 {
		t.Errorf("last arrival at %v s, mean is %v", end, n/200.0)
	}
}

func TestConstantGapsDoNotDrift(t *testing.T) {
	p := mustPlan(t, open(3, 3001, func(c *Config) { c.Arrival = ArrivalConstant }))
	if at := offsets(t, p); at[0] != 0 || at[3000] != int64(1000*time.Second) {
		t.Errorf("first at %d, 3001st at %d; want 0 and 1000 s", at[0], at[3000])
	}
}

func TestDurationCountsFromTheWarmup(t *testing.T) {
	p := mustPlan(t, open(10, 0, func(c *Config) {
		c.Arrival, c.Warmup, c.Duration = ArrivalConstant, 5, time.Second
	}))
	// Warm-up at 0 … 0.4 s; the measured second runs from 0.4 s to 1.4 s.
	if p.Planned() != 14 || item(t, p, 5).Class != "warmup" || item(t, p, 6).Class != "" {
		t.Errorf("planned %d, classes %q %q; want 14, warmup and none", p.Planned(), item(t, p, 5).Class, item(t, p, 6).Class)
	}
}

func TestIDs(t *testing.T) {
	a, b := mustPlan(t, open(1, 3, nil)), mustPlan(t, open(1, 3, nil))
	if a.ID(1) == b.ID(1) || !strings.HasPrefix(a.ID(12), "sl-") || !strings.HasSuffix(a.ID(12), "-000012") || !idShaped(a.ID(1)) {
		t.Errorf("ids %q, %q, %q", a.ID(1), b.ID(1), a.ID(12))
	}
	p := mustPlan(t, open(1, 3, func(c *Config) { c.IDPrefix = "mine" }))
	if ids := p.IDs(); len(ids) != 3 || ids[0] != p.ID(1) || ids[2] != "mine-000003" {
		t.Errorf("ids %q", ids)
	}
	if p.ID(1) != "mine-000001" || p.ID(1234567) != "mine-1234567" {
		t.Errorf("ids %q, %q", p.ID(1), p.ID(1234567))
	}
}

func TestConfigRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"want http://":          func(c *Config) { c.URL = "127.0.0.1:80" },
		"number of request":     func(c *Config) { c.N = 0 },
		"rate":                  func(c *Config) { c.Rate = -1 },
		"body template":         func(c *Config) { c.URL += "/generate" },
		"{{name}}":              func(c *Config) { c.Template = "{{name}}" },
		"without \"}}\"":        func(c *Config) { c.Template = "{{id" },
		"JSON object":           func(c *Config) { c.ExtraJSON = "[1]" },
		"line break":            func(c *Config) { c.Header = []string{"A: b\r\nC: d"} },
		"id prefix":             func(c *Config) { c.IDPrefix = "a b" },
		"no request to measure": func(c *Config) { c.N, c.Duration = 0, time.Nanosecond },
	} {
		_, err := NewPlan(open(1, 1, change))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// rendered returns head and body of request n.
func rendered(t *testing.T, c Config, n int) (head, body string) {
	t.Helper()
	p := mustPlan(t, c)
	req, _ := p.appendRequest(nil, nil, item(t, p, n))
	head, body, ok := strings.Cut(string(req), "\r\n\r\n")
	if !ok {
		t.Fatalf("no end of head in %q", req)
	}
	return head, body
}

func TestChatBody(t *testing.T) {
	head, body := rendered(t, open(1, 2, func(c *Config) {
		c.IDPrefix, c.IDField, c.Model, c.MaxTokens = "r", "request_id", "m", 5
		c.ExtraJSON, c.Prompts = `{"temperature":1,"seed":3}`, []string{"one", "a \"b\"\n<中>"}
		c.Header, c.Trace = []string{"Authorization: Bearer x"}, true
	}), 2)
	want := `{"request_id":"r-000002","model":"m","max_tokens":5,"stream":true,"stream_options":{"include_usage":true},` +
		`"seed":3,"temperature":1,"messages":[{"role":"user","content":"a \"b\"\n<中>"}]}`
	if body != want {
		t.Errorf("body\n%s\nwant\n%s", body, want)
	}
	for _, l := range []string{"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:1\r\nX-Request-Id: r-000002\r\ntraceparent: 00-", "\r\nAuthorization: Bearer x\r\n"} {
		if !strings.Contains(head, l) {
			t.Errorf("head %q lacks %q", head, l)
		}
	}
	if strings.Contains(strings.ToLower(head), "accept-encoding") {
		t.Errorf("head %q asks for compression", head)
	}
}

func TestSyntheticPrompts(t *testing.T) {
	for _, chars := range []int{1, 3, 128, 300000} {
		seen := map[string]bool{}
		for n := 1; n <= 2; n++ {
			_, body := rendered(t, open(1, 20, func(c *Config) { c.PromptChars = chars }), n)
			var m struct {
				Messages []struct{ Content string }
			}
			if err := json.Unmarshal([]byte(body), &m); err != nil {
				t.Fatal(err)
			}
			got := m.Messages[0].Content
			if len(got) != chars || seen[got] {
				t.Errorf("%d characters asked, %d given, repeated: %v", chars, len(got), seen[got])
			}
			seen[got] = true
		}
	}
}

func TestTemplate(t *testing.T) {
	_, body := rendered(t, open(1, 3, func(c *Config) {
		c.URL += "/generate"
		c.Template, c.IDPrefix, c.Prompts = `{"rid":"{{ id }}","n":{{n}},"text":"{{prompt}}"}`, "r", []string{`x"y`}
	}), 3)
	if want := `{"rid":"r-000003","n":3,"text":"x\"y"}`; body != want {
		t.Errorf("body %s, want %s", body, want)
	}
}

func TestPace(t *testing.T) {
	const ms, us = int64(1e6), int64(1e3)
	for _, tc := range []struct {
		now, deadline, wake int64
		due                 bool
	}{
		{100 * ms, 100 * ms, 0, true},
		{101 * ms, 100 * ms, 0, true},
		{100*ms - 1, 100 * ms, 0, false},
		{100*ms - 200*us, 100 * ms, 0, false},
		{100*ms - 201*us, 100 * ms, 100*ms - 200*us, false},
		{90 * ms, 100 * ms, 100*ms - 200*us, false},
		{0, 100 * ms, 20 * ms, false},
	} {
		if wake, due := pace(tc.now, tc.deadline, 200*us); wake != tc.wake || due != tc.due {
			t.Errorf("pace(%d, %d) = %d, %v; want %d, %v", tc.now, tc.deadline, wake, due, tc.wake, tc.due)
		}
	}
}

// Following pace from any start reaches the deadline without passing it in a sleep.
func TestPaceNeverSleepsPastTheSpin(t *testing.T) {
	deadline := int64(123_456_789)
	for now := int64(0); ; {
		wake, due := pace(now, deadline, maxSpinNS)
		if due {
			t.Fatal("due before the spin")
		}
		if wake == 0 {
			if left := deadline - now; left != maxSpinNS {
				t.Errorf("spinning starts %d ns before the deadline, want %d", left, int64(maxSpinNS))
			}
			return
		}
		if wake <= now {
			t.Fatalf("wake %d at %d", wake, now)
		}
		now = wake
	}
}

func TestOptionsHoldNoSecrets(t *testing.T) {
	p := mustPlan(t, open(5, 3, func(c *Config) {
		c.URL = "http://127.0.0.1:1/generate?key=secret-b"
		c.Header, c.Template = []string{"Authorization: Bearer secret-c"}, "secret-d {{prompt}}"
		c.Prompts = []string{"secret-e"}
	}))
	for k, v := range p.Options() {
		if strings.Contains(v, "secret") {
			t.Errorf("%s: %s", k, v)
		}
	}
	if p.Options()["load_url"] != "http://127.0.0.1:1/generate" || p.Options()["load_rate"] != "5" {
		t.Errorf("options %v", p.Options())
	}
}
