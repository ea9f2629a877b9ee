package run

import (
	"encoding/binary"
	"strings"
)

// Record kinds of the spool. Numbers are never reused; a reader skips and counts those it does not
// know, so a new kind must not change how the known ones are read.
const (
	kindHeader = 1 // first record of a segment
	kindString = 2 // next entry of the segment's string table

	kindEndpoint = 16
	kindIO       = 17
	kindMessage  = 18
	kindGap      = 19
	kindBase     = 20
	kindShm      = 21
	kindOffCPU   = 22
	kindProc     = 23
	kindNet      = 24
	kindLoss     = 25
	kindNote     = 26

	kindEnd = 27 // one past the last known kind
)

var kindNames = [kindEnd]string{
	kindHeader: "header", kindString: "string",
	kindEndpoint: "endpoint", kindIO: "io", kindMessage: "message", kindGap: "gap", kindBase: "base",
	kindShm: "shm", kindOffCPU: "offcpu", kindProc: "proc", kindNet: "net", kindLoss: "loss", kindNote: "note",
}

const (
	// maxRecord bounds one record's payload: what a reader is willing to hold for a length it was told.
	maxRecord = 1 << 20
	// maxTable and maxSymbol bound the string table of a segment, so that a reader's memory is bounded
	// too; further or longer strings are written out in full.
	maxTable  = 1 << 16
	maxSymbol = 128
	// maxCmdline bounds the command line kept of a process; the rest is replaced by a statement.
	maxCmdline = 64 << 10
)

// codec reads or writes the fields of one record. Each record kind has one method that names its
// fields in order and serves both directions, so that writer and reader cannot disagree. Fields are
// only ever appended to a kind; a reader ignores what follows the fields it knows.
//
// Integers are varints; times are stated relative to the segment's base or to another time of the
// record, strings that repeat as numbers in the segment's string table.
type codec struct {
	decode bool
	b      []byte // encode: appended to; decode: what is left of the payload
	bad    bool   // decode: the payload is not what a writer can have produced
	base   int64  // CLOCK_MONOTONIC ns at which the segment was opened

	ids    map[string]uint32 // encode: string table
	define func(string)      // encode: emits a kindString record
	table  []string          // decode: string table

	idSlab  []IDRef // decode: slices are cut from blocks, so that a sink may keep them
	shmSlab []ShmRef
}

func (c *codec) getU() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return v
}

func zig(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzig(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

func u[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *codec, p *T) {
	if !c.decode {
		c.b = binary.AppendUvarint(c.b, uint64(*p))
		return
	}
	v := c.getU()
	*p = T(v)
	if uint64(*p) != v {
		c.bad = true
	}
}

func i[T ~int32 | ~int64](c *codec, p *T) {
	if !c.decode {
		c.b = binary.AppendUvarint(c.b, zig(int64(*p)))
		return
	}
	v := unzig(c.getU())
	*p = T(v)
	if int64(*p) != v {
		c.bad = true
	}
}

// near codes a value close to ref. The difference wraps, so any pair of values survives.
func near[T ~uint32 | ~uint64 | ~int64](c *codec, p *T, ref T) {
	if !c.decode {
		c.b = binary.AppendUvarint(c.b, zig(int64(*p)-int64(ref)))
		return
	}
	v := unzig(c.getU()) + int64(ref)
	*p = T(v)
	if int64(*p) != v {
		c.bad = true
	}
}

// time codes a moment relative to ref, or to the segment's base when ref is unknown. 0 stays the
// one-byte "unknown". Moments are within 2^62 ns of their reference.
func (c *codec) time(p *int64, ref int64) {
	if ref == 0 {
		ref = c.base
	}
	if !c.decode {
		v := uint64(0)
		if *p != 0 {
			v = zig(*p-ref) + 1
		}
		c.b = binary.AppendUvarint(c.b, v)
		return
	}
	*p = 0
	if v := c.getU(); v != 0 {
		*p = unzig(v-1) + ref
	}
}

func (c *codec) flag(p *bool) {
	v := uint8(0)
	if *p {
		v = 1
	}
	u(c, &v)
	if c.decode {
		*p = v != 0
		c.bad = c.bad || v > 1
	}
}

// text codes a string that is not expected again.
func (c *codec) text(p *string) {
	if !c.decode {
		c.b = binary.AppendUvarint(c.b, uint64(len(*p)))
		c.b = append(c.b, *p...)
		return
	}
	n := c.getU()
	if n > uint64(len(c.b)) {
		c.bad, n = true, 0
	}
	*p = string(c.b[:n])
	c.b = c.b[n:]
}

// symbol codes a string that repeats: 0 and the text, 1 for "", else its place in the string table.
func (c *codec) symbol(p *string) {
	if c.decode {
		c.getSymbol(p)
		return
	}
	if *p == "" {
		c.b = append(c.b, 1)
		return
	}
	n, ok := c.ids[*p]
	if !ok {
		if len(*p) > maxSymbol || len(c.ids) >= maxTable {
			c.b = append(c.b, 0)
			c.text(p)
			return
		}
		s := strings.Clone(*p) // the caller's string may be a piece of a large buffer
		n = uint32(len(c.ids))
		c.ids[s] = n
		c.define(s)
	}
	c.b = binary.AppendUvarint(c.b, uint64(n)+2)
}

func (c *codec) getSymbol(p *string) {
	switch n := c.getU(); {
	case n == 0:
		c.text(p)
	case n == 1:
		*p = ""
	case n-2 < uint64(len(c.table)):
		*p = c.table[n-2]
	default:
		c.bad, *p = true, ""
	}
}

// count codes the length of a list whose elements take at least so many bytes each.
func (c *codec) count(n, each int) int {
	v := uint64(n)
	u(c, &v)
	if c.decode && v > uint64(len(c.b)/each) {
		c.bad = true
		return 0
	}
	return int(v)
}

func (c *codec) texts(p *[]string) {
	n := c.count(len(*p), 1)
	if c.decode {
		*p = nil
		if n > 0 {
			*p = make([]string, n)
		}
	}
	for k := range *p {
		c.text(&(*p)[k])
	}
}

// cut takes n elements from a block that is replaced when used up.
func cut[T any](slab *[]T, n int) []T {
	if n == 0 {
		return nil
	}
	if n > len(*slab) {
		*slab = make([]T, max(n, 256))
	}
	s := (*slab)[:n:n]
	*slab = (*slab)[n:]
	return s
}
