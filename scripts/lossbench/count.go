package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/stageline/stageline/collector/run"
)

// counts are what a run says of one load.
type counts struct {
	tgid uint32
	fds  []int

	received uint64 // records of the load's own calls
	lost     uint64 // records of calls, of any process recorded
	lostAll  uint64 // records of any kind
	other    uint64 // losses that are not a full ring
	losses   []run.Loss
	seqSent  uint64 // what the kernel says it handed to the ring, and what came out of it
	seqGot   uint64
}

func (c *counts) Endpoint(*run.Endpoint) {}
func (c *counts) Message(*run.Message)   {}
func (c *counts) Gap(*run.Gap)           {}
func (c *counts) Base(*run.Base)         {}
func (c *counts) Shm(*run.Shm)           {}
func (c *counts) OffCPU(*run.OffCPU)     {}
func (c *counts) Proc(*run.Proc)         {}
func (c *counts) Net(*run.Net)           {}
func (c *counts) Note(*run.Note)         {}

func (c *counts) IO(r *run.IO) {
	if r.TGID == c.tgid && slices.Contains(c.fds, int(r.FD)) {
		c.received++
	}
}

func (c *counts) Loss(r *run.Loss) {
	c.losses = append(c.losses, *r)
	if r.Reason != "ring-full" {
		c.other += r.N
		return
	}
	c.lostAll += r.N
	if r.What == "io" {
		c.lost += r.N
	}
}

// count reads a run that was recorded.
func count(dir string, tgid uint32, fds []int) (*counts, error) {
	r, err := run.Open(dir, run.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c := &counts{tgid: tgid, fds: fds}
	if err := r.Replay(c); err != nil {
		return nil, err
	}
	for key, n := range map[string]*uint64{"records_sent": &c.seqSent, "records_received": &c.seqGot} {
		text := r.Meta.Options[key]
		if *n, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, fmt.Errorf("%s: metadata.json says %s is %q, not a number", dir, key, text)
		}
	}
	return c, nil
}

// lostIn is how many records were lost in a step, with the pause after it.
func (c *counts) lostIn(s *step) (n uint64) {
	for i := range c.losses {
		if l := &c.losses[i]; l.Reason == "ring-full" && l.ToNS > s.FromNS && l.FromNS < s.ToNS+pauseNS/2 {
			n += l.N
		}
	}
	return n
}
