package table

import (
	"encoding/binary"
	"errors"

	"github.com/parquet-go/parquet-go/format"
)

// decodeValues decodes the content of a page of n values into the column's buffers.
func (c *column) decodeValues(enc format.Encoding, b []byte, n int) error {
	switch {
	case enc == format.RLEDictionary:
		return c.lookUp(b, n)
	case c.Text && enc == format.Plain:
		var err error
		c.texts, err = plainTexts(c.texts[:0], b, n)
		return err
	case !c.Text && enc == format.Plain:
		var err error
		c.ints, err = plainInts(c.ints[:0], b, n)
		return err
	case !c.Text && enc == format.DeltaBinaryPacked:
		var err error
		c.ints, err = deltaInts(c.ints[:0], b, n)
		return err
	}
	return errors.New("an encoding that is not written here: " + enc.String())
}

var errPage = errors.New("the page holds less than it says, or something else")

// dictionary decodes the values that the pages of a chunk refer to.
func (c *column) dictionary(b []byte, n int) (err error) {
	if c.Text {
		c.textDict, err = plainTexts(nil, b, n)
	} else {
		c.intDict, err = plainInts(c.intDict[:0], b, n)
	}
	return err
}

func plainInts(out []int64, b []byte, n int) ([]int64, error) {
	if len(b) != 8*n {
		return nil, errPage
	}
	for ; len(b) > 0; b = b[8:] {
		out = append(out, int64(binary.LittleEndian.Uint64(b)))
	}
	return out, nil
}

// plainTexts makes each text a string of its own: one that is kept must not keep the page.
func plainTexts(out []string, b []byte, n int) ([]string, error) {
	for range n {
		if len(b) < 4 {
			return nil, errPage
		}
		size := binary.LittleEndian.Uint32(b)
		if b = b[4:]; uint64(size) > uint64(len(b)) {
			return nil, errPage
		}
		out = append(out, Unescape(string(b[:size])))
		b = b[size:]
	}
	if len(b) > 0 {
		return nil, errPage
	}
	return out, nil
}

// lookUp decodes indices into the dictionary: one byte with their width, then runs of either a
// repeated index or bit-packed ones.
func (c *column) lookUp(b []byte, n int) error {
	size := len(c.intDict)
	if c.Text {
		size = len(c.textDict)
	}
	if len(b) == 0 || b[0] > 32 {
		return errPage
	}
	width := uint(b[0])
	c.ints, c.texts = c.ints[:0], c.texts[:0]
	for b = b[1:]; n > 0; {
		head, k := binary.Uvarint(b)
		if k <= 0 || head>>1 == 0 || head>>1 > maxPageValues {
			return errPage
		}
		b = b[k:]
		count, packed := int(head>>1), head&1 == 1
		used := int(width+7) / 8
		if packed {
			used, count = count*int(width), 8*count
		}
		if used > len(b) {
			return errPage
		}
		count = min(count, n) // the last run is filled up to a multiple of eight
		if !c.run(b[:used], count, width, packed, size) {
			return errPage
		}
		b, n = b[used:], n-count
	}
	return nil
}

func (c *column) run(b []byte, count int, width uint, packed bool, size int) bool {
	if !packed {
		var word [8]byte
		copy(word[:], b)
		k := binary.LittleEndian.Uint64(word[:])
		if k >= uint64(size) {
			return false
		}
		for range count {
			c.put(int(k))
		}
		return true
	}
	r := bitReader{b: b}
	for range count {
		k := r.next(width)
		if k >= uint64(size) {
			return false
		}
		c.put(int(k))
	}
	return true
}

func (c *column) put(k int) {
	if c.Text {
		c.texts = append(c.texts, c.textDict[k])
	} else {
		c.ints = append(c.ints, c.intDict[k])
	}
}

// bitReader takes integers of up to 64 bits from the low end of a byte string; what lies beyond its
// end is zero.
type bitReader struct {
	b    []byte
	have uint
	word uint64
}

func (r *bitReader) next(width uint) uint64 {
	if width > 56 {
		low := r.next(32)
		return low | r.next(width-32)<<32
	}
	for r.have < width {
		if len(r.b) >= 8 && r.have == 0 {
			r.word, r.have = binary.LittleEndian.Uint64(r.b), 56
			r.word &= 1<<56 - 1
			r.b = r.b[7:]
			continue
		}
		if len(r.b) > 0 {
			r.word |= uint64(r.b[0]) << r.have
			r.b = r.b[1:]
		}
		r.have += 8
	}
	v := r.word & (1<<width - 1)
	r.word >>= width
	r.have -= width
	return v
}

// deltaInts decodes DELTA_BINARY_PACKED: block size, miniblocks in a block, values, first value;
// then for each block the smallest difference, the widths of the miniblocks, and what each
// difference exceeds the smallest by.
func deltaInts(out []int64, b []byte, n int) ([]int64, error) {
	head := [3]uint64{}
	for k := range head {
		v, used := binary.Uvarint(b)
		if used <= 0 {
			return nil, errPage
		}
		head[k], b = v, b[used:]
	}
	last, used := binary.Varint(b)
	if used <= 0 || head[2] != uint64(n) || head[0] > 1<<16 || head[1] == 0 || head[0]%head[1] != 0 {
		return nil, errPage
	}
	b = b[used:]
	each := int(head[0] / head[1])
	if n == 0 {
		return out, nil
	}
	if each == 0 || each%8 != 0 {
		return nil, errPage
	}
	out = append(out, last)
	for n--; n > 0; {
		least, used := binary.Varint(b)
		if used <= 0 || uint64(len(b)-used) < head[1] {
			return nil, errPage
		}
		widths := b[used : used+int(head[1])]
		b = b[used+int(head[1]):]
		for _, w := range widths {
			if n == 0 {
				break
			}
			size := each / 8 * int(w)
			if w > 64 {
				return nil, errPage
			}
			r := bitReader{b: b[:min(size, len(b))]} // the last miniblock may be cut short
			if count := min(n, each); len(r.b)*8 < count*int(w) {
				return nil, errPage
			}
			for range min(n, each) {
				last += least + int64(r.next(uint(w)))
				out = append(out, last)
			}
			n -= min(n, each)
			b = b[min(size, len(b)):]
		}
	}
	return out, nil
}
