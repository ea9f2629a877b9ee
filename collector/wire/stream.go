package wire

import "github.com/stageline/stageline/collector/run"

// mode is what one direction of a Conn is doing.
type mode uint8

const (
	modeUndecided mode = iota // the protocol is not known; bytes are held
	modeFramed                // a decoder follows the frames
	modeSeeking               // the protocol is known, the framing is lost
	modeOpaque                // no known protocol: bursts
)

// result is what a decoder says after a step.
type result uint8

const (
	stepAgain  result = iota // progress was made
	stepMore                 // more of the stream is needed
	stepBad                  // the bytes are not what the protocol allows
	stepHole                 // the framing lies in bytes that are missing
	stepOpaque               // from here on the stream is of no known protocol
)

// decoder follows the frames of one direction. It reads from s.tape and emits through s.emit.
type decoder interface {
	proto() string
	step(s *stream) result
	// resume reports whether a frame begins at p, by strict rules; more: not enough bytes to say.
	resume(s *stream, p uint64) (ok, more bool)
	// reset forgets a message in progress.
	reset(s *stream)
}

// stream is one direction of a Conn.
type stream struct {
	conn  *Conn
	dir   run.Dir
	order reorder
	tape  tape
	mode  mode
	dec   decoder

	open      bool   // a message has begun
	openPos   uint64 // its first byte
	openCall  call
	strayed   bool         // bytes were passed over since the framing was lost
	resynced  bool         // the next message is the first after a resynchronisation
	guesses   int          // messages that still count as guessed
	seekCause run.GapCause // why the framing was lost
	told      bool         // the other direction said what is spoken: look at held bytes again

	held    run.Message // last message, until it is known whether the next shares its call
	isHeld  bool
	heldEnd uint64 // end of its last call
	gap     run.Gap
	isGap   bool

	burst  burst
	chains []chain
}

func (s *stream) init(c *Conn, dir run.Dir) { s.conn, s.dir = c, dir }

// feed puts a segment in order and decodes what has become continuous.
func (s *stream) feed(g segment) {
	r := &s.order
	if !r.known {
		r.known = true
		// Positions that are not the kernel's own count from the first byte after attach.
		if s.conn.ep.PosAbsolute || g.pos > MaxReorder {
			r.next = g.pos
		}
		s.tape.pos, s.tape.end = r.next, r.next
	}
	if !g.trim(r.next) {
		r.late++
		return
	}
	if g.pos == r.next && len(r.pending) == 0 {
		r.next = g.end
		s.append(g)
		return
	}
	r.put(g)
	for {
		g, ok := r.pop(r.over())
		if !ok {
			return
		}
		s.append(g)
	}
}

// giveUp declares every hole lost.
func (s *stream) giveUp() {
	for {
		g, ok := s.order.pop(true)
		if !ok {
			return
		}
		s.append(g)
	}
}

// giveUpBefore declares holes lost whose later calls returned before ns.
func (s *stream) giveUpBefore(ns int64) {
	if t := s.order.oldest(); t != 0 && t < ns {
		s.giveUp()
	}
}

// append puts the next segment on the tape and runs the decoder.
func (s *stream) append(g segment) {
	if g.lost {
		s.conn.stats.Lost++
		s.flush()
		s.flushGap()
		s.conn.out.Gap(&run.Gap{EP: s.conn.ep.ID, Dir: s.dir, Pos: g.pos, End: g.end, AtNS: s.tape.prev.exit, Cause: run.GapLost})
	}
	s.tape.add(g)
	for s.work() {
	}
	if !g.owned {
		// Segments appended before this one were copied by an earlier settle or put.
		s.tape.retain()
	}
}

// work does one step; false: nothing to do until more arrives.
func (s *stream) work() bool {
	if s.mode == modeFramed {
		return s.follow()
	}
	if s.tape.empty() {
		return false
	}
	switch s.mode {
	case modeUndecided:
		return s.decide(false)
	case modeSeeking:
		return s.seek()
	default:
		return s.opaque()
	}
}

func (s *stream) follow() bool {
	switch s.dec.step(s) {
	case stepAgain:
		return true
	case stepMore:
		return false
	case stepHole:
		s.lose(run.GapCapture)
	case stepBad:
		s.lose(run.GapUnframed)
	case stepOpaque:
		s.dec, s.mode, s.open = nil, modeOpaque, false
	}
	return true
}

// begin marks the next byte as the first of a message.
func (s *stream) begin() {
	s.open, s.openPos, s.openCall = true, s.tape.pos, s.tape.at()
}

// lose gives up the framing at the current position. What was read of an unfinished message
// belongs to the gap.
func (s *stream) lose(cause run.GapCause) {
	s.flush()
	if !s.tape.empty() && s.tape.at().lost {
		cause = run.GapUnframed
	}
	if s.open && s.openPos < s.tape.pos {
		s.addGap(s.openPos, s.tape.pos, cause, s.openCall.exit)
	}
	s.open = false
	s.dec.reset(s)
	s.mode, s.seekCause, s.strayed = modeSeeking, cause, true
	s.dropTo(s.nextStart())
}

