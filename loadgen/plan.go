package loadgen

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"net/url"
	"strconv"
	"time"
)

const (
	classWarmup = "warmup"
	// maxPlanned bounds an open loop's schedule, which is held in memory.
	maxPlanned = 10_000_000
)

// Item is one planned request.
type Item struct {
	N        int    // from 1, warm-up included
	ID       string // minted before the run
	Class    string // "warmup" or ""
	OffsetNS int64  // planned send time after the start of the run; -1 in closed loop
}

// Plan is a load fixed before it is sent. It is safe for concurrent use and may be run again: a
// second run sends the same identifiers.
type Plan struct {
	cfg     Config
	url     *url.URL
	prefix  string
	offsets []int64 // open loop only
	n       int     // planned requests; -1: closed loop bounded by time alone
	body    *body
	head    requestHead
	given   []string // private texts beside the body, not to be repeated in what is recorded
}

// NewPlan fixes identifiers, send times and bodies. Every error is one of the configuration.
func NewPlan(cfg Config) (*Plan, error) {
	u, err := cfg.normalise()
	if err != nil {
		return nil, err
	}
	p := &Plan{cfg: cfg, url: u, prefix: cfg.IDPrefix}
	if p.prefix == "" {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, fmt.Errorf("load plan: mint ids: %w", err)
		}
		p.prefix = "sl-" + hex.EncodeToString(b[:])
	}
	if p.body, err = newBody(&cfg); err != nil {
		return nil, err
	}
	p.head, p.given = newRequestHead(&cfg, u), privateTexts(&cfg, u)
	switch {
	case cfg.Rate > 0:
		if p.offsets, err = schedule(&cfg); err != nil {
			return nil, err
		}
		p.n = len(p.offsets)
	case cfg.N > 0:
		p.n = cfg.Warmup + cfg.N
	default:
		p.n = -1
	}
	return p, nil
}

// Planned is the number of requests of the plan, or -1 when a closed loop is bounded by time alone.
func (p *Plan) Planned() int { return p.n }

// Open says whether the send times are fixed by the plan.
func (p *Plan) Open() bool { return p.cfg.Rate > 0 }

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

// Item returns planned request n, from 1.
func (p *Plan) Item(n int) Item {
	it := Item{N: n, ID: p.ID(n), OffsetNS: -1}
	if n <= p.cfg.Warmup {
		it.Class = classWarmup
	}
	if p.Open() {
		it.OffsetNS = p.offsets[n-1]
	}
	return it
}

// ScheduleHash is the SHA-256 of the planned order: for each request its class and its offset in
// nanoseconds. Two plans of equal hash offer the same arrivals. It does not depend on identifiers
// or on the number of workers. "" when the number of requests is not fixed.
func (p *Plan) ScheduleHash() string {
	if p.n < 0 {
		return ""
	}
	h := sha256.New()
	var b [9]byte
	for n := 1; n <= p.n; n++ {
		b[0] = 0
		off := int64(-1)
		if p.Open() {
			off = p.offsets[n-1]
		}
		if n <= p.cfg.Warmup {
			b[0] = 1
		}
		binary.LittleEndian.PutUint64(b[1:], uint64(off))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// schedule returns the send offsets of an open loop. The measured window of a Duration begins at
// the last warm-up arrival. Gaps are never scaled to make the last one land on N/rate: that would
// correlate them.
func schedule(cfg *Config) ([]int64, error) {
	end := int64(math.MaxInt64)
	want := cfg.N + cfg.Warmup
	if cfg.N == 0 {
		want = maxPlanned
	}
	if want > maxPlanned {
		return nil, fmt.Errorf("load plan: %d requests: at most %d fit one plan", want, maxPlanned)
	}
	next := gaps(cfg)
	var out []int64
	var at int64
	for len(out) < want {
		if len(out) == cfg.Warmup && cfg.Duration > 0 {
			end = at + cfg.Duration.Nanoseconds()
		}
		at += next()
		if at >= end {
			break
		}
		out = append(out, at)
	}
	if cfg.N == 0 && len(out) == maxPlanned {
		return nil, fmt.Errorf("load plan: rate %v for %v: at most %d requests fit one plan", cfg.Rate, cfg.Duration, maxPlanned)
	}
	if len(out) == cfg.Warmup {
		return nil, fmt.Errorf("load plan: rate %v for %v holds no request", cfg.Rate, cfg.Duration)
	}
	return out, nil
}

// gaps returns the generator of inter-arrival gaps in nanoseconds.
func gaps(cfg *Config) func() int64 {
	mean := float64(time.Second) / cfg.Rate
	if cfg.Arrival == ArrivalConstant {
		// By multiplication, so that rounding does not add up over a long run.
		var i, last int64
		return func() int64 {
			at := int64(math.Round(float64(i) * mean))
			g := at - last
			i, last = i+1, at
			return g
		}
	}
	r := mrand.New(mrand.NewPCG(cfg.Seed, 0x7374616765)) // second word: any constant of our own
	return func() int64 {
		u := float64(r.Uint64()>>11) / (1 << 53) // [0, 1)
		return int64(math.Round(-math.Log1p(-u) * mean))
	}
}

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
	if p.body.synth != "" {
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
	if c.CancelAfter > 0 {
		m["load_cancel_after"] = strconv.Itoa(c.CancelAfter)
	}
	if p.Open() {
		m["load_rate"] = strconv.FormatFloat(c.Rate, 'g', -1, 64)
		m["load_arrival"] = string(c.Arrival)
	}
	if h := p.ScheduleHash(); h != "" {
		m["load_schedule_sha256"] = h
	}
	return m
}
