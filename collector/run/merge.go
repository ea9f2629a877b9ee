package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/stageline/stageline/collector/run/table"
)

// tableReader reads the parts of one table. After advance, the row of its kind in rows holds what
// seq says; a Sink is given it when its turn comes.
type tableReader struct {
	dir  *directory
	n    int
	part uint32
	f    *os.File
	c    columns
	seq  int64
	live bool // seq is a row that was not used yet
	rows uint64
}

// advance reads the next row into rows.
func (t *tableReader) advance(r *rows) error {
	for t.c.r != nil {
		ok, err := t.c.r.Next()
		if err != nil {
			return t.failed(err)
		}
		if !ok {
			if err := t.open(); err != nil {
				return err
			}
			continue
		}
		before := t.seq
		r.row(&t.c, t.n, &t.seq)
		if t.c.bad || t.seq < before || t.seq == before && t.n < tableRecords && t.live {
			return t.failed(&table.CorruptError{Row: t.c.r.Row(), Why: errUndecodable.Error()})
		}
		t.live = true
		t.rows++
		return nil
	}
	t.live = false
	return nil
}

// open begins the next part; without one the table has ended.
func (t *tableReader) open() error {
	t.close()
	f, err := t.dir.open(tableFile(t.n, t.part), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t.f = f
	t.part++
	st, err := f.Stat()
	if err != nil {
		return err
	}
	t.c.r, err = table.Open(f, st.Size(), tableColumns[t.n])
	if err != nil {
		return t.failed(err)
	}
	return nil
}

func (t *tableReader) close() {
	if t.c.r != nil {
		t.c.r.Close()
		t.c.r = nil
	}
	if t.f != nil {
		t.f.Close()
		t.f = nil
	}
}

func (t *tableReader) failed(err error) error {
	if c := new(table.CorruptError); errors.As(err, &c) {
		return fmt.Errorf("%w: %s: %w", ErrIntegrity, tableFile(t.n, t.part-1), err)
	}
	return fmt.Errorf("%s: %w", tableFile(t.n, t.part-1), err)
}

// merge puts the tables of a run in recording order.
type merge struct {
	tables [tableEnd]tableReader
	re     *replay
	next   int64 // number of the next record

	ids []IDRef // of the record being put together
	shm []ShmRef
}

// replayTables passes the records of the tables on and checks that none is missing.
func (r *Run) replayTables(re *replay) error {
	m := &merge{re: re}
	defer func() {
		for n := range m.tables {
			m.tables[n].close()
		}
	}()
	for n := range m.tables {
		t := &m.tables[n]
		t.dir, t.n, t.seq = r.dir, n, -1
		if err := t.open(); err != nil {
			return err
		}
		if err := t.advance(&re.rows); err != nil {
			return err
		}
	}
	for {
		t, until := m.first()
		if t == nil {
			return m.complete(r.Meta.Spool.Records)
		}
		// Once at least: two tables may claim the same number, and pass tells.
		for again := true; again; again = t.live && t.seq < until {
			if err := m.pass(t); err != nil {
				return err
			}
		}
	}
}

// first is the table that holds the next record, and up to which number it goes on without another.
func (m *merge) first() (first *tableReader, until int64) {
	until = 1<<63 - 1
	for n := range m.tables[:tableRecords] {
		t := &m.tables[n]
		switch {
		case !t.live:
		case first == nil || t.seq < first.seq:
			if first != nil {
				until = first.seq
			}
			first = t
		case t.seq < until:
			until = t.seq
		}
	}
	return first, until
}

// pass delivers the record that t holds and reads its next one.
func (m *merge) pass(t *tableReader) error {
	if t.seq != m.next {
		return fmt.Errorf("%w: %s: record %d comes where record %d should", ErrIntegrity, tableFile(t.n, t.part-1), t.seq, m.next)
	}
	m.next++
	var err error
	switch t.n {
	case tableMessage:
		err = m.messageLists(t.seq)
	case tableProc:
		err = m.procLists(t.seq)
	}
	if err != nil {
		return err
	}
	m.re.deliver(uint64(kindOfTable[t.n]))
	return t.advance(&m.re.rows)
}

// elements calls take for each element of record seq in the table of a list.
func (m *merge) elements(n int, seq int64, take func() bool) error {
	t := &m.tables[n]
	for t.live && t.seq <= seq {
		if t.seq < seq || !take() {
			return fmt.Errorf("%w: %s: row %d belongs to no record", ErrIntegrity, tableFile(n, t.part-1), t.c.r.Row())
		}
		if err := t.advance(&m.re.rows); err != nil {
			return err
		}
	}
	return nil
}

// maxElements bounds a list: no record of the spool can be longer.
const maxElements = maxRecord

func (m *merge) messageLists(seq int64) error {
	re := m.re
	m.ids, m.shm = m.ids[:0], m.shm[:0]
	err := m.elements(tableMessageID, seq, func() bool {
		m.ids = append(m.ids, re.id)
		return len(m.ids) <= maxElements
	})
	if err != nil {
		return err
	}
	err = m.elements(tableMessageShm, seq, func() bool {
		m.shm = append(m.shm, re.shmRef)
		return len(m.shm) <= maxElements
	})
	re.message.IDs, re.message.Shm = cut(&re.c.idSlab, len(m.ids)), cut(&re.c.shmSlab, len(m.shm))
	copy(re.message.IDs, m.ids)
	copy(re.message.Shm, m.shm)
	return err
}

// Values of procText.Field.
const (
	fieldCmdline = "cmdline"
	fieldBound   = "bound"
)

func (m *merge) procLists(seq int64) error {
	p := &m.re.proc
	p.Cmdline, p.Bound = nil, nil
	return m.elements(tableProcText, seq, func() bool {
		switch m.re.text.Field {
		case fieldCmdline:
			p.Cmdline = append(p.Cmdline, m.re.text.Text)
		case fieldBound:
			p.Bound = append(p.Bound, m.re.text.Text)
		default:
			return false
		}
		return len(p.Cmdline)+len(p.Bound) <= maxElements
	})
}

// complete compares what was read with what was sealed.
func (m *merge) complete(sealed map[string]uint64) error {
	for n := range m.tables {
		t := &m.tables[n]
		if n >= tableRecords {
			if t.live {
				return fmt.Errorf("%w: %s: row %d belongs to no record", ErrIntegrity, tableFile(n, t.part-1), t.c.r.Row())
			}
			continue
		}
		if want := sealed[kindNames[kindOfTable[n]]]; t.rows != want {
			return fmt.Errorf("%w: %d records of %s in %s/, %d were sealed", ErrIntegrity, t.rows, tableNames[n], dirKernel, want)
		}
	}
	return nil
}
