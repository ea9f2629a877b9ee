package loadgen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/loadgen/mock"
)

// Certificate is what this generator measured wrongly on this host, found by measuring a server whose
// times are known. An error is the client's stamp minus the server's, which it took just before the
// write; how late the server itself was is in MockLateness alone.
type Certificate struct {
	Version string    `json:"certificate"` // of this form
	Tool    string    `json:"tool"`
	Host    string    `json:"host"`
	Kernel  string    `json:"kernel"`
	CPUs    int       `json:"cpus"`
	At      time.Time `json:"at"`

	Streams  int     `json:"streams"` // most at once, as planned; of an open loop without a cap: as sent
	Rate     Rates   `json:"rate"`    // requests per second
	Requests int     `json:"requests"`
	Events   int     `json:"events"`
	TrueTTFT float64 `json:"true_ttft_ms"`
	TrueITL  float64 `json:"true_itl_ms"`

	TTFTError     Moments  `json:"ttft_error_ms"`           // of the stamp of the first token
	ITLError      Moments  `json:"itl_error_ms"`            // of the time by token as reported: k tokens of one read are k equal parts
	EventGapError Moments  `json:"event_gap_error_ms"`      // of the gap between successive events, coalesced ones taken as if they had a time of their own
	TTFTFromSend  Moments  `json:"ttft_from_send_error_ms"` // of TTFT as reported, against arrival of the request → write of the first token
	SendLag       Lags     `json:"send_lag_us"`             // of the generator's own
	IdleShare     *float64 `json:"idle_share"`              // of a closed loop: see Generator
	Bound         *float64 `json:"bound_ms"`                // on p99 of the errors and of the lag (lag of a closed loop: see Generator); null: none
	ReadLag       *Dist    `json:"read_lag_ms"`             // arrival → read, in no figure; null without kernel stamps
	MockLateness  Moments  `json:"mock_lateness_ms"`        // write of a token − its true time
	Coalesced     int      `json:"coalesced_events"`        // shared a read with the event before
	CPUPer10k     *float64 `json:"cpu_ms_per_10k_events"`   // of this process, user and system
	KernelStamped int      `json:"events_stamped_by_kernel"`

	Valid   bool     `json:"valid"`
	Because []string `json:"invalid_because,omitempty"`
}

const certificateVersion = "1"

// Moments describe an error; null without values.
type Moments struct {
	N     int      `json:"n"`
	Mean  *float64 `json:"mean"`
	Sigma *float64 `json:"sigma"`
	P99   *float64 `json:"p99"` // of the absolute value
	Max   *float64 `json:"max"` // likewise
}

// Rates are requests per second: null where a closed loop asks for none.
type Rates struct {
	Asked    *float64 `json:"asked"`
	Achieved *float64 `json:"achieved"`
}

// Lags are microseconds.
type Lags struct {
	N   int      `json:"n"`
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
	Max *float64 `json:"max"`
}

// MaxCertified is how many events a certification may have: the stamps of all are kept until they are
// compared, some 50 bytes for each.
const MaxCertified = 10_000_000

// Certifiable makes the plan of a certification, and refuses one that Certify would not carry out.
func Certifiable(cfg Config, truth mock.Config) (*Plan, error) {
	plan, err := NewPlan(cfg)
	switch {
	case err != nil:
		return nil, err
	case plan.n < 0:
		return nil, errors.New("certify: want a number of requests")
	case plan.n > MaxCertified/truth.Tokens:
		return nil, fmt.Errorf("certify: %d requests of %d tokens: their stamps are kept in memory, at most %d; certify fewer requests, or replies of fewer tokens",
			plan.n, truth.Tokens, MaxCertified)
	}
	return plan, nil
}

// Certify sends the load of cfg to a mock server with stamps at cfg.URL and compares.
func Certify(ctx context.Context, cfg Config, truth mock.Config) (*Certificate, error) {
	plan, err := Certifiable(cfg, truth)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]sighting, plan.n)
	before := cpuTime()
	sum, err := Run(ctx, plan, func(r *run.Request) { seen[r.ID] = sightingOf(r) })
	used := cpuTime() - before
	if err != nil {
		return nil, err
	}
	records, err := fetchStamps(ctx, cfg.URL)
	if err != nil {
		return nil, err
	}
	c := compare(seen, records, truth)
	c.describe(&sum, plan, used)
	return c, nil
}

// sighting is what is kept of a request until it is compared.
type sighting struct {
	sentNS    int64
	at        []int64 // stamps of the tokens; nil when the request did not succeed
	coalesced int
}

