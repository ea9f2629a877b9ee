package loadgen

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// maxPlanned bounds an open loop that is limited by time alone.
const maxPlanned = 10_000_000

// Plan is a load fixed before it is sent. Its requests are made one by one as they are needed, so
// that a plan of a million takes no more memory than one of ten. It is safe for concurrent use and
// may be run again: a second run sends the same identifiers.
type Plan struct {
	cfg    Config
	url    *url.URL
	prefix string
	open   bool   // send times are fixed by the plan
	n      int    // planned requests; -1: closed loop bounded by time alone
	turns  bool   // some requests follow the reply to another
	hash   string // "" when n is -1
	body   *body
	head   requestHead
	given  []string // private texts beside the body, not to be repeated in what is recorded
}

// NewPlan fixes identifiers, send times and bodies. Every error is one of the configuration.
func NewPlan(cfg Config) (*Plan, error) {
	u, err := cfg.normalise()
	if err != nil {
		return nil, err
	}
	p := &Plan{cfg: cfg, url: u, prefix: cfg.IDPrefix, open: cfg.openLoop(), n: -1}
	if p.prefix == "" {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, fmt.Errorf("load plan: mint ids: %w", err)
		}
		p.prefix = "sl-" + hex.EncodeToString(b[:])
	}
	if p.open || cfg.N > 0 {
		if err := p.count(); err != nil {
			return nil, err
		}
	}
	if p.body, err = newBody(&p.cfg); err != nil {
		return nil, err
	}
	if p.head, err = newRequestHead(&p.cfg, u, p.body.contentType); err != nil {
		return nil, err
	}
	p.given = privateTexts(&p.cfg, u)
	return p, nil
}

// items starts the plan's requests from the first. done must be called when no more are needed.
func (p *Plan) items() (src source, done func(), err error) {
	if p.cfg.Replay == "" {
		return newDrawn(&p.cfg), func() {}, nil
	}
	t, err := openTrace(&p.cfg)
	if err != nil {
		return nil, nil, err
	}
	return t, t.close, nil
}

// count goes through the whole plan once, for its length and hash and to find every fault in a trace
// before anything is sent.
func (p *Plan) count() error {
	src, done, err := p.items()
	if err != nil {
		return err
	}
	defer done()
	t, traced := src.(*trace)
	if traced && t.head != nil {
		if err := t.head.adopt(&p.cfg); err != nil {
			return err
		}
		p.open = t.head.OpenLoop
	}
	h := newScheduleHash()
	p.n = 0
	for {
		it, ok, err := src.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if p.n++; p.n > maxPlanned && p.cfg.N == 0 {
			return fmt.Errorf("load plan: more than %d requests: shorten the load or give a number of requests", maxPlanned)
		}
		p.turns = p.turns || it.After != 0
		p.cfg.statesTokens = p.cfg.statesTokens || it.MaxTokens > 0
		h.add(&it)
	}
	p.hash = h.String()
	if p.n <= p.cfg.Warmup {
		return errors.New("load plan: the schedule holds no request to measure: lengthen it or raise the rate")
	}
	return p.checkFrozen(t)
}

// checkFrozen refuses a frozen plan that is not what its first line says; t is nil for other sources.
func (p *Plan) checkFrozen(t *trace) error {
	switch {
	case t == nil || t.head == nil:
		return nil
	case p.cfg.N > 0 || p.cfg.Duration > 0 || p.cfg.Warmup > 0:
		return fmt.Errorf("load plan: %s is a frozen plan and is sent whole: leave out the number of requests, duration and warm-up", t.path)
	case p.hash != t.head.ScheduleHash || p.n != t.head.Requests:
		return fmt.Errorf("load plan: %s holds %d requests of SHA-256 %.12s…, its first line says %d of %.12s…: it was changed after it was frozen",
			t.path, p.n, p.hash, t.head.Requests, t.head.ScheduleHash)
	}
	return nil
}

// Planned is the number of requests of the plan, or -1 when a closed loop is bounded by time alone.
func (p *Plan) Planned() int { return p.n }

// Open says whether the send times are fixed by the plan.
func (p *Plan) Open() bool { return p.open }

