package run

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
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

// Hostile tables in a run: pages and footer of the one of messages and of a list inside them.
func FuzzTables(f *testing.F) {
	dir := sealedRun(f, randomRecords(23, 211), segmentBytes)
	split := func(n int) (pages, footer []byte) {
		b := mustRead(f, dir, tableFile(n, 0))
		at := len(b) - 8 - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
		return b[4:at], b[at : len(b)-8]
	}
	for _, n := range []int{tableMessage, tableMessageID, tableProcText, tableIO} {
		pages, footer := split(n)
		f.Add(uint8(n), pages, footer)
	}
	f.Add(uint8(tableMessageID), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, n uint8, pages, footer []byte) {
		b := append(append([]byte("PAR1"), pages...), footer...)
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(footer))), "PAR1"...)
		name := tableFile(int(n%tableEnd), 0)
		whole := mustRead(t, dir, name)
		defer mustWrite(t, whole, dir, name)
		mustWrite(t, b, dir, name)
		r, err := Open(dir, OpenOptions{SkipHashes: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = r.Replay(nowhere{})
		runtime.ReadMemStats(&after)
		if err != nil && !strings.Contains(err.Error(), dirKernel+"/") {
			t.Errorf("the error names no file: %v", err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 96<<20+4096*uint64(len(b)) {
			t.Errorf("%d bytes allocated for %d bytes of input", used, len(b))
		}
	})
}
