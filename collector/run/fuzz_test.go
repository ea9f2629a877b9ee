package run

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run/table"
)

// A hostile segment gives an error or records, without a panic and in bounded memory.
func FuzzSegment(f *testing.F) {
	dir := closedRun(f, randomRecords(21, 13), segmentBytes)
	seg := mustRead(f, dir, segmentName(0))
	id := mustOpen(f, dir).Meta.RunID
	_, size, err := splitFrame(seg[len(segmentMagic):])
	if err != nil {
		f.Fatal(err)
	}
	header := len(segmentMagic) + size
	f.Add(seg[header:], false)
	f.Add(seg[header:len(seg)-3], false)
	f.Add([]byte{0xff, 0xff, 0x3f, 1, 2, 3, 4, kindProc}, false)
	f.Add(bytes.Repeat([]byte{0xff}, 20), false)
	f.Add([]byte{kindProc, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0x3f}, true)
	f.Add([]byte{kindMessage, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 200, 1}, true)
	f.Add([]byte{kindString, 5, 'a'}, true)
	f.Fuzz(func(t *testing.T, b []byte, payload bool) {
		in := bytes.Clone(seg[:header])
		if payload { // as the content of a record with a right checksum
			in = appendFrame(in, b)
		} else {
			in = append(in, b...)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		decodeBytes(in, id)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20+64*uint64(len(b)) {
			t.Errorf("%d bytes allocated for %d bytes of input", used, len(b))
		}
		countRecords(bytes.NewReader(in), int64(len(in)), make(map[string]uint64))
	})
}

// A hostile directory gives an error or a run.
func FuzzOpen(f *testing.F) {
	dir := sealedRun(f, randomRecords(22, 11), segmentBytes, KeepSpool())
	f.Add(mustRead(f, dir, FileMetadata), mustRead(f, dir, FileSums), mustRead(f, dir, FileRequests))
	f.Add([]byte(`{"schema_version":"1.0","run_id":"x"}`), []byte(nil), []byte("{}\n{\n"))
	f.Add([]byte(`{"schema_version":"1.0","run_id":"x","sealed":{},"spool":{"damaged":[{"segment":4294967295}]}}`), []byte("00  ../x\n"), []byte("\n"))
	seg := mustRead(f, dir, segmentName(0))
	f.Fuzz(func(t *testing.T, meta, sums, requests []byte) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, dirKernel), 0o700); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, seg, dir, segmentName(0))
		mustWrite(t, meta, dir, FileMetadata)
		if sums != nil {
			mustWrite(t, sums, dir, FileSums)
		}
		mustWrite(t, requests, dir, FileRequests)
		if _, err := parseSums(sums); err != nil && len(sums) == 0 {
			t.Errorf("empty list: %v", err)
		}
		for _, skip := range []bool{false, true} {
			r, err := Open(dir, OpenOptions{SkipHashes: skip})
			if err != nil {
				continue
			}
			_ = r.Replay(nowhere{})
			_ = r.Requests(func(*Request) error { return nil })
			r.Close()
		}
	})
}

// Hostile tables in a run: pages and footer of the one of messages and of a list inside them. The run
// has only what the seeds come from, and is opened once: only the table differs from input to input.
func FuzzTables(f *testing.F) {
	var records []any
	for _, r := range randomRecords(23, 211) {
		switch r.(type) {
		case Message, Proc, IO:
			records = append(records, r)
		}
	}
	dir := sealedRun(f, records, segmentBytes)
	whole := make(map[string][]byte)
	for n := range tableEnd {
		if b, err := os.ReadFile(filepath.Join(dir, tableFile(n, 0))); err == nil {
			whole[tableFile(n, 0)] = b
		}
	}
	split := func(n int) (pages, footer []byte) {
		b := whole[tableFile(n, 0)]
		at := len(b) - 8 - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
		return b[4:at], b[at : len(b)-8]
	}
	for _, n := range []int{tableMessage, tableMessageID, tableProcText, tableIO} {
		pages, footer := split(n)
		f.Add(uint8(n), pages, footer)
	}
	f.Add(uint8(tableMessageID), []byte{}, []byte{})
	r := mustOpen(f, dir)
	f.Fuzz(func(t *testing.T, n uint8, pages, footer []byte) {
		b := append(append([]byte("PAR1"), pages...), footer...)
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(footer))), "PAR1"...)
		name := tableFile(int(n%tableEnd), 0)
		mustWrite(t, b, dir, name)
		defer func() {
			if old := whole[name]; old != nil {
				mustWrite(t, old, dir, name)
			} else if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := r.Replay(nowhere{})
		runtime.ReadMemStats(&after)
		if err != nil && !strings.Contains(err.Error(), dirKernel+"/") {
			t.Errorf("the error names no file: %v", err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 96<<20+4096*uint64(len(b)) {
			t.Errorf("%d bytes allocated for %d bytes of input", used, len(b))
		}
	})
}

