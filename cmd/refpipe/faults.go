package main

import (
	"fmt"
	"strconv"
	"strings"
)

// Faults are the settings that make a run worse on purpose.
type Faults struct {
	SlowFrom, SlowTo, SlowMS int // slow hop; SlowMS 0: none
	StallStage               int // 0: none
	KillStage, KillAfter     int // KillStage 0: none
	DropChunk                int // -1: none
	RepeatSamples            bool
	BigFrom, BigTo, BigMB    int // payload that is serialised byte by byte; BigMB 0: none
}

// applySlow reads one --slow value: stage=NAME:FACTOR or hop=FROM:TO:MS.
func (f *Faults) applySlow(t *Topology, v string) error {
	kind, rest, _ := strings.Cut(v, "=")
	parts := strings.Split(rest, ":")
	switch {
	case kind == "stage" && len(parts) == 2:
		s, err := t.StageByName(parts[0])
		if err != nil {
			return err
		}
		if s.Index == 0 {
			return fmt.Errorf("slow stage %s: the entry computes nothing that could be slow", parts[0])
		}
		factor, err := strconv.ParseFloat(parts[1], 64)
		if err != nil || factor <= 0 {
			return fmt.Errorf("slow stage factor %q: want a number above 0", parts[1])
		}
		s.Service.BaseUS = int(float64(s.Service.BaseUS) * factor)
		s.Service.PerSeqUS = int(float64(s.Service.PerSeqUS) * factor)
		return nil
	case kind == "hop" && len(parts) == 3:
		ms, err := strconv.Atoi(parts[2])
		if err != nil || ms <= 0 {
			return fmt.Errorf("slow hop delay %q: want milliseconds above 0", parts[2])
		}
		e, err := t.crossing(parts[0], parts[1])
		if err != nil {
			return fmt.Errorf("slow hop: %w", err)
		}
		f.SlowFrom, f.SlowTo, f.SlowMS = e.From, e.To, ms
		return nil
	}
	return fmt.Errorf("slow %q: want stage=NAME:FACTOR or hop=FROM:TO:MS", v)
}

func (f *Faults) applyKill(t *Topology, v string) error {
	name, after, ok := strings.Cut(v, ":")
	n, err := strconv.Atoi(after)
	if !ok || err != nil || n < 1 {
		return fmt.Errorf("kill worker %q: want STAGE:AFTER_N", v)
	}
	s, err := t.StageByName(name)
	if err != nil {
		return err
	}
	f.KillStage, f.KillAfter = s.Index, n
	return nil
}

// crossing finds the edge between two stages by their names; one inside a process is none.
func (t *Topology) crossing(fromName, toName string) (*Edge, error) {
	from, err := t.StageByName(fromName)
	if err != nil {
		return nil, err
	}
	to, err := t.StageByName(toName)
	if err != nil {
		return nil, err
	}
	e := t.EdgeOf(from.Index, to.Index)
	if e == nil || e.Carrier == CarrierMemory {
		return nil, fmt.Errorf("no edge between processes from %s to %s", fromName, toName)
	}
	return e, nil
}

// maxBigMB bounds the memory of the requests in flight.
const maxBigMB = 256

// applyBig reads FROM:TO:MB: what FROM sends to TO carries so much more, which FROM serialises byte
// by byte after its compute has finished. It needs an edge between two stages that tells its target.
func (f *Faults) applyBig(t *Topology, v string) error {
	parts := strings.Split(v, ":")
	if len(parts) != 3 {
		return fmt.Errorf("big payload %q: want FROM:TO:MB", v)
	}
	mb, err := strconv.Atoi(parts[2])
	if err != nil || mb < 1 || mb > maxBigMB {
		return fmt.Errorf("big payload size %q: want 1 to %d megabytes", parts[2], maxBigMB)
	}
	e, err := t.crossing(parts[0], parts[1])
	if err != nil {
		return fmt.Errorf("big payload: %w", err)
	}
	if e.From == 0 || e.To == 0 || e.Data == DataPolled {
		return fmt.Errorf("big payload %s: want two stages, and no polled edge between them", v)
	}
	f.BigFrom, f.BigTo, f.BigMB = e.From, e.To, mb
	return nil
}
