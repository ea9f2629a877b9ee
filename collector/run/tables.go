package run

import (
	"fmt"

	"github.com/stageline/stageline/collector/run/table"
)

// A sealed run holds one table for each kind of record and one for each list inside records. seq is
// the number of the record in recording order, from 0, over all kinds; in the table of a list it
// names the record that the element belongs to. A kind without records has no file. A table that
// grows large continues in further parts.
const (
	tableEndpoint = iota
	tableIO
	tableMessage
	tableGap
	tableBase
	tableShm
	tableOffCPU
	tableProc
	tableNet
	tableLoss
	tableNote
	tableRecords // one past the tables of records; lists follow

	tableMessageID  = iota - 1
	tableMessageShm = iota - 1
	tableProcText   = iota - 1
	tableEnd        = iota - 1
)

// kindOfTable is what the records of a table are counted as.
var kindOfTable = [tableRecords]byte{
	kindEndpoint, kindIO, kindMessage, kindGap, kindBase, kindShm, kindOffCPU, kindProc, kindNet, kindLoss, kindNote,
}

var tableOfKind = func() (out [kindEnd]int) {
	for n, kind := range kindOfTable {
		out[kind] = n
	}
	return out
}()

var tableNames = [tableEnd]string{
	"endpoint", "io", "message", "gap", "base", "shm", "offcpu", "proc", "net", "loss", "note",
	"message_id", "message_shm", "proc_text",
}

// meanings explain the numbers in the tables, in the footer of each file.
var meanings = map[string]string{
	"stageline.times":     "*_ns are CLOCK_MONOTONIC nanoseconds (start_boot_ns: boot clock); 0 is unknown; metadata.json has the offset to wall time",
	"stageline.seq":       "number of the record in recording order over all tables; in message_id, message_shm and proc_text of the record that the row belongs to",
	"stageline.dir":       "1 send, 2 recv",
	"stageline.transport": "0 unknown, 1 unix, 2 unix-dgram, 3 tcp, 4 udp, 5 pipe, 6 eventfd, 7 shm, 8 other",
	"stageline.call":      "x86-64 system call number",
	"stageline.unsigned":  "64-bit unsigned numbers (inode, addr, arg0, arg1, pos) keep their bits in int64",
	"stageline.text":      "a byte b that is not UTF-8 is the rune U+EF00+b",
}

func tableFile(n int, part uint32) string {
	return fmt.Sprintf("%s/%s-%05d.parquet", dirKernel, tableNames[n], part)
}

// row passes the columns of a table's row through c.
func (r *rows) row(c *columns, n int, seq *int64) {
	c.k = 0
	num(c, "seq", varied, seq)
	switch n {
	case tableEndpoint:
		c.endpoint(&r.endpoint)
	case tableIO:
		c.io(&r.io)
	case tableMessage:
		c.message(&r.message)
	case tableGap:
		c.gap(&r.gap)
	case tableBase:
		c.baseOf(&r.base)
	case tableShm:
		c.shm(&r.shm)
	case tableOffCPU:
		c.offCPU(&r.offCPU)
	case tableProc:
		c.proc(&r.proc)
	case tableNet:
		c.net(&r.net)
	case tableLoss:
		c.loss(&r.loss)
	case tableNote:
		c.note(&r.note)
	case tableMessageID:
		c.idRef(&r.id)
	case tableMessageShm:
		c.shmRef(&r.shmRef)
	case tableProcText:
		c.procText(&r.text)
	}
}

// tableColumns is the schema of each table.
var tableColumns = func() (out [tableEnd][]table.Column) {
	for n := range out {
		var c columns
		var seq int64
		new(rows).row(&c, n, &seq)
		out[n] = c.declared
	}
	return out
}()
