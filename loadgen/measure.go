package loadgen

import (
	"math"

	"github.com/stageline/stageline/collector/run"
)

// Standing says what a figure of one request is.
type Standing uint8

const (
	None          Standing = iota // not asked of this request
	Known                         // Value is it
	Failed                        // the request failed: never reached, so later than anything
	NotApplicable                 // the request has no such thing
	Unknown                       // it has one, and nobody stated what is needed for it
)

// Figure is one figure of one request: nanoseconds, or millionths where it is a ratio or a count.
type Figure struct {
	Value    int64
	Standing Standing
}

func known(v int64) Figure { return Figure{v, Known} }

func ratio(v float64) Figure { return known(int64(math.Round(v * 1e6))) }

// Zeroes is a figure from both zero points: the first write of the request, and its planned time.
type Zeroes struct {
	Send, Plan Figure
}

// Expect is what the replies of a plan are expected to have.
type Expect struct {
	Streamed, Text, Audio bool
}

func (c *Config) expects() Expect {
	audio := c.Client.Rule.Audio != ""
	for _, m := range c.uses() {
		audio = audio || m == ModalityAudioOut
	}
	return Expect{
		Streamed: c.Stream || c.Reply == ReplySpeech || c.Reply == ReplyAny,
		Text:     c.Reply != ReplySpeech,
		Audio:    audio,
	}
}

// Measures are the figures of one attempt. Their definitions are in Definitions.
type Measures struct {
	First, TTFT, Answer, TTFA, JCT, RTF Zeroes

	TPOT, MaxGap, GapCV          Figure
	Underruns, Stall, LongestGap Figure // Stall and LongestGap: of the playback
	ITLStanding                  Figure

	Gaps      []int64 // between reads with content
	ITLs      []int64 // one for each token but those of the first read
	Coalesced int     // events with content that share their read with one before
}

// Measure takes the figures from the record of one attempt.
func Measure(r *run.Request, want Expect) Measures {
	var m Measures
	s := scan(r)
	m.Coalesced = s.coalesced
	m.First = reached(r, r.FirstNS, Known)
	m.TTFT = reached(r, s.firstText, standing(want.Streamed && want.Text))
	m.Answer = reached(r, s.firstAnswer, standing(want.Streamed && want.Text))
	m.JCT = completed(r)
	m.audio(r, want)
	if !want.Streamed {
		m.First = reached(r, nil, NotApplicable)
		m.TPOT, m.ITLStanding, m.MaxGap, m.GapCV = na(r), na(r), na(r), na(r)
		return m
	}
	m.perToken(r, &s)
	m.Gaps = s.gaps
	m.MaxGap, m.GapCV = s.spread(r)
	return m
}

func standing(asked bool) Standing {
	if asked {
		return Known
	}
	return NotApplicable
}

// done says whether the attempt came to its end, whatever its output is worth.
func done(r *run.Request) bool {
	return r.State == run.StateSuccess || r.State == run.StateQualityFailed
}

// absent is the figure of an attempt that did not come to its end: one that the client itself gave up
// has none, as has a modality that the model lacks.
func absent(r *run.Request) Figure {
	switch r.State {
	case run.StateClientCancelled:
		return Figure{}
	case run.StateNotApplicable:
		return Figure{0, NotApplicable}
	}
	return Figure{0, Failed}
}

func na(r *run.Request) Figure {
	if r.State == run.StateClientCancelled {
		return Figure{}
	}
	return Figure{0, NotApplicable}
}

// reached is the time of a moment of the reply. asked is NotApplicable where the plan has no such
// moment; otherwise a reply without it has none either.
func reached(r *run.Request, at *int64, asked Standing) Zeroes {
	switch {
	case asked == NotApplicable:
		return both(r, na(r))
	case !done(r) && (r.State != run.StateClientCancelled || at == nil):
		return both(r, absent(r))
	case at == nil:
		return both(r, na(r))
	}
	return since(r, *at)
}

