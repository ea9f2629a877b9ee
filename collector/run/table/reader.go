package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// Reader reads a file row by row. Next leads to a row, Int and Text take its values, each column
// once and none twice.
type Reader struct {
	r      io.ReaderAt
	size   int64
	meta   format.FileMetaData
	cols   []column
	zstd   *zstd.Decoder
	group  int   // row group being read, from 1
	left   int64 // rows of it that were not led to
	avail  int   // rows that all columns hold
	row    int64 // number of the row that Next led to
	failed error
}

// column is where a Reader is in one column.
type column struct {
	Column
	place int // among the columns of the file; -1: the file lacks it
	at    int // next value

	ints     []int64
	texts    []string
	intDict  []int64
	textDict []string

	off, end int64 // of the chunk, what was not read yet
	left     int64 // values of it that were not decoded
	buf, raw []byte
}

// Open reads the footer of a file and finds the columns in it. A column that is missing or of
// another kind is an error; further ones are ignored.
func Open(r io.ReaderAt, size int64, cols []Column) (*Reader, error) {
	t := &Reader{r: r, size: size, row: -1}
	if err := t.footer(); err != nil {
		return nil, err
	}
	if err := t.find(cols); err != nil {
		return nil, &CorruptError{Row: -1, Why: err.Error()}
	}
	if err := t.checkGroups(); err != nil {
		return nil, &CorruptError{Row: -1, Why: err.Error()}
	}
	var err error
	t.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPage))
	return t, err
}

// Close releases what the Reader holds; the file stays open.
func (t *Reader) Close() { t.zstd.Close() }

// Rows is the number of rows of the file.
func (t *Reader) Rows() int64 { return t.meta.NumRows }

// Row is the number of the row that Next led to, from 0.
func (t *Reader) Row() int64 { return t.row }

