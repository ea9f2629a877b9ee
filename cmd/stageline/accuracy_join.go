package main

import (
	"slices"

	"github.com/stageline/stageline/correlate"
)

// arrivals scores the arrival of each input that crossed a process border.
func (s *scorer) arrivals(tv *truthVisit, found *foundVisit, errs *errorSet) {
	used := map[int]bool{}
	for _, a := range s.visible(tv) {
		var at correlate.Point
		if i := s.inputFrom(found, a.From, used); i >= 0 {
			used[i] = true
			at = s.inHand(&found.Inputs[i])
		}
		if !s.lacks(at, a.NS) {
			errs.boundary(at, a.NS, s.recorder)
		}
	}
}

// inHand is when an input was there in the sense of the truth log: once the application had it, as an
// engine's own recorder stamps it, or once the message was read.
func (s *scorer) inHand(in *correlate.Input) correlate.Point {
	if s.recorder || s.m.truth.inHand {
		return in.Held()
	}
	return in.At
}

// visible are the arrivals that did not come through memory, in order of time.
func (s *scorer) visible(tv *truthVisit) []truthArrival {
	out := make([]truthArrival, 0, len(tv.Arrivals))
	for _, a := range tv.Arrivals {
		if !s.throughMemory(tv, a.From) {
			out = append(out, a)
		}
	}
	slices.SortStableFunc(out, func(a, b truthArrival) int { return compareNS(a.NS, b.NS) })
	return out
}

func (s *scorer) throughMemory(tv *truthVisit, from string) bool {
	for _, h := range s.m.truth.hops[tv.Request] {
		if h.From == from && h.To == tv.Stage {
			return h.memory()
		}
	}
	return false
}

// inputFrom is the earliest unused input of a visit that can be from a truth stage, −1 if none.
func (s *scorer) inputFrom(v *foundVisit, from string, used map[int]bool) int {
	best := -1
	if v == nil {
		return best
	}
	for i := range v.Inputs {
		if used[i] || !slices.Contains(s.m.upstream(v, &v.Inputs[i]), from) {
			continue
		}
		if best < 0 || compareNS(v.Inputs[i].At.NS, v.Inputs[best].At.NS) < 0 {
			best = i
		}
	}
	return best
}

// upstream says which truth stages an input can be from: by the hop that brought it, which names a
// process, else by the stage's name.
func (m *matching) upstream(v *foundVisit, in *correlate.Input) []string {
	if in.Hop >= 0 && in.Hop < len(v.request.Hops) {
		h := &v.request.Hops[in.Hop]
		return m.truthNames(h.From, h.FromTGID)
	}
	return m.truthNames(in.From, 0)
}

// join judges a visit with two or more distinct upstreams: the report must have the same set of
// inputs and the same one last. A missed visit is wrong, too; one whose arrivals are not all known
// makes no claim and is counted apart.
func (s *scorer) join(tv *truthVisit, found *foundVisit) {
	arrivals := s.visible(tv)
	var from []string
	for _, a := range arrivals {
		if !slices.Contains(from, a.From) {
			from = append(from, a.From)
		}
	}
	if len(from) < 2 {
		return
	}
	lacking := found != nil && s.noOtherInputs(found, from) && !s.sameInputs(found, from)
	if lacking && found.request.InFlight && s.underWay {
		s.excused.Joins++
		return
	}
	s.joins++
	switch {
	case found == nil:
		s.wrongJoin(tv, "the visit is missed")
	case lacking && found.LossNear:
		s.unknownLast++
		s.example("joins unknown", "%s at %s: records were lost near it", tv.Request, tv.Stage)
	case lacking && found.request.InFlight:
		// What came in before the attach was not seen, and the report says so of the request.
		s.unknownLast++
		s.example("joins unknown", "%s at %s: in flight at attach", tv.Request, tv.Stage)
	case !s.sameInputs(found, from):
		s.wrongJoin(tv, "other inputs")
	case s.recorder && arrivals[len(arrivals)-1].NS == nil: // the log cannot tell which came last
	case slices.ContainsFunc(found.Inputs, func(in correlate.Input) bool { return in.At.NS == nil }):
		s.unknownLast++
		s.example("joins unknown", "%s at %s: an arrival is unknown", tv.Request, tv.Stage)
	case s.m.truth.inHand && found.Last() == nil:
		s.unknownLast++
		s.example("joins unknown", "%s at %s: either input may be the last", tv.Request, tv.Stage)
	default:
		last := slices.MaxFunc(found.Inputs, func(a, b correlate.Input) int { return compareNS(s.inHand(&a).NS, s.inHand(&b).NS) })
		if !slices.Contains(s.m.upstream(found, &last), arrivals[len(arrivals)-1].From) {
			s.wrongJoin(tv, "another input is last")
		}
	}
}

func (s *scorer) wrongJoin(tv *truthVisit, why string) {
	s.wrong++
	s.example("joins wrong", "%s at %s: %s", tv.Request, tv.Stage, why)
}

// sameInputs: every upstream of the truth has an input, and every input an upstream.
func (s *scorer) sameInputs(v *foundVisit, from []string) bool {
	for _, f := range from {
		if s.inputFrom(v, f, nil) < 0 {
			return false
		}
	}
	return s.noOtherInputs(v, from)
}

// noOtherInputs: every input of the visit is from an upstream of the truth.
func (s *scorer) noOtherInputs(v *foundVisit, from []string) bool {
	for i := range v.Inputs {
		if !slices.ContainsFunc(s.m.upstream(v, &v.Inputs[i]), func(n string) bool { return slices.Contains(from, n) }) {
			return false
		}
	}
	return true
}