func completed(r *run.Request) Zeroes {
	if !done(r) || r.EndNS == nil {
		return both(r, absent(r))
	}
	return since(r, *r.EndNS)
}

// both gives one standing to both zero points; a closed loop has no plan.
func both(r *run.Request, f Figure) Zeroes {
	z := Zeroes{Send: f}
	if r.PlannedNS != nil {
		z.Plan = f
	}
	return z
}

func since(r *run.Request, at int64) Zeroes {
	var z Zeroes
	if r.SentNS != nil {
		z.Send = known(at - *r.SentNS)
	}
	if r.PlannedNS != nil {
		z.Plan = known(at - *r.PlannedNS)
	}
	return z
}

// scanned is one pass over the events of a reply.
type scanned struct {
	firstText, lastText, firstAnswer *int64

	gaps      []int64
	reads     []textRead
	events    int // with text
	counted   int // of these, with tokens stated by the server
	coalesced int
}

// textRead is the text that one read completed.
type textRead struct {
	at             int64
	events, tokens int
}

func isContent(kind string) bool { return kind == "content" || kind == "reasoning" || kind == "audio" }

func scan(r *run.Request) scanned {
	var s scanned
	last, paused := int64(0), false
	for i := range r.Events {
		e := &r.Events[i]
		if e.Kind == "paused" || e.Kind == "resumed" {
			paused = true // a gap that the client made is none of the server's
		}
		if !isContent(e.Kind) {
			continue
		}
		if e.MonoNS == last {
			s.coalesced++
		} else {
			if last != 0 && !paused {
				s.gaps = append(s.gaps, e.MonoNS-last)
			}
			last, paused = e.MonoNS, false
		}
		if e.Kind != "audio" {
			s.text(e)
		}
	}
	return s
}

func (s *scanned) text(e *run.ReplyEvent) {
	at := e.MonoNS
	if s.firstText == nil {
		s.firstText = &at
	}
	if s.firstAnswer == nil && e.Kind == "content" {
		s.firstAnswer = &at
	}
	s.lastText = &at
	if n := len(s.reads); n == 0 || s.reads[n-1].at != at {
		s.reads = append(s.reads, textRead{at: at})
	}
	read := &s.reads[len(s.reads)-1]
	read.events++
	read.tokens += e.Tokens
	s.events++
	if e.Tokens > 0 {
		s.counted++
	}
}

// perToken gives the mean time per token of the request and the times by token. A read that brought
// several tokens after a gap stands for that many equal times; where it is not known how many tokens
// a read brought, there are none.
func (m *Measures) perToken(r *run.Request, s *scanned) {
	switch {
	case !done(r):
		m.TPOT, m.ITLStanding = absent(r), absent(r)
		return
	case s.firstText == nil:
		m.TPOT, m.ITLStanding = na(r), na(r)
		return
	case r.Tokens == nil:
		m.TPOT, m.ITLStanding = Figure{0, Unknown}, Figure{0, Unknown}
		return
	case *r.Tokens <= 1:
		m.TPOT, m.ITLStanding = na(r), na(r)
		return
	}
	m.TPOT, m.ITLStanding = Figure{0, Unknown}, Figure{0, Unknown}
	if len(s.reads) < 2 { // all in one read: there is no time between them
		return
	}
	m.TPOT = known((*s.lastText - *s.firstText) / (*r.Tokens - 1))
	one := int64(s.events) == *r.Tokens
	if !one && s.counted != s.events {
		return
	}
	m.ITLStanding = Figure{0, Known}
	for i := 1; i < len(s.reads); i++ {
		n := s.reads[i].tokens
		if one {
			n = s.reads[i].events
		}
		for range n {
			m.ITLs = append(m.ITLs, (s.reads[i].at-s.reads[i-1].at)/int64(n))
		}
	}
}

