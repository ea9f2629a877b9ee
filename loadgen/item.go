package loadgen

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"
)

const classWarmup = "warmup"

// Item is one planned request. Everything but ID follows from the configuration and its seed.
type Item struct {
	N        int    // from 1, warm-up included
	ID       string // minted before the run
	Class    string // "warmup", a class of the mix, or ""
	Tenant   string
	Session  string // conversation, "" for a single request
	Turn     int    // of the conversation, from 1; 0 for a single request
	OffsetNS int64  // planned send time after the start of the run; -1: no fixed time
	// After is 0, or N-1: this turn is sent GapNS after the reply to that request has ended, because
	// nobody answers before he was spoken to.
	After int
	GapNS int64

	PromptChars int     // length of the synthetic prompt
	MaxTokens   int     // 0: as the configuration says
	Blocks      []int64 // identities of the prompt's leading blocks of BlockChars; equal ones are equal text
}

// root is the number of the first turn of the item's conversation.
func (it *Item) root() int {
	if it.Turn > 1 {
		return it.N - it.Turn + 1
	}
	return it.N
}

// source yields the planned requests in order: turns of one conversation stand together, first turns
// in order of time. ok is false at the end.
type source interface {
	next() (it Item, ok bool, err error)
}

// drawn is the source that makes its requests from the configuration.
type drawn struct {
	cfg   *Config
	times *arrivals // nil: closed loop
	n     int
	last  int64 // newest fixed time
	endNS int64 // no request starts at or after this; 0 none

	left    int // turns of the current conversation still to come
	session Item
}

func newDrawn(cfg *Config) *drawn {
	d := &drawn{cfg: cfg}
	if cfg.openLoop() {
		d.times = newArrivals(cfg)
	}
	return d
}

func (d *drawn) next() (Item, bool, error) {
	if d.cfg.N > 0 && d.n == d.cfg.N+d.cfg.Warmup {
		return Item{}, false, nil
	}
	if d.left > 0 {
		d.n++
		d.left--
		return d.turn(), true, nil
	}
	at := int64(-1)
	if d.times != nil {
		// The measured window of a duration begins at the last warm-up arrival.
		if d.endNS == 0 && d.cfg.Duration > 0 && d.n >= d.cfg.Warmup {
			d.endNS = d.last + d.cfg.Duration.Nanoseconds()
		}
		var ok bool
		if at, ok = d.times.next(); !ok || d.endNS > 0 && at >= d.endNS {
			return Item{}, false, nil
		}
		d.last = at
	}
	d.n++
	return d.first(at), true, nil
}

func (d *drawn) first(at int64) Item {
	c := d.cfg
	it := Item{N: d.n, OffsetNS: at, PromptChars: c.PromptChars, MaxTokens: c.MaxTokens}
	if len(c.Classes) > 0 {
		k := classOf(c.Classes, draw(c.Seed, d.n, drawClass))
		it.Class, it.Tenant = k.Name, k.Tenant
		if k.PromptChars > 0 {
			it.PromptChars = k.PromptChars
		}
		if k.MaxTokens > 0 {
			it.MaxTokens = k.MaxTokens
		}
	}
	d.session = it
	if c.Turns.Hi > 1 {
		d.left = c.Turns.draw(draw(c.Seed, d.n, drawTurns)) - 1
		it.Session, it.Turn = "s"+strconv.Itoa(d.n), 1
		d.session = it
	}
	return d.warm(it)
}

// turn is a later turn of the current conversation. Its prompt is the one before, lengthened: an
// engine can use what it has cached of it.
func (d *drawn) turn() Item {
	it := d.session
	it.N, it.OffsetNS, it.After = d.n, -1, d.n-1
	it.Turn = d.n - d.session.N + 1
	it.PromptChars *= it.Turn
	it.GapNS = d.cfg.TurnGap.draw(draw(d.cfg.Seed, d.n, drawGap))
	return d.warm(it)
}

func (d *drawn) warm(it Item) Item {
	if it.N <= d.cfg.Warmup {
		it.Class = classWarmup
	}
	return it
}

// scheduleHash digests planned requests: order, times, classes, turns and sizes, not identifiers.
type scheduleHash struct {
	h   hash.Hash
	buf []byte
}

func newScheduleHash() *scheduleHash { return &scheduleHash{h: sha256.New()} }

func (s *scheduleHash) add(it *Item) {
	b := s.buf[:0]
	for _, v := range [...]int64{int64(it.N), it.OffsetNS, int64(it.After), it.GapNS, int64(it.Turn),
		int64(it.PromptChars), int64(it.MaxTokens), int64(len(it.Blocks))} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	for _, v := range it.Blocks {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	for _, v := range [...]string{it.Class, it.Tenant, it.Session} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
		b = append(b, v...)
	}
	s.buf = b
	s.h.Write(b)
}

func (s *scheduleHash) String() string { return hex.EncodeToString(s.h.Sum(nil)) }