func sightingOf(r *run.Request) sighting {
	var s sighting
	if r.State != run.StateSuccess {
		return s
	}
	s.sentNS = *r.SentNS
	s.at = make([]int64, 0, len(r.Events))
	for i := range r.Events {
		e := &r.Events[i]
		if e.Kind != "content" {
			continue
		}
		if e.Coalesced && len(s.at) > 0 {
			s.coalesced++
		}
		s.at = append(s.at, e.MonoNS)
	}
	return s
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func fetchStamps(ctx context.Context, url string) ([]mock.Record, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/stamps", nil)
	if err != nil {
		return nil, fmt.Errorf("certify: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("certify: read the stamps of the mock server: %w", err)
	}
	defer resp.Body.Close()
	var out []mock.Record
	for d := json.NewDecoder(resp.Body); ; {
		var r mock.Record
		if err := d.Decode(&r); err == io.EOF {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("certify: read the stamps of the mock server: %w", err)
		}
		out = append(out, r)
	}
}

// errorSeries collects one kind of error, in nanoseconds.
type errorSeries []float64

func (e errorSeries) moments() Moments {
	m := Moments{N: len(e)}
	if len(e) == 0 {
		return m
	}
	var sum, squares float64
	for _, v := range e {
		sum += v
	}
	mean := sum / float64(len(e))
	abs := make([]float64, len(e))
	for i, v := range e {
		squares += (v - mean) * (v - mean)
		abs[i] = math.Abs(v)
	}
	slices.Sort(abs)
	ms := func(v float64) *float64 { v /= 1e6; return &v }
	m.Mean, m.Sigma = ms(mean), ms(math.Sqrt(squares/float64(len(e))))
	m.P99, m.Max = ms(abs[(len(abs)*99+99)/100-1]), ms(abs[len(abs)-1])
	return m
}

// compare joins what the client saw with what the server did, request by request and token by token.
func compare(seen map[string]sighting, records []mock.Record, truth mock.Config) *Certificate {
	c := &Certificate{}
	var first, gap, byToken, whole, late errorSeries
	unmatched := len(seen)
	for i := range records {
		rec := &records[i]
		s := seen[rec.ID]
		at := s.at
		c.Coalesced += s.coalesced
		if at == nil || len(at) != len(rec.WriteNS) {
			continue
		}
		unmatched--
		for j, w := range rec.WriteNS {
			late = append(late, float64(w-rec.DueNS-int64(j)*truth.ITL.Nanoseconds()))
			if j == 0 {
				first = append(first, float64(at[0]-w))
				whole = append(whole, float64(at[0]-s.sentNS-(w-rec.ArrivedNS)))
				continue
			}
			gap = append(gap, float64(at[j]-at[j-1]-(w-rec.WriteNS[j-1])))
		}
		byToken = append(byToken, tokenErrors(at, rec.WriteNS)...)
	}
	c.Requests, c.Events = len(seen), len(late)
	c.TTFTError, c.ITLError, c.EventGapError = first.moments(), byToken.moments(), gap.moments()
	c.TTFTFromSend, c.MockLateness = whole.moments(), late.moments()
	c.TrueTTFT, c.TrueITL = float64(truth.TTFT)/1e6, float64(truth.ITL)/1e6
	if unmatched > 0 {
		c.Because = append(c.Because, fmt.Sprintf("%d of %d replies did not come as the mock server wrote them", unmatched, len(seen)))
	}
	return c
}

// tokenErrors are those of the times by token: at are the client's stamps of the tokens, wrote the
// server's. A read has the time of its last token, so that what it brought is as long as that took.
func tokenErrors(at, wrote []int64) errorSeries {
	var out errorSeries
	last := -1 // last token of the read before
	for i := range at {
		if i+1 < len(at) && at[i+1] == at[i] {
			continue
		}
		if k := i - last; last >= 0 {
			e := float64(at[i]-at[last]-(wrote[i]-wrote[last])) / float64(k)
			out = append(out, slices.Repeat(errorSeries{e}, k)...)
		}
		last = i
	}
	return out
}

func (c *Certificate) describe(sum *Summary, p *Plan, used time.Duration) {
	t := run.ThisTool()
	c.Version, c.Tool, c.At = certificateVersion, t.Version+" "+t.Revision, time.Now().UTC()
	c.Host, c.Kernel, c.CPUs = hostIdentity()
	c.Streams = p.cfg.Concurrency
	if p.Open() {
		c.Rate.Asked = sum.PlannedRate
		if c.Streams == 0 {
			c.Streams = sum.NewConns
		}
	}
	c.Rate.Achieved = sum.AchievedRate
	g := &sum.Generator
	us := func(v *float64) *float64 {
		if v == nil {
			return nil
		}
		w := *v * 1e3
		return &w
	}
	c.SendLag = Lags{N: g.Lag.N, P50: us(g.Lag.P50), P99: us(g.Lag.P99), Max: us(g.Lag.Max)}
	c.ReadLag, c.KernelStamped, c.IdleShare, c.Bound = g.ReadLag, g.EventsStamped, g.IdleShare, g.MaxLagMS
	if c.Events > 0 && used > 0 {
		v := float64(used.Microseconds()) / 1e3 / (float64(c.Events) / 1e4)
		c.CPUPer10k = &v
	}
	if len(c.Because) > 0 && sum.FirstError != "" {
		c.Because[0] += ": " + sum.FirstError
	}
	c.Because = append(append(c.Because, g.Because...), c.wrong()...)
	c.Valid = len(c.Because) == 0
}

// wrong says which errors are beyond the bound.
func (c *Certificate) wrong() []string {
	var out []string
	for _, e := range []struct {
		name string
		m    *Moments
	}{{"TTFT from send", &c.TTFTFromSend}, {"time by token", &c.ITLError}} {
		if c.Bound != nil && e.m.P99 != nil && *e.m.P99 > *c.Bound {
			out = append(out, fmt.Sprintf("one %s in a hundred is wrong by more than %.3f ms (n %d), the bound is %g ms: measure fewer streams or a lower rate on this host",
				e.name, *e.m.P99, e.m.N, *c.Bound))
		}
	}
	return out
}
