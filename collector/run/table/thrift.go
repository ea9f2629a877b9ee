package table

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/parquet-go/parquet-go/encoding/thrift"
)

// Headers and footers are structs in Thrift's compact protocol. Its decoder makes room for as many
// list elements as a list claims to have, and goes down as deep as structs are nested. checkStruct
// looks first: whatever is claimed must fit into the bytes that are there.

const (
	maxDepth = 16
	// listElement is how many bytes of the input a struct of a list must be backed by on average. The
	// shortest that Parquet really has (statistics of an encoding) takes seven, amid larger ones.
	listElement = 6
)

// Types of the compact protocol.
const (
	typeStop   = 0
	typeTrue   = 1
	typeFalse  = 2
	typeByte   = 3
	typeI64    = 6 // 4 and 5 are shorter integers in the same form
	typeDouble = 7
	typeBinary = 8
	typeList   = 9
	typeSet    = 10
	typeStruct = 12
)

var errThrift = errors.New("ends inside a header, or claims more than it holds")

type thriftCheck struct {
	b       []byte
	at      int
	structs int // list elements that are structs
}

// decodeStruct decodes the struct at the beginning of b and returns its length.
func decodeStruct(b []byte, v any) (n int, err error) {
	c := thriftCheck{b: b}
	if !c.fields(0) || c.structs*listElement > len(b) {
		return 0, errThrift
	}
	defer func() { // the decoder is not ours; the check before should leave it nothing to stumble over
		if p := recover(); p != nil {
			err = fmt.Errorf("decode header: %v", p)
		}
	}()
	p := thrift.CompactProtocol{}
	if err := thrift.Unmarshal(&p, b[:c.at], v); err != nil {
		return 0, fmt.Errorf("decode header: %w", err)
	}
	return c.at, nil
}

func (c *thriftCheck) varint() (uint64, bool) {
	v, n := binary.Uvarint(c.b[c.at:])
	if n <= 0 {
		return 0, false
	}
	c.at += n
	return v, true
}

func (c *thriftCheck) skip(n uint64) bool {
	if n > uint64(len(c.b)-c.at) {
		return false
	}
	c.at += int(n)
	return true
}

func (c *thriftCheck) octet() (byte, bool) {
	if c.at >= len(c.b) {
		return 0, false
	}
	c.at++
	return c.b[c.at-1], true
}

// fields passes over the fields of a struct.
func (c *thriftCheck) fields(depth int) bool {
	if depth > maxDepth {
		return false
	}
	for {
		head, ok := c.octet()
		if !ok || head == typeStop {
			return ok
		}
		if head>>4 == 0 { // the field's number follows, else it is a difference
			if _, ok := c.varint(); !ok {
				return false
			}
		}
		if t := head & 15; t != typeTrue && t != typeFalse && !c.value(t, depth) {
			return false
		}
	}
}

func (c *thriftCheck) value(t byte, depth int) bool {
	switch {
	case t == typeTrue || t == typeFalse || t == typeByte:
		return c.skip(1)
	case t > typeByte && t <= typeI64:
		_, ok := c.varint()
		return ok
	case t == typeDouble:
		return c.skip(8)
	case t == typeBinary:
		n, ok := c.varint()
		return ok && c.skip(n)
	case t == typeList || t == typeSet:
		return c.list(depth)
	case t == typeStruct:
		return c.fields(depth + 1)
	}
	return false // maps: Parquet has none
}

func (c *thriftCheck) list(depth int) bool {
	head, ok := c.octet()
	n := uint64(head >> 4)
	if n == 15 && ok {
		n, ok = c.varint()
	}
	if !ok || n > uint64(len(c.b)-c.at) || depth >= maxDepth { // an element takes a byte at least
		return false
	}
	t := head & 15
	if t == typeStruct {
		c.structs += int(n)
	}
	for range n {
		if !c.value(t, depth+1) {
			return false
		}
	}
	return true
}
