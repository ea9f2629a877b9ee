package run

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"path"
	"strings"

	"github.com/stageline/stageline/collector/run/table"
	"golang.org/x/sys/unix"
)

// converter is what turns the spool into tables, in one pass and with the memory of one row group
// for each table. Files keep a temporary name until all of them are complete and stored.
type converter struct {
	taker
	dir    *directory
	meta   map[string]string
	seq    int64
	tables [tableEnd]tableWriter
	c      columns
	digest digest
	files  []string // complete, under their temporary names
	err    error
}

type tableWriter struct {
	w    *table.Writer
	f    *os.File
	b    *bufio.Writer
	part uint32
}

func newConverter(d *directory, runID string) *converter {
	v := &converter{dir: d, meta: map[string]string{"stageline.run_id": runID, "stageline.schema": SchemaVersion}}
	for k, text := range meanings {
		v.meta[k] = text
	}
	v.digest.init()
	v.take = v.record
	return v
}

// record writes one record and the elements of its lists.
func (v *converter) record(kind uint64) {
	if v.err != nil {
		return
	}
	v.digest.add(kind, &v.rows)
	v.put(tableOfKind[kind])
	switch kind {
	case kindMessage:
		for _, v.id = range v.message.IDs {
			v.put(tableMessageID)
		}
		for _, v.shmRef = range v.message.Shm {
			v.put(tableMessageShm)
		}
	case kindProc:
		for _, s := range v.proc.Cmdline {
			v.text = procText{fieldCmdline, s}
			v.put(tableProcText)
		}
		for _, s := range v.proc.Bound {
			v.text = procText{fieldBound, s}
			v.put(tableProcText)
		}
	}
	v.seq++
}

func (v *converter) put(n int) {
	t := &v.tables[n]
	if t.w == nil && v.err == nil {
		v.err = v.begin(n)
	}
	if v.err != nil {
		return
	}
	v.c.w = t.w
	v.row(&v.c, n, &v.seq)
	if v.err = t.w.EndRow(); v.err == nil && t.w.Full() {
		v.err = v.end(n)
	}
}

func (v *converter) begin(n int) error {
	t := &v.tables[n]
	f, err := v.dir.open(tableFile(n, t.part)+suffixTemp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	t.f, t.b = f, bufio.NewWriterSize(f, 256<<10)
	t.w = table.NewWriter(t.b, tableNames[n], tableColumns[n], v.meta)
	return nil
}

// end completes and stores the file of a table.
func (v *converter) end(n int) error {
	t := &v.tables[n]
	err := t.w.Close()
	if err == nil {
		err = t.b.Flush()
	}
	if err == nil {
		err = t.f.Sync()
	}
	if e := t.f.Close(); err == nil {
		err = e
	}
	v.files = append(v.files, tableFile(n, t.part))
	t.w, t.f, t.b = nil, nil, nil
	t.part++
	return err
}

// abandon gives the space of unfinished files back.
func (v *converter) abandon() {
	for n := range v.tables {
		if t := &v.tables[n]; t.f != nil {
			_ = t.f.Close()
			_ = v.dir.remove(tableFile(n, t.part) + suffixTemp)
		}
	}
	for _, name := range v.files {
		_ = v.dir.remove(name + suffixTemp)
		_ = v.dir.remove(name)
	}
}

// finish stores all files and gives them their names.
func (v *converter) finish() error {
	for n := range v.tables {
		if v.err == nil && v.tables[n].w != nil {
			v.err = v.end(n)
		}
	}
	for _, name := range v.files {
		if v.err == nil {
			v.err = v.dir.rename(name+suffixTemp, name)
		}
	}
	return v.err
}

// convert writes the tables of a run whose spool is whole, and reads them back: the spool is given up
// only for a sequence of records that is the same.
func (d *directory) convert(meta *Metadata) (err error) {
	v := newConverter(d, meta.RunID)
	defer func() {
		if err != nil {
			v.abandon()
			err = convertError(d.path, err)
		}
	}()
	r := &Run{Dir: d.path, Meta: *meta, dir: d}
	if err := r.replaySpool(&replay{sink: v, stats: new(ReplayStats), runID: meta.RunID}); err != nil {
		return err
	}
	if err := v.finish(); err != nil {
		return err
	}
	back := &digester{}
	back.init()
	if err := r.replayTables(&replay{sink: back, stats: new(ReplayStats)}); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if back.digest.sum() != v.digest.sum() {
		return errors.New("the tables do not hold the records of the spool")
	}
	return nil
}

func convertError(dir string, err error) error {
	what := "the tables could not be written"
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		what = "no space for the tables"
	}
	return fmt.Errorf("%s: %s: %w; nothing recorded is lost: free space, about as much as %s/%s takes, and run `stageline seal %s` again, or leave the records as they are with `stageline seal --keep-spool %s`",
		dir, what, err, dir, dirKernel, dir, dir)
}

// whySpool says why the records of a run stay in the spool; "" when they need not.
func whySpool(meta *Metadata, keep bool, newer bool) string {
	switch {
	case keep:
		return "asked for"
	case len(meta.Spool.Damaged) > 0:
		return "damaged segments are kept as evidence"
	case meta.Spool.Records["unknown"] > 0 || newer:
		return "written by a newer version, whose records this one does not know"
	}
	return ""
}

// removeSpool gives the segments up, the last first: what is left by an interruption is a beginning.
func (d *directory) removeSpool() error {
	n, err := d.segments()
	if err != nil || n == 0 {
		return err
	}
	for n > 0 {
		n--
		if err := d.remove(segmentName(n)); err != nil {
			return err
		}
	}
	return d.syncDir(dirKernel)
}

func isSpool(name string) bool { return strings.HasPrefix(name, dirKernel+"/spool-") }

func isTable(name string) bool { return path.Dir(name) == dirKernel && path.Ext(name) == ".parquet" }

// digest is a hash of a sequence of records.
type digest struct {
	c codec
	h hash.Hash
}

func (g *digest) init() {
	g.c = codec{ids: make(map[string]uint32), define: func(string) {}}
	g.h = sha256.New()
}

// add codes a record as the spool does. The string table makes its code depend on the records before
// it, which are the same in an equal sequence.
func (g *digest) add(kind uint64, r *rows) {
	g.c.b = append(g.c.b[:0], byte(kind))
	g.c.record(kind, r)
	g.h.Write(g.c.b)
}

func (g *digest) sum() (out [sha256.Size]byte) {
	g.h.Sum(out[:0])
	return out
}

// digester is a Sink that makes a digest of what it is given.
type digester struct {
	taker
	digest digest
}

func (g *digester) init() {
	g.digest.init()
	g.take = func(kind uint64) { g.digest.add(kind, &g.rows) }
}
