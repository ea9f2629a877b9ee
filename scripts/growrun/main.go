// Growrun writes a run that holds the records of another one several times over, one repetition
// after the other, for measuring how the analysis behaves with the length of a run:
//
//	go run ./scripts/growrun RUN 16 OUT
//
// Each repetition has endpoints and request ids of its own; processes and threads stay the same.
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"

	"github.com/stageline/stageline/collector/run"
)

func main() {
	if err := grow(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "growrun:", err)
		os.Exit(1)
	}
}

func grow(args []string) (err error) {
	if len(args) != 3 {
		return errors.New("usage: growrun RUN TIMES OUT")
	}
	times, err := strconv.ParseInt(args[1], 10, 16)
	if err != nil || times < 1 {
		return fmt.Errorf("%q is no number of times", args[1])
	}
	r, err := run.Open(args[0], run.OpenOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	var e extent
	if err := r.Replay(&sink{change: e.see}); err != nil {
		return err
	}
	meta := r.Meta
	meta.Spool, meta.Sealed, meta.RunID = run.SpoolInfo{}, nil, ""
	w, err := run.Create(args[2], meta)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for k := range times {
		p := repetition{n: uint64(k), shift: k * (e.to - e.from + 1e9), endpoints: e.endpoints * uint32(k)}
		err := r.Requests(func(q *run.Request) error { return w.Request(p.request(q)) })
		if err != nil {
			return err
		}
		if err := r.Replay(&sink{Sink: w, change: p.record, skipProc: k > 0}); err != nil {
			return err
		}
	}
	return nil
}

// extent is what the records of a run span.
type extent struct {
	from, to  int64
	endpoints uint32
}

func (e *extent) see(record any) {
	switch r := record.(type) {
	case *run.Endpoint:
		e.endpoints = max(e.endpoints, r.ID)
	case *run.IO:
		if e.from == 0 {
			e.from = r.ExitNS
		}
		e.from, e.to = min(e.from, r.ExitNS), max(e.to, r.ExitNS)
	}
}

// repetition changes what must differ from the other repetitions.
type repetition struct {
	n         uint64
	shift     int64
	endpoints uint32
}

var (
	mintedID = regexp.MustCompile(`sl-[0-9a-f]{8}`)
	segment  = regexp.MustCompile(`psm_[0-9a-f]{2}`)
)

func (p *repetition) name(s *string) {
	*s = mintedID.ReplaceAllString(*s, fmt.Sprintf("sl-%08x", 0x5ca1ab00+p.n))
	*s = segment.ReplaceAllString(*s, fmt.Sprintf("psm_%02x", p.n&0xff))
}

func (p *repetition) times(at ...*int64) {
	for _, t := range at {
		if t != nil && *t != 0 {
			*t += p.shift
		}
	}
}

func (p *repetition) endpoint(ep *uint32) {
	if *ep != 0 {
		*ep += p.endpoints
	}
}

func (p *repetition) record(record any) {
	switch r := record.(type) {
	case *run.Endpoint:
		p.endpoint(&r.ID)
		p.times(&r.FirstNS)
		r.Inode += p.n << 33
		if r.PeerInode != 0 {
			r.PeerInode += p.n << 33
		}
		r.NetNS += uint32(p.n)
	case *run.IO:
		p.endpoint(&r.EP)
		p.times(&r.EnterNS, &r.ExitNS)
	case *run.Message:
		p.endpoint(&r.EP)
		p.times(&r.FirstEnterNS, &r.FirstExitNS, &r.LastEnterNS, &r.LastExitNS)
		for k := range r.IDs {
			p.name(&r.IDs[k].Value)
		}
		for k := range r.Shm {
			p.name(&r.Shm[k].Name)
		}
	case *run.Gap:
		p.endpoint(&r.EP)
		p.times(&r.AtNS)
	case *run.Base:
		p.endpoint(&r.Sender)
		p.endpoint(&r.Receiver)
		p.times(&r.FirstNS, &r.LastNS)
	case *run.Shm:
		p.times(&r.EnterNS, &r.ExitNS)
		p.name(&r.Name)
	case *run.OffCPU:
		p.times(&r.OutNS, &r.WakeNS, &r.InNS)
	case *run.Net:
		p.endpoint(&r.EP)
		p.times(&r.AtNS)
	case *run.Proc:
		p.times(&r.AtNS)
	case *run.Loss:
		p.times(&r.FromNS, &r.ToNS)
	case *run.Note:
		p.times(&r.AtNS)
	}
}

func (p *repetition) request(q *run.Request) *run.Request {
	for _, s := range []*string{&q.ID, &q.Group, &q.ReplyID} {
		p.name(s)
	}
	p.times(q.PlannedNS, q.DequeuedNS, q.ConnectedNS, q.SentNS, q.WrittenNS, q.FirstByteNS, q.FirstNS, q.LastNS, q.EndNS)
	for k := range q.Events {
		p.times(&q.Events[k].MonoNS)
	}
	return q
}
