package loadgen

import (
	"maps"
	"math"
	"slices"

	"github.com/stageline/stageline/collector/run"
)

// Compat is the view of a single engine as token benchmarks give it (M1–M8), beside the figures of
// the summary and never mixed with them. Only successful requests are in it.
type Compat struct {
	N          int           `json:"n"`
	TokPerSec  *CompatFigure `json:"m1_tok_per_sec"`
	TTFT       *CompatFigure `json:"m2_ttft_ms"`
	Total      *CompatFigure `json:"m3_total_duration_ms"`
	Tokens     *CompatFigure `json:"m4_tokens_generated"`
	Generation *CompatFigure `json:"m5_generation_duration_ms"`
	PowerW     *float64      `json:"m6_power_watts"`           // null: power is measured by the recorder, not by the load
	PerWatt    *float64      `json:"m7_tok_per_sec_per_watt"`  // null with it
	StdDev     *float64      `json:"m8_std_dev_tok_s"`         // null: no prompt was sent twice
	Prompts    int           `json:"m8_prompts"`               // with two or more runs
	CVPercent  *float64      `json:"m8_cv_percent"`            // of the average
	Stability  string        `json:"m8_stability,omitempty"`   // "stable", "variable", "unstable"
	TTFTFrom   string        `json:"m2_source"`                // the clock of M2
	TokensFrom []string      `json:"m4_sources"`               // what the tokens were counted by
	Below      int           `json:"m1_too_short_generations"` // generation < 10 ms: M1 is 0.0 by its definition
	Limited    bool          `json:"limited,omitempty"`        // only the first 100 000 requests are in this view
}

// CompatFigure is the median that token benchmarks lead with, and the mean with its deviation.
type CompatFigure struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Mean   float64 `json:"mean"`
	Std    float64 `json:"std"`
}

// maxCompat bounds what is kept for the medians and by prompt.
const maxCompat = 100_000

type compatTally struct {
	want                               Expect
	ollama                             bool
	n, below                           int
	tok, ttft, total, tokens, duration []float64
	prompts                            map[int]*running
	from                               map[string]bool
	over                               bool
}

// running is a mean and a variance that grow (Welford 1962).
type running struct {
	n        int
	mean, m2 float64
}

func (r *running) add(v float64) {
	r.n++
	d := v - r.mean
	r.mean += d / float64(r.n)
	r.m2 += d * (v - r.mean)
}

func newCompatTally(c *Config) *compatTally {
	return &compatTally{want: c.expects(), ollama: c.Reply == ReplyOllama, prompts: map[int]*running{}, from: map[string]bool{}}
}

// add takes one successful request with text.
func (t *compatTally) add(r *run.Request) {
	if r.State != run.StateSuccess || !t.want.Text || r.TextChars == 0 || r.SentNS == nil || r.EndNS == nil {
		return
	}
	if t.n >= maxCompat {
		t.over = true
		return
	}
	t.n++
	g := generationOf(r, t.want.Streamed)
	t.from[g.tokensFrom] = true
	t.total = append(t.total, g.total*1e3)
	t.tokens = append(t.tokens, g.tokens)
	if !math.IsNaN(g.ttft) {
		t.ttft = append(t.ttft, g.ttft*1e3)
	}
	if math.IsNaN(g.seconds) {
		return
	}
	t.duration = append(t.duration, g.seconds*1e3)
	rate := 0.0
	if g.seconds >= 0.01 {
		rate = g.tokens / g.seconds
	} else {
		t.below++
	}
	t.tok = append(t.tok, rate)
	if r.Prompt > 0 {
		if t.prompts[r.Prompt] == nil {
			t.prompts[r.Prompt] = &running{}
		}
		t.prompts[r.Prompt].add(rate)
	}
}

// generation is M2 to M5 of one request, in seconds; NaN is not known.
type generation struct {
	ttft, total, seconds, tokens float64
	tokensFrom                   string
}

// generationOf goes by the server's counters where the engine states them (Ollama), else by the
// client's clock.
func generationOf(r *run.Request, streamed bool) generation {
	g := generation{total: float64(*r.EndNS-*r.SentNS) / 1e9, ttft: math.NaN(), seconds: math.NaN()}
	g.tokens, g.tokensFrom = max(1, math.Floor(float64(r.TextChars)/4)), "text/4"
	if r.Tokens != nil {
		g.tokens, g.tokensFrom = float64(*r.Tokens), r.TokensFrom
	}
	if e := r.Engine; e != nil {
		if e.PromptEvalNS != nil {
			g.ttft = float64(*e.PromptEvalNS) / 1e9
		}
		if e.EvalNS != nil {
			g.seconds = float64(*e.EvalNS) / 1e9
		}
		return g
	}
	if s := scan(r); streamed && s.firstText != nil {
		g.ttft = float64(*s.firstText-*r.SentNS) / 1e9
		g.seconds = max(0, g.total-g.ttft)
	}
	return g
}

func (t *compatTally) result() *Compat {
	if t.n == 0 {
		return nil
	}
	c := &Compat{N: t.n, TokPerSec: compatFigure(t.tok), TTFT: compatFigure(t.ttft), Total: compatFigure(t.total),
		Tokens: compatFigure(t.tokens), Generation: compatFigure(t.duration), Below: t.below, TTFTFrom: "client: first write → first content"}
	if t.ollama {
		c.TTFTFrom = "server: prompt_eval_duration"
	}
	c.TokensFrom, c.Limited = slices.Sorted(maps.Keys(t.from)), t.over
	t.deviation(c)
	return c
}

// deviation is pooled within prompts: the root of the mean population variance of the prompts that
// were run at least twice.
func (t *compatTally) deviation(c *Compat) {
	sum := 0.0
	for _, k := range slices.Sorted(maps.Keys(t.prompts)) { // in order, so that the sum is always the same
		p := t.prompts[k]
		if p.n >= 2 {
			c.Prompts++
			sum += p.m2 / float64(p.n)
		}
	}
	if c.Prompts == 0 || c.TokPerSec == nil {
		return
	}
	std := math.Sqrt(sum / float64(c.Prompts))
	c.StdDev = &std
	if c.TokPerSec.Mean <= 0 {
		return
	}
	cv := std / c.TokPerSec.Mean * 100
	c.CVPercent = &cv
	switch {
	case cv < 5:
		c.Stability = "stable"
	case cv < 10:
		c.Stability = "variable"
	default:
		c.Stability = "unstable"
	}
}

func compatFigure(v []float64) *CompatFigure {
	if len(v) == 0 {
		return nil
	}
	s := slices.Clone(v)
	slices.Sort(s)
	n := len(s)
	f := &CompatFigure{N: n, Median: (s[(n-1)/2] + s[n/2]) / 2}
	var r running
	for _, x := range s {
		r.add(x)
	}
	f.Mean, f.Std = r.mean, math.Sqrt(r.m2/float64(n))
	return f
}