// spread is the largest gap between reads with content and their coefficient of variation.
func (s *scanned) spread(r *run.Request) (largest, cv Figure) {
	switch {
	case !done(r):
		return absent(r), absent(r)
	case len(s.gaps) == 0:
		return na(r), na(r)
	}
	n, sum, square := float64(len(s.gaps)), 0.0, 0.0
	top := int64(0)
	for _, g := range s.gaps {
		top = max(top, g)
		sum += float64(g)
	}
	mean := sum / n
	for _, g := range s.gaps {
		square += (float64(g) - mean) * (float64(g) - mean)
	}
	largest, cv = known(top), na(r)
	if len(s.gaps) > 1 && mean > 0 {
		cv = ratio(math.Sqrt(square/n) / mean)
	}
	return largest, cv
}

// audio gives TTFA, RTF and the playback's underruns.
func (m *Measures) audio(r *run.Request, want Expect) {
	if !want.Audio && r.Audio == nil {
		z := both(r, na(r))
		m.TTFA, m.RTF, m.Underruns, m.Stall, m.LongestGap = z, z, na(r), na(r), na(r)
		return
	}
	if !done(r) {
		m.TTFA = both(r, absent(r))
		if a := r.Audio; r.State == run.StateClientCancelled && a != nil {
			m.TTFA = reached(r, a.FirstPlayableNS, Known)
		}
		m.RTF, m.Underruns, m.Stall, m.LongestGap = both(r, absent(r)), absent(r), absent(r), absent(r)
		return
	}
	unknown := Figure{0, Unknown}
	a := r.Audio
	if a == nil || a.Samples == nil || a.SampleRate == nil || a.Changes > 0 {
		m.TTFA, m.RTF, m.Underruns, m.Stall, m.LongestGap = both(r, unknown), both(r, unknown), unknown, unknown, unknown
		if a != nil && a.FirstPlayableNS != nil {
			m.TTFA = since(r, *a.FirstPlayableNS)
		}
		return
	}
	m.TTFA = reached(r, a.FirstPlayableNS, Known)
	m.RTF = both(r, na(r))
	if seconds := float64(*a.Samples) / float64(*a.SampleRate); seconds > 0 {
		m.RTF = Zeroes{Send: over(m.JCT.Send, seconds), Plan: over(m.JCT.Plan, seconds)}
	}
	m.playback(r, a, want)
}

func over(f Figure, seconds float64) Figure {
	if f.Standing != Known {
		return f
	}
	return ratio(float64(f.Value) / 1e9 / seconds)
}

// playback plays the reply at its own speed from the first playable sample on, and counts how often
// and for how long it runs dry before the end.
func (m *Measures) playback(r *run.Request, a *run.Audio, want Expect) {
	if !want.Streamed || a.Channels == nil || a.Bits == nil || a.FirstPlayableNS == nil {
		m.Underruns, m.Stall, m.LongestGap = na(r), na(r), na(r)
		return
	}
	bytesPerSecond := float64(*a.SampleRate * *a.Channels * *a.Bits / 8)
	n, stalled, longest := int64(0), int64(0), int64(0)
	dryNS, before := int64(0), 0.0
	for i := range r.Events {
		e := &r.Events[i]
		if e.Kind != "audio" {
			continue
		}
		lasts := float64(e.Bytes) / bytesPerSecond * 1e9
		switch {
		case e.MonoNS < *a.FirstPlayableNS:
			before += lasts
			continue
		case dryNS == 0:
			dryNS = *a.FirstPlayableNS + int64(before)
		case e.MonoNS > dryNS:
			n++
			stalled += e.MonoNS - dryNS
			longest = max(longest, e.MonoNS-dryNS)
			dryNS = e.MonoNS
		}
		dryNS += int64(lasts)
	}
	m.Underruns, m.Stall, m.LongestGap = known(n*1e6), known(stalled), known(longest)
}
