package wire

import "github.com/stageline/stageline/collector/run"

// framings are tried in this order on streams whose beginning was not seen; the ones that ask for
// more evidence come last.
var framings = []*framing{pickleFraming, zmtpFraming, len4Framing, len8Framing}

const (
	// confirmAfter is how many messages after a guess still carry MsgGuessed.
	confirmAfter = 16
	// maxHeldCalls is how many calls are held while nothing is decided.
	maxHeldCalls = 32
	// maxSmallCalls is that limit for calls of a byte or two, and where the beginning is likely.
	maxSmallCalls   = 512
	maxSmallRefused = 16 // a multiple of lookEvery
	// lookEvery calls of a byte or two are looked at together once there are more than maxCandidates.
	lookEvery = 16
	// maxCandidates is how many calls are looked at each time one comes in.
	maxCandidates = 4
	// maxRefused is how many calls are held when none of them looks like anything known.
	maxRefused = 3
)

// become starts decoding at the current position.
func (s *stream) become(d decoder) {
	s.dec, s.mode, s.chains = d, modeFramed, nil
	_, other := s.conn.pair(s.dir)
	if other.dec == nil {
		other.follows(d)
	}
}

// follows tells a direction what the other one speaks.
func (s *stream) follows(d decoder) {
	if s.mode != modeUndecided && s.mode != modeOpaque {
		return
	}
	var mine decoder
	switch d := d.(type) {
	case *http1:
		mine = &http1{}
	case *framed:
		if d.f != zmtpFraming {
			return
		}
		mine = &framed{f: zmtpFraming}
	default:
		return
	}
	s.endBurst(0)
	s.dec, s.mode, s.seekCause, s.told = mine, modeSeeking, run.GapUnframed, true
}

// decide looks for a known protocol in what is held; final: without waiting for more.
func (s *stream) decide(final bool) bool {
	if s.tape.at().lost {
		s.tape.advance(s.tape.at().end)
		return true
	}
	if !final && s.tape.trickles() {
		return false
	}
	best, calls, candidates := no, 0, 0
	small := true
	for i := range s.tape.segs {
		g := &s.tape.segs[i]
		if g.lost {
			continue
		}
		calls++
		small = small && g.end-g.pos <= wakeLen
		if g.refused || candidates == maxCandidates {
			continue
		}
		candidates++
		p := g.pos
		d, st := s.detect(p)
		if st == sure {
			s.seekCause = run.GapUnframed
			s.dropTo(p)
			s.flushGap()
			s.become(d)
			return true
		}
		g.refused = st == no
		if i > 0 {
			st = min(st, maybe)
		}
		best = max(best, st)
	}
	limit := [...]int{no: maxRefused, maybe: maxHeldCalls, likely: maxSmallCalls}[best]
	switch {
	case small && s.tape.segs[0].refused:
		limit = maxSmallRefused
	case small:
		limit = maxSmallCalls
	}
	if !final && calls < limit && s.tape.held() < maxUndecided {
		return false
	}
	s.becomeOpaque()
	return true
}

func (s *stream) becomeOpaque() { s.mode = modeOpaque }

// trickles: all that is held are many calls of a byte or two, as signals between threads are, and
// their number is not one at which to look again.
func (t *tape) trickles() bool {
	if n := len(t.segs); n <= maxCandidates || n%lookEvery == 0 {
		return false
	}
	for i := range t.segs {
		if g := &t.segs[i]; g.lost || g.end-g.pos > wakeLen {
			return false
		}
	}
	return true
}

// detect says what the call at p begins with.
func (s *stream) detect(p uint64) (decoder, sureness) {
	t := &s.tape
	g := greetingAt(t, p)
	if g == sure {
		return &framed{f: zmtpFraming, greeting: true}, sure
	}
	h := httpAt(t, p)
	if h == sure {
		return &http1{}, sure
	}
	if eventAt(t, p) {
		s.guesses = confirmAfter
		return midReply(), sure
	}
	best := max(g, h)
	for _, f := range framings {
		e := f.walk(t, p)
		if f.proves(e) {
			if f != pickleFraming {
				s.guesses = confirmAfter
			}
			return &framed{f: f}, sure
		}
		if !e.bad && e.more {
			best = max(best, maybe)
		}
	}
	l := linesAt(t, p)
	if l == sure {
		return &ndjson{}, sure
	}
	return nil, max(best, l)
}

// recognise looks for an unmistakable beginning at a call of an opaque stream.
func (s *stream) recognise(g segment) bool {
	switch {
	case httpAt(&s.tape, g.pos) == sure:
		s.endBurst(0)
		s.become(&http1{})
	case greetingAt(&s.tape, g.pos) == sure:
		s.endBurst(0)
		s.become(&framed{f: zmtpFraming, greeting: true})
	case eventAt(&s.tape, g.pos):
		s.endBurst(0)
		s.guesses = confirmAfter
		s.become(midReply())
	default:
		return false
	}
	return true
}
