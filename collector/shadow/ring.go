package shadow

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/engine"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/collector/wire"
)

const (
	headBytes = 4 << 10  // of a chunk, compared at each look
	bodyBytes = 20 << 10 // of a chunk, read once for its ids
	allEvery  = 16       // each so many looks all chunks are compared
	// firstEndpoint keeps the numbers of rings' ends apart from those of kernel objects.
	firstEndpoint = 1 << 30
)

var errCut = errors.New("the segment is shorter than its ring")

// ring is one ring under watch.
type ring struct {
	f       *os.File
	fd      int
	layout  engine.RingLayout
	name    string
	writer  uint32
	readers []uint32
	ep      []uint32 // by reader: its writer's end; the reader's own is the next number

	meta     []byte
	lastMeta []byte   // of the look before
	heads    [][]byte // by chunk: as it was when last looked at
	filling  []bool   // by chunk: its written flag was seen down
	scratch  []byte
	next     int // chunk that is written next; -1 not known yet
	looks    uint64
	lastNS   int64 // begin of the look before
	lastAll  int64 // begin of the last look at all chunks
	pos      uint64
	untaken  []untaken
	enqueued uint64

	flagsIn        map[uint32]uint64 // by process: where it has mapped the flags; without 0 it cannot be watched
	tracks         []*track          // registers that watch the flags
	waiting        []*end            // found by a look, its hit not settled yet
	exact, bounded uint64            // ends with tracks on the ring: with a time of a hit, and without
	hits           uint64            // of registers given up
}

// untaken is a message that a reader has not taken yet.
type untaken struct {
	msg     run.Message // as it was found to be enqueued
	put     *end
	chunk   int
	reader  int
	sinceNS int64 // begin of the last look at which it was not taken
}

// found takes what a look finds.
type found interface {
	message(*run.Message)
	lapped(name string, fromNS, toNS int64)
}

func newRing(f *os.File, l engine.RingLayout, name string) *ring {
	r := &ring{f: f, fd: int(f.Fd()), layout: l, name: name, next: -1, meta: make([]byte, l.MetaBytes()), scratch: make([]byte, bodyBytes)}
	r.heads, r.filling = make([][]byte, l.Chunks), make([]bool, l.Chunks)
	return r
}

// begin takes the ring as it is, so that only what comes later is a message.
func (r *ring) begin() error {
	r.lastNS = run.Mono()
	r.lastAll = r.lastNS
	if err := r.readMeta(); err != nil {
		return err
	}
	for c := range r.heads {
		head, err := r.head(c, headBytes)
		if err != nil {
			return err
		}
		r.heads[c] = bytes.Clone(head)
		r.filling[c] = !r.layout.Written(r.meta, c)
	}
	return nil
}

func (r *ring) readMeta() error { return r.read(r.meta, r.layout.MetaAt()) }

// head reads the first bytes of a chunk.
func (r *ring) head(chunk, n int) ([]byte, error) {
	b := r.scratch[:min(int64(n), r.layout.ChunkBytes)]
	return b, r.read(b, int64(chunk)*r.layout.ChunkBytes)
}

func (r *ring) read(b []byte, at int64) error {
	n, err := unix.Pread(r.fd, b, at)
	if err != nil {
		return fmt.Errorf("read ring %s: %w", r.name, err)
	}
	if n < len(b) {
		return errCut
	}
	return nil
}

// look finds what has changed since the look before.
func (r *ring) look(l *wire.Looker, out found) error {
	begin := run.Mono()
	if err := r.readMeta(); err != nil {
		return err
	}
	moved := !bytes.Equal(r.meta, r.lastMeta)
	r.lastMeta = append(r.lastMeta[:0], r.meta...)
	r.looks++
	n := 0
	for ; n <= r.layout.Chunks && r.next >= 0; n++ {
		if ok, err := r.step(r.next, r.lastNS, l, out); err != nil {
			return err
		} else if !ok {
			break
		}
	}
	if n >= r.layout.Chunks {
		r.roundTrip(r.lastNS, out)
	}
	if r.next < 0 && moved || r.looks%allEvery == 0 {
		if err := r.lookAll(l, out); err != nil {
			return err
		}
		r.lastAll = begin
	}
	r.take(begin, out)
	r.lastNS = begin
	return nil
}

// roundTrip notes that all chunks have changed since a time: the writer went round and may have
// written over messages that no look found, and where it is now is not known.
func (r *ring) roundTrip(sinceNS int64, out found) {
	r.next = -1
	out.lapped(r.name, sinceNS, run.Mono())
}

// step examines one chunk and takes the message that has come into it; false: none has.
func (r *ring) step(c int, sinceNS int64, l *wire.Looker, out found) (bool, error) {
	if !r.layout.Written(r.meta, c) {
		r.filling[c] = true
		return false, nil
	}
	if ok, err := r.changed(c); !ok || err != nil {
		return false, err
	}
	// A writer may have begun since the flags were read. What differs now and is written is whole.
	if err := r.readMeta(); err != nil {
		return false, err
	}
	if !r.layout.Written(r.meta, c) {
		r.filling[c] = true
		return false, nil
	}
	body, err := r.head(c, bodyBytes)
	if err != nil {
		return false, err
	}
	r.accept(c, sinceNS, body, l, out)
	return true, nil
}

