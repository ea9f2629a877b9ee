package loadgen

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Class is one kind of request in a mix.
type Class struct {
	Name        string
	Weight      float64
	Tenant      string
	PromptChars int // length of synthetic prompts; 0 as in Config
	MaxTokens   int // 0 as in Config
}

// ParseClass reads NAME=WEIGHT[,tenant=T][,prompt-chars=N][,max-tokens=N].
func ParseClass(s string) (Class, error) {
	bad := fmt.Errorf("class %q: want NAME=WEIGHT[,tenant=T][,prompt-chars=N][,max-tokens=N], as in short=3,prompt-chars=200", s)
	var c Class
	for i, part := range strings.Split(s, ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok || value == "" {
			return c, bad
		}
		var err error
		switch {
		case i == 0:
			c.Name = name
			c.Weight, err = strconv.ParseFloat(value, 64)
		case name == "tenant":
			c.Tenant = value
		case name == "prompt-chars":
			c.PromptChars, err = strconv.Atoi(value)
		case name == "max-tokens":
			c.MaxTokens, err = strconv.Atoi(value)
		default:
			return c, bad
		}
		if err != nil {
			return c, bad
		}
	}
	return c, c.check()
}

func (c Class) check() error {
	switch {
	case !idShaped(c.Name) || c.Name == classWarmup:
		return fmt.Errorf("class name %q: want letters, digits, '-', '_', '.' or ':', and not %q", c.Name, classWarmup)
	case c.Tenant != "" && !idShaped(c.Tenant):
		return fmt.Errorf("class %s: tenant %q: want letters, digits, '-', '_', '.' or ':'", c.Name, c.Tenant)
	case !(c.Weight > 0 && c.Weight < 1e9):
		return fmt.Errorf("class %s: weight %v: want a number above 0", c.Name, c.Weight)
	case c.PromptChars < 0 || c.MaxTokens < 0:
		return fmt.Errorf("class %s: counts must not be negative", c.Name)
	}
	return nil
}

// classOf picks the class of a request by weight.
func classOf(cs []Class, u float64) *Class {
	total := 0.0
	for i := range cs {
		total += cs[i].Weight
	}
	u *= total
	for i := range cs {
		if u -= cs[i].Weight; u < 0 {
			return &cs[i]
		}
	}
	return &cs[len(cs)-1] // u is just below 1 and the subtractions have rounded
}

// IntRange is drawn from uniformly, both ends included.
type IntRange struct{ Lo, Hi int }

// ParseIntRange reads N or LO..HI.
func ParseIntRange(s string) (IntRange, error) {
	lo, hi, ok := strings.Cut(s, "..")
	if !ok {
		hi = lo
	}
	a, errA := strconv.Atoi(lo)
	b, errB := strconv.Atoi(hi)
	if errA != nil || errB != nil || a < 0 || b < a {
		return IntRange{}, fmt.Errorf("%q: want a count or LO..HI, as in 3 or 2..6", s)
	}
	return IntRange{a, b}, nil
}

func (r IntRange) draw(u float64) int { return r.Lo + int(u*float64(r.Hi-r.Lo+1)) }

// DurationRange is drawn from uniformly.
type DurationRange struct{ Lo, Hi time.Duration }

// ParseDurationRange reads DURATION or LO..HI.
func ParseDurationRange(s string) (DurationRange, error) {
	lo, hi, ok := strings.Cut(s, "..")
	if !ok {
		hi = lo
	}
	a, errA := time.ParseDuration(lo)
	b, errB := time.ParseDuration(hi)
	if errA != nil || errB != nil || a < 0 || b < a {
		return DurationRange{}, fmt.Errorf("%q: want a duration or LO..HI, as in 2s or 1s..5s", s)
	}
	return DurationRange{a, b}, nil
}

func (r DurationRange) draw(u float64) int64 {
	return int64(r.Lo) + int64(u*float64(r.Hi-r.Lo))
}
