package export

import (
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// readTables are the strings of a file by table and number.
type readTables map[protowire.Number]map[uint64]string

// wordTable is the table of the enum's values; no field of InternedData has this number.
const wordTable protowire.Number = -1

func (r readTables) lookup(t testing.TB, table protowire.Number, id uint64) string {
	t.Helper()
	s, ok := r[table][id]
	if !ok {
		t.Fatalf("string %d of table %d is used before it is given", id, table)
	}
	return s
}

// readDescriptor reads what the file adds to the words. The message itself is taken for granted here;
// that Perfetto reads it as it is meant is for the tests by SQL.
func readDescriptor(t testing.TB, b []byte, into readTables) {
	t.Helper()
	set, _ := first(fields(t, b), descriptorSet)
	file, _ := first(fields(t, set.bytes), setFile)
	for _, e := range fields(t, file.bytes) {
		if e.num != fileEnum {
			continue
		}
		for _, v := range fields(t, e.bytes) {
			if v.num != enumValue {
				continue
			}
			vs := fields(t, v.bytes)
			id := number(vs, valueNumber)
			if _, twice := into[wordTable][id]; twice {
				t.Fatalf("word %d is given twice", id)
			}
			into[wordTable][id] = textOf(vs, declaredName)
		}
	}
}

func readNote(t testing.TB, f field, interned readTables) any {
	t.Helper()
	switch annotations[f.num].kind {
	case noteDouble:
		return math.Float64frombits(f.n)
	case noteWord:
		return interned.lookup(t, wordTable, f.n)
	case noteDistance:
		return protowire.DecodeZigZag(f.n)
	case noteInteger, noteUnsigned:
		return int64(f.n)
	}
	t.Fatalf("annotation %d has no type", f.num)
	return nil
}

// noteRows are the annotations of all slices and instants, as trace_processor names and shows them,
// but for notes, of which one slice can have several.
func (tr *readTrace) noteRows() []string {
	var out []string
	for _, s := range tr.slices {
		for name, value := range s.event.notes {
			list, ok := value.([]any)
			switch {
			case ok:
				for i := range list {
					out = append(out, fmt.Sprintf("%s %d debug.%s[%d] %v", s.Name, s.Begin, name, i, list[i]))
				}
			case name != annotations[noteNote].name:
				out = append(out, fmt.Sprintf("%s %d debug.%s %v", s.Name, s.Begin, name, value))
			}
		}
	}
	return out
}