// changed reports that a written chunk does not hold what it held.
func (r *ring) changed(c int) (bool, error) {
	if r.filling[c] {
		return true, nil
	}
	head, err := r.head(c, headBytes)
	return err == nil && !bytes.Equal(head, r.heads[c]), err
}

// accept makes the records of a message that is in chunk c.
func (r *ring) accept(c int, sinceNS int64, body []byte, l *wire.Looker, out found) {
	r.forget(c, out)
	r.heads[c] = append(r.heads[c][:0], body[:min(len(body), headBytes)]...)
	r.filling[c] = false
	r.next = (c + 1) % r.layout.Chunks
	r.enqueued++
	m := run.Message{Dir: run.Send, Proto: run.ProtoRing, Chunk: -1, Pos: r.pos, TGID: r.writer, TID: r.writer}
	m.FirstEnterNS, m.LastExitNS = sinceNS, run.Mono()
	m.FirstExitNS, m.LastEnterNS = m.LastExitNS, m.FirstEnterNS
	d := r.layout.Message(body)
	if d.Body != nil {
		l.Payload(d.Body, d.Whole, &m)
	}
	m.Bytes = d.Bytes
	m.End = m.Pos + uint64(max(d.Bytes, 1))
	r.pos = m.End
	if m.Type == "" {
		m.Type = "ring"
	}
	put := &end{msg: m, chunk: c, reader: -1, out: out}
	for i := range r.readers {
		r.untaken = append(r.untaken, untaken{m, put, c, i, sinceNS})
	}
	r.foundEnd(put)
}

// forget ends the wait for readers of what chunk c held: it was written again, so they have read it.
func (r *ring) forget(c int, out found) {
	keep := r.untaken[:0]
	for _, u := range r.untaken {
		if u.chunk == c {
			r.taken(&u, out)
		} else {
			keep = append(keep, u)
		}
	}
	r.untaken = keep
}

// lookAll compares every chunk: to find where the writer is, and messages behind one that has the
// same bytes as the one a lap before it.
func (r *ring) lookAll(l *wire.Looker, out found) error {
	n := r.layout.Chunks
	fresh, all := make([]bool, n), true
	for c := range fresh {
		if !r.layout.Written(r.meta, c) {
			r.filling[c], all = true, false
			continue
		}
		var err error
		if fresh[c], err = r.changed(c); err != nil {
			return err
		}
		all = all && fresh[c]
	}
	if all {
		since := r.lastAll
		for c := range fresh {
			if _, err := r.step(c, since, l, out); err != nil {
				return err
			}
		}
		r.roundTrip(since, out)
		return nil
	}
	first := r.next
	for c := 0; c < n && first < 0; c++ {
		if fresh[c] && !fresh[(c+n-1)%n] {
			first = c
		}
	}
	if first < 0 {
		return nil
	}
	for i := n - 1; i >= 0; i-- {
		if c := (first + i) % n; fresh[c] {
			return r.catchUp(first, c, l, out)
		}
	}
	return nil
}

// catchUp takes the messages from one chunk to another, in order; those whose bytes did not change
// are known from the one behind them.
func (r *ring) catchUp(from, to int, l *wire.Looker, out found) error {
	for c := from; ; c = (c + 1) % r.layout.Chunks {
		ok, err := r.step(c, r.lastAll, l, out)
		if err != nil {
			return err
		}
		if !ok && c != to {
			body, err := r.head(c, bodyBytes)
			if err != nil {
				return err
			}
			r.accept(c, r.lastAll, body, l, guessed{out})
		}
		if c == to {
			return nil
		}
	}
}

// guessed marks messages that were not seen to come.
type guessed struct{ found }

func (g guessed) message(m *run.Message) {
	m.Flags |= run.MsgGuessed
	g.found.message(m)
}

// take notes which readers have taken what was there.
func (r *ring) take(begin int64, out found) {
	keep := r.untaken[:0]
	for _, u := range r.untaken {
		if r.layout.Read(r.meta, u.chunk, u.reader) {
			r.taken(&u, out)
			continue
		}
		u.sinceNS = begin
		keep = append(keep, u)
	}
	r.untaken = keep
}

// taken makes the record of a message that its reader has taken since it was last seen untaken.
func (r *ring) taken(u *untaken, out found) {
	m := u.msg
	m.Dir, m.EP = run.Recv, r.ep[u.reader]+1
	m.TGID, m.TID = r.readers[u.reader], r.readers[u.reader]
	m.FirstEnterNS, m.LastExitNS = max(u.sinceNS, m.FirstEnterNS), run.Mono()
	m.FirstExitNS, m.LastEnterNS = m.LastExitNS, m.FirstEnterNS
	r.foundEnd(&end{msg: m, chunk: u.chunk, reader: u.reader, put: u.put, out: out})
}

// readerOf is the number of a process among the readers; -1: it is none, so it writes.
func (r *ring) readerOf(pid uint32) int { return slices.Index(r.readers, pid) }
