package loadgen

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stageline/stageline/collector/run"
)

// SLO is what a request must keep to count as good. The zero value asks nothing.
type SLO struct {
	Bounds []Bound
	// FromSend takes times from the first write of the request; otherwise they are taken from the
	// planned time where there is one.
	FromSend bool
}

// Bound is the largest value that one figure may have.
type Bound struct {
	Name string
	Max  int64 // ns; of rtf and underruns millionths
}

// bounded are the figures that an SLO may bound.
var bounded = map[string]func(*Measures) Zeroes{
	"ttft":      func(m *Measures) Zeroes { return m.TTFT },
	"answer":    func(m *Measures) Zeroes { return m.Answer },
	"ttfa":      func(m *Measures) Zeroes { return m.TTFA },
	"jct":       func(m *Measures) Zeroes { return m.JCT },
	"rtf":       func(m *Measures) Zeroes { return m.RTF },
	"tpot":      func(m *Measures) Zeroes { return Zeroes{Send: m.TPOT} },
	"gap":       func(m *Measures) Zeroes { return Zeroes{Send: m.MaxGap} },
	"stall":     func(m *Measures) Zeroes { return Zeroes{Send: m.Stall} },
	"underruns": func(m *Measures) Zeroes { return Zeroes{Send: m.Underruns} },
}

// ParseSLO reads "ttft=500ms,tpot=50ms,rtf=1": durations, and plain numbers for rtf and underruns.
func ParseSLO(s string) (SLO, error) {
	var out SLO
	err := eachPair(s, func(k, v string) error {
		if bounded[k] == nil {
			return errors.New("want ttft, answer, ttfa, jct, tpot, gap, stall, rtf or underruns")
		}
		b := Bound{Name: k}
		if k == "rtf" || k == "underruns" {
			f, err := strconv.ParseFloat(v, 64)
			if err == nil && !(f >= 0 && f <= 1e9) {
				err = errors.New("want a number from 0 to 1e9")
			}
			b.Max = ratio(f).Value
			out.Bounds = append(out.Bounds, b)
			return err
		}
		d, err := time.ParseDuration(v)
		if err == nil && d <= 0 {
			err = errors.New("want a duration above 0")
		}
		b.Max = d.Nanoseconds()
		out.Bounds = append(out.Bounds, b)
		return err
	})
	if err != nil {
		return out, fmt.Errorf("SLO %.80q: %w", s, err)
	}
	return out, nil
}

func (s *SLO) String() string {
	var parts []string
	for _, b := range s.Bounds {
		v := time.Duration(b.Max).String()
		if b.Name == "rtf" || b.Name == "underruns" {
			v = strconv.FormatFloat(float64(b.Max)/1e6, 'g', -1, 64)
		}
		parts = append(parts, b.Name+"="+v)
	}
	return strings.Join(parts, ",")
}

// figure is the bounded figure from the SLO's zero point.
func (s *SLO) figure(name string, m *Measures) Figure {
	z := bounded[name](m)
	if z.Plan.Standing != None && !s.FromSend {
		return z.Plan
	}
	return z.Send
}

// Goodput counts requests that keep all bounds. A figure that does not apply to a request is no pass:
// such a request is not judged.
type Goodput struct {
	SLO       string       `json:"slo"`
	Zero      string       `json:"zero"` // "plan" or "send": where times count from
	Met       int          `json:"met"`
	Missed    int          `json:"missed"`     // a bound is not kept, or the request failed
	NotJudged int          `json:"not_judged"` // no bound missed, and at least one does not apply or is not known
	Share     *float64     `json:"share"`      // met ÷ (met + missed + not judged)
	PerSecond *float64     `json:"per_second"` // met ÷ time from the first send to the last end
	Bounds    []BoundCount `json:"bounds"`
}

// BoundCount is how one bound was kept.
type BoundCount struct {
	Name          string `json:"name"`
	Passed        int    `json:"passed"`
	Missed        int    `json:"missed"`
	NotApplicable int    `json:"not_applicable"`
	Unknown       int    `json:"unknown"`
}

type goodTally struct {
	slo    *SLO
	met    int
	missed int
	open   int
	bounds []BoundCount
}

func newGoodTally(slo *SLO) *goodTally {
	g := &goodTally{slo: slo}
	for _, b := range slo.Bounds {
		g.bounds = append(g.bounds, BoundCount{Name: b.Name})
	}
	return g
}

// add judges one request. One that the client gave up, and one of a modality that the model lacks, is
// in no count.
func (g *goodTally) add(r *run.Request, m *Measures) {
	if len(g.bounds) == 0 || r.State == run.StateClientCancelled || r.State == run.StateNotApplicable {
		return
	}
	missed, open := r.State != run.StateSuccess, false
	for i, b := range g.slo.Bounds {
		c := &g.bounds[i]
		f := g.slo.figure(b.Name, m)
		switch {
		case f.Standing == Failed, f.Standing == Known && f.Value > b.Max:
			c.Missed++
			missed = true
		case f.Standing == Known:
			c.Passed++
		case f.Standing == Unknown:
			c.Unknown++
			open = true
		default:
			c.NotApplicable++
			open = true
		}
	}
	switch {
	case missed:
		g.missed++
	case open:
		g.open++
	default:
		g.met++
	}
}

func (g *goodTally) result(open bool, seconds float64) *Goodput {
	if len(g.bounds) == 0 {
		return nil
	}
	out := &Goodput{SLO: g.slo.String(), Zero: "send", Met: g.met, Missed: g.missed, NotJudged: g.open, Bounds: slices.Clone(g.bounds)}
	if open && !g.slo.FromSend {
		out.Zero = "plan"
	}
	if n := g.met + g.missed + g.open; n > 0 {
		v := float64(g.met) / float64(n)
		out.Share = &v
	}
	if seconds > 0 {
		v := float64(g.met) / seconds
		out.PerSecond = &v
	}
	return out
}
