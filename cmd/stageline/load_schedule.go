package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/pflag"
	"github.com/stageline/stageline/loadgen"
)

// scheduleFlags adds the flags that say what is sent when; the returned function takes them over
// once fs is parsed.
func scheduleFlags(fs *pflag.FlagSet, c *loadgen.Config) func() error {
	var arrival, rates, turns, gap string
	var repeat bool
	var classes []string
	fs.Float64Var(&c.Rate, "rate", 0, "requests per second (open loop); with --turns, conversations")
	fs.StringVar(&rates, "rates", "", "rate over time instead: steps and ramps, as in 10x30s,10..100x60s,0x5s")
	fs.BoolVar(&repeat, "repeat", false, "repeat --rates until -n or -d ends the load (bursts: --rates 100x2s,0x8s --repeat)")
	fs.StringVar(&arrival, "arrival", "", "spacing of an open loop: poisson (default), constant or gamma")
	fs.Float64Var(&c.Burstiness, "burstiness", 0, "k of gamma arrivals: CV² of the gaps is 1/k; 1 is poisson, below is burstier")
	fs.StringArrayVar(&classes, "class", nil, "kind of request in a mix: NAME=WEIGHT[,tenant=T][,prompt-chars=N][,max-tokens=N]; repeatable")
	fs.StringVar(&turns, "turns", "", "each arrival is a conversation of N or LO..HI turns, each prompt beginning with the one before")
	fs.StringVar(&gap, "turn-gap", "0s", "from the end of a reply to the next turn, D or LO..HI")
	fs.IntVar(&c.SharedPrefix, "shared-prefix", 0, "characters that all synthetic prompts begin with")
	fs.StringVar(&c.Replay, "replay", "", "send what this file says: a plan of --plan-only, Mooncake JSON lines, or a BurstGPT table")
	fs.Float64Var(&c.ReplaySpeed, "replay-speed", 1, "divide the times of a foreign trace by this")
	fs.DurationVar(&c.MaxLag, "max-lag", loadgen.DefaultMaxLag, "the load is invalid (exit 5) when the p99 of the generator's own lag is above (closed loop: and leaves more than 1 % of -c unused); 0 for no bound")
	return func() error {
		c.Arrival = loadgen.Arrival(arrival)
		c.ShapeCycle = repeat
		if c.ReplaySpeed == 0 { // to the plan, 0 is a speed that was not given
			return fmt.Errorf("--replay-speed 0: want a factor above 0")
		}
		var err error
		if rates != "" {
			if c.Shape, err = loadgen.ParseShape(rates); err != nil {
				return err
			}
		}
		if turns != "" {
			if c.Turns, err = loadgen.ParseIntRange(turns); err != nil {
				return fmt.Errorf("turns %w", err)
			}
			if c.Turns.Lo == 0 {
				return fmt.Errorf("turns %q: want at least 1", turns)
			}
		}
		if c.TurnGap, err = loadgen.ParseDurationRange(gap); err != nil {
			return fmt.Errorf("turn gap %w", err)
		}
		for _, s := range classes {
			k, err := loadgen.ParseClass(s)
			if err != nil {
				return err
			}
			c.Classes = append(c.Classes, k)
		}
		return nil
	}
}

// makeRoom lets the scheduler run more threads than there are processors: the pacer's thread spins
// before a deadline, and must neither wait for a worker nor keep the only place of one.
func makeRoom() { runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), runtime.NumCPU()+2)) }