// hostileRows makes well-formed tables of made-up values in dir and tells how many records they hold.
// Numbers of records go on from row to row but for what the input adds, so that most rows have a place
// and some have a wrong one.
func hostileRows(t *testing.T, dir string, in []byte) map[string]uint64 {
	octet := func() (b byte) {
		if len(in) > 0 {
			b, in = in[0], in[1:]
		}
		return b
	}
	number := func() int64 {
		v, n := binary.Varint(in)
		in = in[max(n, 0):]
		return v
	}
	var files [tableEnd]bytes.Buffer
	var tables [tableEnd]*table.Writer
	counts := make(map[string]uint64)
	for seq := int64(-1); len(in) > 0; {
		n := int(octet()) % tableEnd
		if n < tableRecords {
			seq++
			counts[kindNames[kindOfTable[n]]]++
		}
		if tables[n] == nil {
			tables[n] = table.NewWriter(&files[n], tableNames[n], tableColumns[n], nil)
		}
		seq += int64(int8(octet())) / 64
		tables[n].Int(0, seq)
		for k, c := range tableColumns[n][1:] {
			switch size := int(octet()); {
			case !c.Text && size < 128:
				tables[n].Int(k+1, int64(size))
			case !c.Text:
				tables[n].Int(k+1, number())
			case size >= 250:
				tables[n].Text(k+1, []string{fieldCmdline, fieldBound}[size%2])
			default:
				size = min(size, len(in))
				tables[n].Text(k+1, string(in[:size]))
				in = in[size:]
			}
		}
		if err := tables[n].EndRow(); err != nil {
			t.Fatal(err)
		}
	}
	for n, w := range tables {
		if w != nil {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, files[n].Bytes(), dir, tableFile(n, 0))
		}
	}
	return counts
}

// Tables that are well formed and hold values that no writer stored give an error, or each record once.
func FuzzRows(f *testing.F) {
	zeros := bytes.Repeat([]byte{0}, 24)
	for n := range tableEnd { // a row of each table alone; those of lists belong to no record
		f.Add(append([]byte{byte(n)}, zeros[:len(tableColumns[n])]...))
	}
	list := []byte{tableMessage}
	list = append(list, zeros[:len(tableColumns[tableMessage])]...)
	list = append(list, tableMessageID, 0, 2, 'i', 'd', 1, '7', tableMessageShm, 0, 1, '/', 5)
	list = append(list, tableProc)
	list = append(list, zeros[:len(tableColumns[tableProc])]...)
	f.Add(append(list, tableProcText, 0, 250, 1, 'x', tableProcText, 0, 251, 1, 'y'))
	root := f.TempDir()
	if err := os.Mkdir(filepath.Join(root, dirKernel), 0o700); err != nil {
		f.Fatal(err)
	}
	d, err := openDirectory(root)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4<<10 {
			return
		}
		defer func() {
			for n := range tableEnd {
				_ = d.remove(tableFile(n, 0))
			}
		}()
		r := &Run{Dir: root, dir: d}
		r.Meta.Spool.Records = hostileRows(t, root, in)
		want, got := uint64(0), uint64(0)
		for _, n := range r.Meta.Spool.Records {
			want += n
		}
		err := r.replayTables(&replay{sink: &taker{take: func(uint64) { got++ }}, stats: new(ReplayStats)})
		if got > want || err == nil && got != want {
			t.Errorf("%d of %d records: %v", got, want, err)
		}
		if err != nil && !errors.Is(err, ErrIntegrity) {
			t.Errorf("not an error of the run: %v", err)
		}
	})
}
