package loadgen

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// maxRate bounds the requests per second of an open loop.
const maxRate = 1e6

// DefaultMaxLag is the bound on the generator's own lateness where none is declared: a tenth of what
// people notice, a few per cent of a time to first token of some hundred milliseconds.
const DefaultMaxLag = 10 * time.Millisecond

// Schedule says what is sent when, beyond a rate and a number. The zero value adds nothing.
type Schedule struct {
	Burstiness float64   // k of gamma arrivals: CV² = 1/k; 0 is 1
	Shape      []Segment // rate over time instead of a constant Rate; the load ends with it
	ShapeCycle bool      // repeat the shape until N or Duration ends the load

	Classes []Class // mix of kinds of requests; nil is one kind

	// Turns makes each arrival a conversation of so many turns; a later turn follows the end of the
	// reply before it by TurnGap, and its prompt begins with that of the turn before. In closed loop,
	// Concurrency counts conversations.
	Turns   IntRange
	TurnGap DurationRange

	SharedPrefix int // characters that all synthetic prompts begin with

	Replay      string  // file to replay: a frozen plan, Mooncake JSON lines or a BurstGPT table
	ReplaySpeed float64 // times of a foreign trace are divided by this; 0 is 1

	MaxLag time.Duration // the run is invalid when the generator's p99 lag is above; 0: no bound
}

// openLoop says whether send times are fixed by the configuration.
func (c *Config) openLoop() bool { return c.Rate > 0 || len(c.Shape) > 0 || c.Replay != "" }

// checkUnused refuses what would have no effect: a load that is not the one asked for must not look
// like it. It is called before defaults are filled in.
func (c *Config) checkUnused() error {
	switch {
	case c.ShapeCycle && len(c.Shape) == 0:
		return errors.New("load plan: nothing to repeat: give rates over time, as in 100x2s,0x8s")
	case (c.Arrival != "" || c.Burstiness != 0) && (c.Replay != "" || !c.openLoop()):
		return errors.New("load plan: arrival and burstiness space the requests of a rate: give a rate or rates over time")
	case c.TurnGap.Hi > 0 && c.Turns.Hi == 0:
		return errors.New("load plan: a gap between turns needs conversations: give a number of turns")
	case c.ReplaySpeed != 0 && c.ReplaySpeed != 1 && c.Replay == "":
		return errors.New("load plan: a speed belongs to a replayed trace: give the trace")
	}
	return nil
}

func (c *Config) normaliseSchedule() {
	if c.Arrival == "" {
		c.Arrival = ArrivalPoisson
		if c.Burstiness > 0 {
			c.Arrival = ArrivalGamma
		}
	}
	if c.Burstiness == 0 {
		c.Burstiness = 1
	}
	if c.ReplaySpeed == 0 {
		c.ReplaySpeed = 1
	}
	if !c.openLoop() && c.Concurrency == 0 {
		c.Concurrency = 1
	}
}

func (c *Config) checkSchedule() error {
	for _, k := range c.Classes {
		if err := k.check(); err != nil {
			return fmt.Errorf("load plan: %w", err)
		}
	}
	if err := checkShape(c.Shape); err != nil {
		return fmt.Errorf("load plan: %w", err)
	}
	switch {
	case !(c.Rate >= 0 && c.Rate <= maxRate):
		return fmt.Errorf("load plan: rate %v: want requests per second above 0 and at most 1e6, or 0 for a closed loop", c.Rate)
	case c.Rate > 0 && len(c.Shape) > 0:
		return errors.New("load plan: give a rate or rates over time, not both")
	case c.Replay != "" && (c.Rate > 0 || len(c.Shape) > 0 || len(c.Classes) > 0 || c.Turns.Hi > 0):
		return errors.New("load plan: a trace says itself what is sent when: leave out rates, classes and turns")
	case c.N == 0 && c.Duration == 0 && c.Replay == "" && (len(c.Shape) == 0 || c.ShapeCycle):
		return errors.New("load plan: give a number of requests or a duration")
	case c.Arrival != ArrivalPoisson && c.Arrival != ArrivalConstant && c.Arrival != ArrivalGamma:
		return fmt.Errorf("load plan: arrival %q: want %s, %s or %s", c.Arrival, ArrivalPoisson, ArrivalConstant, ArrivalGamma)
	case !(c.Burstiness >= 0.01 && c.Burstiness <= 1e6):
		return fmt.Errorf("load plan: burstiness %v: want 0.01 … 1e6 (1 is Poisson, more is more even)", c.Burstiness)
	case c.Burstiness != 1 && c.Arrival != ArrivalGamma:
		return fmt.Errorf("load plan: burstiness belongs to %s arrivals, not to %s", ArrivalGamma, c.Arrival)
	case !(c.ReplaySpeed > 0 && c.ReplaySpeed <= 1e6):
		return fmt.Errorf("load plan: trace speed %v: want a factor above 0", c.ReplaySpeed)
	case c.Turns.Lo < 0 || c.Turns.Hi < c.Turns.Lo || c.Turns.Hi > 0 && c.Turns.Lo == 0:
		return errors.New("load plan: turns: want at least 1, as in 3 or 2..6")
	case c.TurnGap.Lo < 0 || c.TurnGap.Hi < c.TurnGap.Lo || c.SharedPrefix < 0 || c.MaxLag < 0:
		return errors.New("load plan: gaps, lengths and bounds must not be negative")
	}
	return c.checkMaxTokens()
}

// checkMaxTokens refuses a mix in which some requests state a length and others cannot leave it out.
func (c *Config) checkMaxTokens() error {
	some, all := false, true
	for _, k := range c.Classes {
		some = some || k.MaxTokens > 0
		all = all && k.MaxTokens > 0
	}
	if some && !all && c.MaxTokens == 0 {
		return errors.New("load plan: some classes state max-tokens: state it for all, or a default for the others")
	}
	return nil
}

// maxTokens is the value of max_tokens in a body template, "" when it is not sent.
func (c *Config) maxTokens() string {
	switch {
	case c.statesTokens:
		return "{{max_tokens}}"
	case c.MaxTokens > 0:
		return strconv.Itoa(c.MaxTokens)
	}
	return ""
}
