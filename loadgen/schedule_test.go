package loadgen

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// distance is that of Kolmogorov and Smirnov between sorted values and a distribution function.
func distance(v []float64, cdf func(float64) float64) float64 {
	d, n := 0.0, float64(len(v))
	for i, x := range v {
		f := cdf(x)
		d = max(d, f-float64(i)/n, float64(i+1)/n-f)
	}
	return d
}

func gapsOf(t *testing.T, p *Plan) []float64 {
	var out []float64
	last := int64(0)
	for _, at := range offsets(t, p) {
		out = append(out, float64(at-last)/1e9)
		last = at
	}
	return out
}

// erlang is the distribution function of gamma gaps of whole shape k and mean 1.
func erlang(k int) func(float64) float64 {
	return func(x float64) float64 {
		sum, term := 0.0, 1.0
		for i := range k {
			if i > 0 {
				term *= float64(k) * x / float64(i)
			}
			sum += term
		}
		return 1 - math.Exp(-float64(k)*x)*sum
	}
}

// Gamma gaps of burstiness k have mean 1/rate and CV² = 1/k, and for whole k the Erlang distribution.
// 1.95/√n is exceeded with probability 0.001; the seed is fixed.
func TestGammaGaps(t *testing.T) {
	const n, rate = 50000, 200.0
	for _, k := range []float64{0.25, 0.5, 1, 4, 25} {
		g := gapsOf(t, mustPlan(t, open(rate, n, func(c *Config) { c.Arrival, c.Burstiness = ArrivalGamma, k })))
		var sum, squares float64
		for i := range g {
			g[i] *= rate
			sum += g[i]
			squares += g[i] * g[i]
		}
		mean := sum / n
		cv2 := (squares/n - mean*mean) / (mean * mean)
		if math.Abs(mean-1) > 4/math.Sqrt(k*n) {
			t.Errorf("k %v: mean gap %.4f of 1/rate", k, mean)
		}
		if math.Abs(cv2*k-1) > 0.06 {
			t.Errorf("k %v: CV² %.4f, want %.4f", k, cv2, 1/k)
		}
		if k != math.Trunc(k) {
			continue
		}
		slices.Sort(g)
		if d := distance(g, erlang(int(k))); d > 1.95/math.Sqrt(n) {
			t.Errorf("k %v: distance %.5f from the Erlang distribution", k, d)
		}
	}
}

// Equal gaps in operational time: the i-th request is where the integral of the rate reaches i.
func TestShapeFollowsItsIntegral(t *testing.T) {
	shape, err := ParseShape("10x2s,10..40x4s,0x3s,20..0x2s")
	if err != nil {
		t.Fatal(err)
	}
	integral := func(s float64) float64 {
		sum := 0.0
		for _, g := range shape {
			d := min(max(s, 0), g.Lasts.Seconds())
			sum += g.From*d + (g.To-g.From)/g.Lasts.Seconds()*d*d/2
			s -= g.Lasts.Seconds()
		}
		return sum
	}
	at := offsets(t, mustPlan(t, open(0, 0, func(c *Config) { c.Shape, c.Arrival = shape, ArrivalConstant })))
	if len(at) != 20+100+20 {
		t.Errorf("%d requests, the rates hold 140", len(at))
	}
	for i, ns := range at {
		if got := integral(float64(ns) / 1e9); math.Abs(got-float64(i)) > 1e-5 {
			t.Fatalf("request %d at %d ns, where %v are due", i, ns, got)
		}
		if s := float64(ns) / 1e9; s > 6 && s < 9 {
			t.Errorf("request %d at %v s, in the pause", i, s)
		}
	}
}

// Poisson arrivals of a changing rate are exponential once time is counted in requests due.
func TestShapeKeepsTheProcess(t *testing.T) {
	const n = 20000
	p := mustPlan(t, open(0, n, func(c *Config) {
		c.Shape, c.ShapeCycle = []Segment{{100, 900, 2 * time.Second}, {300, 300, time.Second}}, true
	}))
	due := func(ns int64) float64 { // requests due by then; a cycle holds 1300
		s := float64(ns) / 1e9
		whole := math.Floor(s / 3)
		s -= 3 * whole
		r := min(s, 2)
		return 1300*whole + 100*r + 200*r*r + 300*max(0, s-2)
	}
	var g []float64
	last := 0.0
	for _, at := range offsets(t, p) {
		g = append(g, due(at)-last)
		last = due(at)
	}
	slices.Sort(g)
	if d := distance(g, func(x float64) float64 { return 1 - math.Exp(-x) }); len(g) != n || d > 1.95/math.Sqrt(n) {
		t.Errorf("%d requests, distance %.5f from exponential", len(g), d)
	}
}

func TestBurstsPause(t *testing.T) {
	p := mustPlan(t, open(0, 500, func(c *Config) {
		c.Shape, c.ShapeCycle = []Segment{{50, 50, 2 * time.Second}, {0, 0, 8 * time.Second}}, true
	}))
	at := offsets(t, p)
	for i, ns := range at {
		if s := math.Mod(float64(ns)/1e9, 10); s > 2+1e-6 {
			t.Fatalf("request %d at %v s of its cycle of 2 s on, 8 s off", i+1, s)
		}
	}
	if cycles := float64(at[499]) / 10e9; cycles < 3.5 || cycles > 6.5 {
		t.Errorf("500 requests took %.2f cycles of 100", cycles)
	}
}

func TestShapeRefused(t *testing.T) {
	for _, s := range []string{"", "10", "10x", "x5s", "10x-5s", "-1x5s", "10..x5s", "1..2..3x5s", "0x5s", "NaNx5s", "1e9x1s"} {
		if _, err := ParseShape(s); err == nil || !strings.Contains(err.Error(), "rates") {
			t.Errorf("%q: error %v", s, err)
		}
	}
}

