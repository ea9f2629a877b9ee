package table

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

const (
	groupRows  = 1 << 17
	groupBytes = 8 << 20 // of text: bounds what a Writer holds, and dictionaries before they are given up
	fileGroups = 64
	batchRows  = 1 << 10
	pageBytes  = 128 << 10
	dictBytes  = 1 << 20 // larger dictionaries are given up, so that a Reader's memory is bounded
)

// Writer writes one file. Each row is one call of Int or Text for every column, then EndRow. It
// holds one row group.
type Writer struct {
	w     *parquet.GenericWriter[any]
	cols  []Column
	batch [][]parquet.Value
	text  [][]byte // what the values of a batch point into
	rows  int      // in the batch
	group int      // rows of the row group that were passed on
	bytes int      // text of the row group
	full  int      // row groups written
	err   error
}

// orderedGroup is a parquet.Group that keeps the order of its columns.
type orderedGroup struct {
	parquet.Group
	cols []Column
}

type namedNode struct {
	parquet.Field
}

func (g orderedGroup) Fields() []parquet.Field {
	byName := make(map[string]parquet.Field)
	for _, f := range g.Group.Fields() {
		byName[f.Name()] = f
	}
	out := make([]parquet.Field, len(g.cols))
	for k, c := range g.cols {
		out[k] = namedNode{byName[c.Name]}
	}
	return out
}

func schemaOf(name string, cols []Column) *parquet.Schema {
	g := orderedGroup{parquet.Group{}, cols}
	for _, c := range cols {
		n := parquet.Leaf(parquet.Int64Type)
		if c.Text {
			n = parquet.String()
		}
		switch {
		case c.Repeats:
			n = parquet.Encoded(n, &parquet.RLEDictionary)
		case c.Text:
			n = parquet.Encoded(n, &parquet.Plain)
		default:
			n = parquet.Encoded(n, &parquet.DeltaBinaryPacked)
		}
		g.Group[c.Name] = n
	}
	return parquet.NewSchema(name, g)
}

// NewWriter begins a file. meta is put into its footer, for people and other programs.
func NewWriter(out io.Writer, name string, cols []Column, meta map[string]string) *Writer {
	options := []parquet.WriterOption{
		schemaOf(name, cols),
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}),
		parquet.PageBufferSize(pageBytes),
		parquet.DictionaryMaxBytes(dictBytes),
		parquet.DataPageStatistics(false), // the chunk's are kept, which readers use to skip row groups
		parquet.CreatedBy("stageline", "1", ""),
	}
	for _, c := range cols {
		if c.Text { // a footer would hold the first and last text of every row group, however long
			options = append(options, parquet.SkipPageBounds(c.Name))
		}
	}
	for k, v := range meta {
		options = append(options, parquet.KeyValueMetadata(k, v))
	}
	return &Writer{
		w: parquet.NewGenericWriter[any](out, options...), cols: cols,
		batch: make([][]parquet.Value, len(cols)), text: make([][]byte, len(cols)),
	}
}

// Int adds the value of column k.
func (w *Writer) Int(k int, v int64) { w.batch[k] = append(w.batch[k], parquet.Int64Value(v)) }

// Text adds the value of column k, which is copied.
func (w *Writer) Text(k int, s string) {
	s = Escape(s)
	if len(s) > MaxText && w.err == nil {
		w.err = fmt.Errorf("write column %s: text of %d bytes, more than %d", w.cols[k].Name, len(s), MaxText)
	}
	at := len(w.text[k])
	w.text[k] = append(w.text[k], s...)
	w.bytes += len(s)
	w.batch[k] = append(w.batch[k], parquet.ByteArrayValue(w.text[k][at:]))
}

// EndRow completes a row. It returns the first error of the Writer.
func (w *Writer) EndRow() error {
	if w.rows++; w.rows < batchRows && w.bytes < groupBytes {
		return w.err
	}
	w.pass()
	if w.group >= groupRows || w.bytes >= groupBytes {
		w.endGroup()
	}
	return w.err
}

// Full reports that the file should be closed and another begun, so that its footer stays small.
func (w *Writer) Full() bool { return w.full >= fileGroups }

// pass gives the batch to the columns.
func (w *Writer) pass() {
	for k, c := range w.w.ColumnWriters() {
		if w.err == nil {
			n, err := c.WriteRowValues(w.batch[k])
			if err == nil && n != w.rows {
				err = fmt.Errorf("%d values in a batch of %d rows", n, w.rows)
			}
			if err != nil {
				w.err = fmt.Errorf("write column %s: %w", w.cols[k].Name, err)
			}
		}
		w.batch[k], w.text[k] = w.batch[k][:0], w.text[k][:0]
	}
	w.group += w.rows
	w.rows = 0
}

func (w *Writer) endGroup() {
	if w.err == nil {
		w.err = w.w.Flush()
	}
	w.group, w.bytes = 0, 0
	w.full++
}

// Close completes the file; the underlying writer stays open.
func (w *Writer) Close() error {
	if w.rows > 0 {
		w.pass()
	}
	if w.group > 0 {
		w.endGroup()
	}
	err := w.err
	if err == nil {
		err = w.w.Close()
	}
	if w.err == nil {
		w.err = errors.New("the table is closed")
	}
	return err
}