// nextStart is the start of the next call after the current position, or the end of the tape.
func (s *stream) nextStart() uint64 {
	if p, ok := s.tape.nextCall(s.tape.pos); ok {
		return p
	}
	return s.tape.end
}

// seek looks for a call that starts with a frame.
func (s *stream) seek() bool {
	if s.tape.at().lost || s.tape.pos != s.tape.at().pos {
		s.dropTo(s.nextStart())
		return true
	}
	ok, more := s.dec.resume(s, s.tape.pos)
	if ok {
		s.flushGap()
		s.mode = modeFramed
		if s.strayed {
			s.conn.stats.Resyncs++
			s.strayed, s.resynced = false, true
		}
		return true
	}
	if more && s.tape.held() < maxUndecided {
		return false
	}
	s.dropTo(s.nextStart())
	return true
}

// dropTo consumes bytes that no message covers. Lost ones have their gap already.
func (s *stream) dropTo(p uint64) {
	for {
		k, ok := s.tape.take(p)
		if !ok {
			return
		}
		s.strayed = s.mode == modeSeeking
		if !k.call.lost {
			s.addGap(k.pos, k.pos+k.n, s.seekCause, k.call.exit)
		}
	}
}

// addGap extends the current gap or begins another.
func (s *stream) addGap(pos, end uint64, cause run.GapCause, atNS int64) {
	if s.isGap && s.gap.End == pos && s.gap.Cause == cause {
		s.gap.End = end
		return
	}
	s.flushGap()
	s.isGap = true
	s.gap = run.Gap{EP: s.conn.ep.ID, Dir: s.dir, Pos: pos, End: end, AtNS: atNS, Cause: cause}
}

func (s *stream) flushGap() {
	if s.isGap {
		s.isGap = false
		s.conn.out.Gap(&s.gap)
	}
}

// emit completes a message that began with first and ended in last.
func (s *stream) emit(m *run.Message, first, last call) {
	s.flushGap()
	if s.isHeld && m.Pos < s.heldEnd {
		s.held.Flags |= run.MsgCoalesced
	}
	s.flush()
	m.EP, m.Dir = s.conn.ep.ID, s.dir
	m.FirstEnterNS, m.FirstExitNS = first.enter, first.exit
	m.LastEnterNS, m.LastExitNS = last.enter, last.exit
	m.TGID, m.TID = last.tgid, last.tid
	m.Decoder = s.conn.rules.name
	if !first.lost && first.enter == 0 || !last.lost && last.enter == 0 {
		m.Flags |= run.MsgInFlight
	}
	if m.Flags&run.MsgTruncated != 0 {
		s.conn.stats.Truncated++
	}
	if s.resynced {
		s.resynced = false
		m.Flags |= run.MsgResynced
	}
	if s.guesses > 0 && m.Proto != "burst" {
		s.guesses--
		m.Flags |= run.MsgGuessed
	}
	if m.Flags&run.MsgGuessed != 0 {
		s.conn.stats.Guessed++
	}
	s.held, s.isHeld, s.heldEnd = *m, true, last.end
}

// flush hands the last message on. By now all that its last call brought has been looked at.
func (s *stream) flush() {
	if !s.isHeld {
		return
	}
	s.isHeld = false
	rest := s.mode == modeFramed && !s.tape.empty() && s.tape.pos < s.heldEnd
	if rest || s.open && s.openPos < s.heldEnd {
		s.held.Flags |= run.MsgCoalesced
	}
	s.conn.out.Message(&s.held)
	s.held = run.Message{}
}

// close ends the direction: holes are given up, undecided bytes are decided without waiting.
func (s *stream) close() {
	s.giveUp()
	if s.mode == modeUndecided && !s.tape.empty() {
		s.decide(true)
		for s.work() {
		}
	}
	if s.mode == modeSeeking {
		s.dropTo(s.tape.end)
	}
}

// drop lets go of held bytes to save memory.
func (s *stream) drop() {
	if s.tape.empty() {
		return
	}
	switch s.mode {
	case modeUndecided:
		s.becomeOpaque()
		for s.work() {
		}
	case modeFramed:
		s.lose(run.GapUnframed)
	case modeSeeking:
		s.dropTo(s.tape.end)
	}
}

// idle ends what only waits for time to pass.
func (s *stream) idle(nowNS int64) {
	if s.mode == modeUndecided && !s.tape.empty() && nowNS-s.tape.segs[len(s.tape.segs)-1].exit > int64(HoleAge) {
		s.decide(true)
		for s.work() {
		}
	}
	if nowNS-s.burst.last.exit > int64(BurstIdle) {
		s.endBurst(nowNS)
	}
	s.flush()
	s.flushGap()
}