func mixed(c *Config) {
	c.Classes = []Class{
		{Name: "short", Weight: 3, Tenant: "a", PromptChars: 40, MaxTokens: 5},
		{Name: "long", Weight: 1, Tenant: "b", PromptChars: 400, MaxTokens: 50},
	}
	c.Turns, c.TurnGap = IntRange{1, 4}, DurationRange{time.Millisecond, 30 * time.Millisecond}
	c.SharedPrefix, c.Warmup = 64, 4
}

func TestMixAndConversations(t *testing.T) {
	p := mustPlan(t, open(100, 8000, mixed))
	count, turns := map[string]int{}, map[int]int{}
	var root Item
	for _, it := range planned(t, p) {
		if it.Class != classWarmup {
			count[it.Class+"/"+it.Tenant]++
		}
		turns[it.Turn]++
		if it.Turn == 0 { // a conversation of one turn
			continue
		}
		if it.Turn == 1 {
			root = it
			if it.After != 0 || it.OffsetNS < 0 {
				t.Fatalf("first turn %+v", it)
			}
			continue
		}
		if it.After != it.N-1 || it.OffsetNS != -1 || it.Session != root.Session || it.root() != root.N ||
			it.PromptChars != root.PromptChars*it.Turn || it.Tenant != root.Tenant || it.GapNS < 1e6 || it.GapNS > 30e6 {
			t.Fatalf("turn %+v of %+v", it, root)
		}
	}
	short := float64(count["short/a"]) / float64(count["short/a"]+count["long/b"])
	if len(count) != 2 || math.Abs(short-0.75) > 0.03 {
		t.Errorf("classes %v, short ones are %.3f of all, want 0.75", count, short)
	}
	// Conversations of 1 to 4 turns, equally likely: three quarters have a second one, and so on.
	if r := float64(turns[4]) / float64(turns[2]); math.Abs(r-1.0/3) > 0.05 {
		t.Errorf("turns %v: %.3f of second turns have a fourth, want a third", turns, r)
	}
}

// A later turn's prompt begins with the one before it; what two conversations share is the prefix.
func TestPromptPrefixes(t *testing.T) {
	p := mustPlan(t, open(100, 200, mixed))
	text := func(it Item) string { return string(p.body.appendPrompt(nil, &it)) }
	items := planned(t, p)
	shared := text(items[0])[:64]
	for i, it := range items {
		s := text(it)
		if len(s) != 64+it.PromptChars || !strings.HasPrefix(s, shared) {
			t.Fatalf("prompt of %d characters, want %d after the prefix", len(s), it.PromptChars)
		}
		if i == 0 {
			continue
		}
		before := text(items[i-1])
		if it.After != 0 && !strings.HasPrefix(s, before) {
			t.Fatalf("turn %d of %s does not begin with the turn before", it.Turn, it.Session)
		}
		if it.After == 0 && s[:72] == before[:72] {
			t.Fatalf("requests %d and %d share more than the prefix", it.N-1, it.N)
		}
	}
}

// What is sent, and the hash of it, does not depend on how many send it.
func TestSameLoadWhateverTheWorkers(t *testing.T) {
	type sent struct {
		hash   string
		bodies []string
		offset []int64
	}
	load := func(workers int) sent {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers))
		s := newServer(t, okHandler)
		c := chatConfig(s, 120)
		mixed(&c)
		c.Rate, c.Seed, c.Concurrency, c.IDPrefix = 3000, 5, workers, "r"
		p := mustPlan(t, c)
		rs, sum, err := runAll(t, t.Context(), p)
		if err != nil || sum.Success != 120 {
			t.Fatalf("error %v, summary %+v", err, sum)
		}
		out := sent{hash: sum.ScheduleHash}
		s.mu.Lock()
		for _, r := range s.seen {
			out.bodies = append(out.bodies, r.body)
		}
		s.mu.Unlock()
		slices.Sort(out.bodies)
		for _, r := range rs {
			if r.Turn <= 1 {
				out.offset = append(out.offset, *r.PlannedNS-*rs[0].PlannedNS)
			}
		}
		return out
	}
	one := load(1)
	for _, n := range []int{2, 8} {
		if got := load(n); fmt.Sprint(got) != fmt.Sprint(one) {
			t.Errorf("%d workers sent another load than one", n)
		}
	}
}

func TestScheduleRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"not both":         func(c *Config) { c.Shape = []Segment{{1, 1, time.Second}} },
		"burstiness 0.001": func(c *Config) { c.Arrival, c.Burstiness = ArrivalGamma, 0.001 },
		"belongs to gamma": func(c *Config) { c.Arrival, c.Burstiness = ArrivalConstant, 2 },
		"at least 1":       func(c *Config) { c.Turns = IntRange{0, 3} },
		"max-tokens":       func(c *Config) { c.Classes = []Class{{Name: "a", Weight: 1, MaxTokens: 3}, {Name: "b", Weight: 1}} },
		"weight":           func(c *Config) { c.Classes = []Class{{Name: "a"}} },
		"class name":       func(c *Config) { c.Classes = []Class{{Name: "warmup", Weight: 1}} },
		"leave out rates":  func(c *Config) { c.Replay = "x" },
	} {
		if _, err := NewPlan(open(1, 1, change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	for _, s := range []string{"", "a", "a=", "a=x", "a=1,b=2", "a=1,prompt-chars=x", "a b=1", "a=1,tenant=x y", "a=-1"} {
		if _, err := ParseClass(s); err == nil || !strings.Contains(err.Error(), "class") {
			t.Errorf("class %q: error %v", s, err)
		}
	}
}