// Path is the path requests go to.
func (p *Plan) Path() string { return p.url.Path }

// Addr is the host:port requests go to.
func (p *Plan) Addr() string { return hostPort(p.url) }

// ID returns the identifier of request n, from 1.
func (p *Plan) ID(n int) string {
	s := strconv.Itoa(n)
	const zeros = "000000"
	if len(s) < len(zeros) {
		s = zeros[len(s):] + s
	}
	return p.prefix + "-" + s
}

// ScheduleHash is the SHA-256 of the planned requests: their order, times, classes, conversations and
// sizes. Two plans of equal hash offer the same load. It does not depend on identifiers or on the
// number of workers. "" when the number of requests is not fixed.
func (p *Plan) ScheduleHash() string { return p.hash }

// IDs returns the identifiers of all planned requests; none when their number is not fixed.
func (p *Plan) IDs() []string {
	var out []string
	for n := 1; n <= p.n; n++ {
		out = append(out, p.ID(n))
	}
	return out
}

// Options describes the plan for a run's metadata. Header values, a URL's query, prompts and
// templates may be private and are left out.
func (p *Plan) Options() map[string]string {
	c := &p.cfg
	m := map[string]string{
		"load_url":      p.url.Scheme + "://" + p.url.Host + p.url.Path,
		"load_reply":    string(c.Reply),
		"load_stream":   strconv.FormatBool(c.Stream),
		"load_seed":     strconv.FormatUint(c.Seed, 10),
		"load_warmup":   strconv.Itoa(c.Warmup),
		"load_planned":  strconv.Itoa(p.n),
		"load_deadline": c.Deadline.String(),
		"load_prompts":  "given",
	}
	if p.body.synth != nil {
		m["load_prompts"] = "synthetic, " + strconv.Itoa(c.PromptChars) + " characters"
	}
	if c.Concurrency > 0 {
		m["load_concurrency"] = strconv.Itoa(c.Concurrency)
	}
	if c.Duration > 0 {
		m["load_duration"] = c.Duration.String()
	}
	if c.Model != "" {
		m["load_model"] = c.Model
	}
	if c.MaxTokens > 0 {
		m["load_max_tokens"] = strconv.Itoa(c.MaxTokens)
	}
	c.Client.options(m)
	p.scheduleOptions(m)
	if h := p.ScheduleHash(); h != "" {
		m["load_schedule_sha256"] = h
	}
	return m
}

func (p *Plan) scheduleOptions(m map[string]string) {
	c := &p.cfg
	float := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	if c.Rate > 0 {
		m["load_rate"] = float(c.Rate)
	}
	var shape []string
	for _, g := range c.Shape {
		shape = append(shape, float(g.From)+".."+float(g.To)+"x"+g.Lasts.String())
	}
	if len(shape) > 0 {
		m["load_rates"] = strings.Join(shape, ",")
		m["load_rates_repeat"] = strconv.FormatBool(c.ShapeCycle)
	}
	if c.Rate > 0 || len(shape) > 0 {
		m["load_arrival"] = string(c.Arrival)
	}
	if c.Arrival == ArrivalGamma {
		m["load_burstiness"] = float(c.Burstiness)
	}
	if c.Replay != "" {
		m["load_trace"] = filepath.Base(c.Replay)
		m["load_trace_speed"] = float(c.ReplaySpeed)
	}
	if c.Turns.Hi > 0 {
		m["load_turns"] = fmt.Sprintf("%d..%d", c.Turns.Lo, c.Turns.Hi)
		m["load_turn_gap"] = c.TurnGap.Lo.String() + ".." + c.TurnGap.Hi.String()
	}
	if c.SharedPrefix > 0 {
		m["load_shared_prefix"] = strconv.Itoa(c.SharedPrefix)
	}
	var classes []string
	for _, k := range c.Classes {
		classes = append(classes, fmt.Sprintf("%s=%s,tenant=%s,prompt-chars=%d,max-tokens=%d", k.Name, float(k.Weight), k.Tenant, k.PromptChars, k.MaxTokens))
	}
	if len(classes) > 0 {
		m["load_classes"] = strings.Join(classes, " ")
	}
	m["load_max_lag"] = c.MaxLag.String()
}
