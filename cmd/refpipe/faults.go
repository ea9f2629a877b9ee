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
		factor, err := strconv.ParseFloat(parts[1], 64)
		if err != nil || factor <= 0 {
			return fmt.Errorf("slow stage factor %q: want a number above 0", parts[1])
		}
		s.Service.BaseUS = int(float64(s.Service.BaseUS) * factor)
		return nil
	case kind == "hop" && len(parts) == 3:
		from, err := t.StageByName(parts[0])
		if err != nil {
			return err
		}
		to, err := t.StageByName(parts[1])
		if err != nil {
			return err
		}
		ms, err := strconv.Atoi(parts[2])
		if err != nil || ms <= 0 {
			return fmt.Errorf("slow hop delay %q: want milliseconds above 0", parts[2])
		}
		e := t.EdgeOf(from.Index, to.Index)
		if e == nil || e.Carrier == CarrierMemory {
			return fmt.Errorf("slow hop %s to %s: no edge between processes there", parts[0], parts[1])
		}
		f.SlowFrom, f.SlowTo, f.SlowMS = from.Index, to.Index, ms
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