func (t *Reader) footer() error {
	bad := func(why string) error { return &CorruptError{Row: -1, Why: why} }
	var tail [8]byte
	if t.size < 12 {
		return bad("not a whole Parquet file")
	}
	if _, err := t.r.ReadAt(tail[:], t.size-8); err != nil {
		return fmt.Errorf("read footer: %w", err)
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if string(tail[4:]) != "PAR1" || n > t.size-12 {
		return bad("not a whole Parquet file")
	}
	if n > maxFooter {
		return bad(fmt.Sprintf("a footer of %d bytes, more than %d", n, maxFooter))
	}
	b := make([]byte, n)
	if _, err := t.r.ReadAt(b, t.size-8-n); err != nil {
		return fmt.Errorf("read footer: %w", err)
	}
	if used, err := decodeStruct(b, &t.meta); err != nil || used != len(b) {
		return bad(errors.Join(errThrift, err).Error())
	}
	return nil
}

// find looks the columns up in the schema, which must be flat.
func (t *Reader) find(cols []Column) error {
	schema := t.meta.Schema
	if len(schema) < 2 || len(schema) > maxColumns || int(schema[0].NumChildren.V) != len(schema)-1 {
		return errors.New("not a flat table")
	}
	place := make(map[string]int)
	for k, e := range schema[1:] {
		if e.NumChildren.V != 0 || !e.Type.Valid {
			return errors.New("not a flat table")
		}
		place[e.Name] = k
	}
	for _, c := range cols {
		k, ok := place[c.Name]
		if !ok && c.Later {
			t.cols = append(t.cols, column{Column: c, place: -1})
			continue
		}
		if !ok {
			return fmt.Errorf("no column %s", c.Name)
		}
		want := format.Int64
		if c.Text {
			want = format.ByteArray
		}
		if e := schema[k+1]; e.Type.V != want || !e.RepetitionType.Valid || e.RepetitionType.V != format.Required {
			return fmt.Errorf("column %s is not a required %v", c.Name, want)
		}
		t.cols = append(t.cols, column{Column: c, place: k})
	}
	return nil
}

func (t *Reader) checkGroups() error {
	rows := int64(0)
	for n := range t.meta.RowGroups {
		g := &t.meta.RowGroups[n]
		if g.NumRows < 0 || g.NumRows > maxGroupRows || len(g.Columns) != len(t.meta.Schema)-1 {
			return fmt.Errorf("row group %d: impossible size", n)
		}
		rows += g.NumRows
		for k := range t.cols {
			c := &t.cols[k]
			if c.place < 0 {
				continue
			}
			m := &g.Columns[c.place].MetaData
			start, end := chunk(m)
			if start < 4 || end < start || end > t.size-8 || m.NumValues != g.NumRows || m.Codec != format.Zstd {
				return fmt.Errorf("row group %d: column %s: impossible place, number of values or compression", n, c.Name)
			}
		}
	}
	if rows != t.meta.NumRows {
		return fmt.Errorf("%d rows in row groups, %d in all", rows, t.meta.NumRows)
	}
	return nil
}

// chunk is where the pages of a column of a row group stand.
func chunk(m *format.ColumnMetaData) (start, end int64) {
	start = m.DataPageOffset
	if d := m.DictionaryPageOffset; d > 0 && d < start {
		start = d
	}
	if m.TotalCompressedSize < 0 || m.TotalCompressedSize > 1<<40 || start < 0 || start > 1<<60 {
		return -1, -1
	}
	return start, start + m.TotalCompressedSize
}

// Next leads to the next row; false at the end and after an error.
func (t *Reader) Next() (bool, error) {
	if t.avail > 0 {
		t.avail--
		t.row++
		return true, nil
	}
	return t.more()
}

// more makes the columns hold a row again.
func (t *Reader) more() (bool, error) {
	if t.failed != nil {
		return false, t.failed
	}
	for t.left == 0 {
		if t.group == len(t.meta.RowGroups) {
			return false, nil
		}
		g := &t.meta.RowGroups[t.group]
		t.group++
		t.left = g.NumRows
		for k := range t.cols {
			c := &t.cols[k]
			if c.place < 0 {
				continue
			}
			m := &g.Columns[c.place].MetaData
			c.off, c.end = chunk(m)
			c.left, c.at = m.NumValues, 0
			c.ints, c.texts, c.intDict, c.textDict = c.ints[:0], c.texts[:0], c.intDict[:0], nil
		}
	}
	avail := t.left
	for k := range t.cols {
		c := &t.cols[k]
		if c.place < 0 {
			continue
		}
		if c.held() == 0 {
			if err := t.refill(c); err != nil {
				if c := new(CorruptError); errors.As(err, &c) {
					c.Row = t.row + 1
				}
				t.failed = err
				return false, err
			}
		}
		avail = min(avail, int64(c.held()))
	}
	t.left -= avail
	t.avail = int(avail) - 1
	t.row++
	return true, nil
}

func (c *column) held() int { return len(c.ints) + len(c.texts) - c.at }

// Int takes the value of column k of the row.
func (t *Reader) Int(k int) int64 {
	c := &t.cols[k]
	if c.place < 0 {
		return 0
	}
	c.at++
	return c.ints[c.at-1]
}

// Text takes the value of column k of the row.
func (t *Reader) Text(k int) string {
	c := &t.cols[k]
	if c.place < 0 {
		return ""
	}
	c.at++
	return c.texts[c.at-1]
}

// refill decodes the next page of a column.
func (t *Reader) refill(c *column) error {
	c.at = 0
	for {
		h, err := t.page(c)
		if err != nil {
			return err
		}
		bad := func(why error) error { return &CorruptError{Column: c.Name, Why: why.Error()} }
		switch {
		case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
			n := int(h.DictionaryPageHeader.V.NumValues)
			if n < 0 || n > maxGroupRows {
				return bad(errPage)
			}
			if err := c.dictionary(c.raw, n); err != nil {
				return bad(err)
			}
		case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
			v := &h.DataPageHeaderV2.V
			n := int(v.NumValues)
			if n <= 0 || n > maxPageValues || int64(n) > c.left || v.NumNulls != 0 || v.NumRows != v.NumValues {
				return bad(errPage)
			}
			c.left -= int64(n)
			if err := c.decodeValues(v.Encoding, c.raw, n); err != nil {
				return bad(err)
			}
			return nil
		default:
			return bad(fmt.Errorf("a page of type %v, which is not written here", h.Type))
		}
	}
}

const maxHeader = 512 // bytes; those written here take some 40

// page reads a page into c.raw, decompressed.
func (t *Reader) page(c *column) (*format.PageHeader, error) {
	bad := func(why string) error { return &CorruptError{Column: c.Name, Why: why} }
	if err := t.load(c, min(maxHeader, c.end-c.off)); err != nil {
		return nil, err
	}
	h := new(format.PageHeader)
	used, err := decodeStruct(c.buf, h)
	if err != nil {
		return nil, bad(err.Error())
	}
	size := int64(h.CompressedPageSize)
	c.off += int64(used)
	if size < 0 || size > maxPage || h.UncompressedPageSize < 0 || h.UncompressedPageSize > maxPage || size > c.end-c.off {
		return nil, bad("a page of impossible size")
	}
	if err := t.load(c, size); err != nil {
		return nil, err
	}
	if h.CRC != 0 && uint32(h.CRC) != crc32.ChecksumIEEE(c.buf) {
		return nil, bad("checksum mismatch")
	}
	c.off += size
	v := &h.DataPageHeaderV2
	if v.Valid && (v.V.DefinitionLevelsByteLength != 0 || v.V.RepetitionLevelsByteLength != 0) {
		return nil, bad("values that are not required")
	}
	if v.Valid && v.V.IsCompressed.Valid && !v.V.IsCompressed.V {
		c.raw = append(c.raw[:0], c.buf...)
		return h, nil
	}
	if c.raw, err = t.zstd.DecodeAll(c.buf, c.raw[:0]); err != nil {
		return nil, bad("decompress: " + err.Error())
	}
	return h, nil
}

// load reads n bytes at the column's offset into c.buf.
func (t *Reader) load(c *column, n int64) error {
	if int64(cap(c.buf)) < n {
		c.buf = make([]byte, n)
	}
	c.buf = c.buf[:n]
	if _, err := t.r.ReadAt(c.buf, c.off); err != nil {
		return fmt.Errorf("read column %s: %w", c.Name, err)
	}
	return nil
}
