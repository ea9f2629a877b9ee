package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
)

var testColumns = []Column{{Name: "at"}, {Name: "few", Repeats: true}, {Name: "word", Text: true, Repeats: true}, {Name: "text", Text: true}}

type row struct {
	At   int64  `parquet:"at"`
	Few  int64  `parquet:"few"`
	Word string `parquet:"word"`
	Text string `parquet:"text"`
}

func write(t testing.TB, rows []row) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, "test", testColumns, map[string]string{"k": "v"})
	for _, r := range rows {
		w.Int(0, r.At)
		w.Int(1, r.Few)
		w.Text(2, r.Word)
		w.Text(3, r.Text)
		if err := w.EndRow(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(b []byte) (rows []row, err error) {
	r, err := Open(bytes.NewReader(b), int64(len(b)), testColumns)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		ok, err := r.Next()
		if !ok {
			return rows, err
		}
		rows = append(rows, row{r.Int(0), r.Int(1), r.Text(2), r.Text(3)})
	}
}

func someRows(n int) []row {
	r := rand.New(rand.NewPCG(uint64(n), 3))
	rows := make([]row, n)
	for k := range rows {
		rows[k] = row{At: int64(k) * 1000, Few: r.Int64N(5), Word: fmt.Sprint("w", r.IntN(9)), Text: strings.Repeat("x", r.IntN(20))}
		switch r.IntN(50) {
		case 0:
			rows[k].At = int64(r.Uint64())
		case 1:
			rows[k].Few = math.MinInt64
		case 2:
			rows[k].Text = "\xff\x00\xee\xbe\x80\xee\xbf"
		case 3:
			rows[k].Word = fmt.Sprint(r.Uint64())
		}
	}
	return rows
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 129, batchRows, batchRows + 1, groupRows + 17} {
		want := someRows(n)
		got, err := read(write(t, want))
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d rows: %d back, %v", n, len(got), err)
		}
	}
}

// Texts of the largest size, alone and many, and dictionaries that are given up.
func TestLargeTexts(t *testing.T) {
	var want []row
	for k := range 40 {
		want = append(want, row{Word: strings.Repeat(string(rune('a'+k)), MaxText/16), Text: strings.Repeat("y", MaxText/8)})
	}
	want = append(want, row{Word: strings.Repeat("w", MaxText), Text: strings.Repeat("z", MaxText)})
	got, err := read(write(t, want))
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%d of %d rows, %v", len(got), len(want), err)
	}
	w := NewWriter(&bytes.Buffer{}, "test", testColumns[3:], nil)
	w.Text(0, strings.Repeat("x", MaxText+1))
	if err := w.EndRow(); err == nil {
		t.Error("a text that no reader takes was written")
	}
}

// The files are Parquet to others, too.
func TestParquetGoReadsIt(t *testing.T) {
	want := someRows(3001)
	b := write(t, want)
	for k := range want {
		want[k].Word, want[k].Text = Escape(want[k].Word), Escape(want[k].Text)
	}
	got, err := parquet.Read[row](bytes.NewReader(b), int64(len(b)))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d rows, %v", len(got), err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range f.Schema().Fields() {
		names = append(names, c.Name())
	}
	if v, _ := f.Lookup("k"); v != "v" || !slices.Equal(names, []string{"at", "few", "word", "text"}) {
		t.Errorf("metadata %q, columns %q", v, names)
	}
}

func TestEscape(t *testing.T) {
	for s, want := range map[string]string{
		"":             "",
		"plain ü 世":    "plain ü 世",
		"\xff":         "\uefff",
		"a\x80b":       "a\uef80b",
		"\uef80":       "\uefee\uefbe\uef80",
		"\uee00\uf000": "\uee00\uf000",
		"\ufffd":       "\ufffd",
	} {
		got := Escape(s)
		if got != want || !utf8.ValidString(got) || Unescape(got) != s {
			t.Errorf("Escape(%q) = %q, want %q; back %q", s, got, want, Unescape(got))
		}
	}
}

func TestDamage(t *testing.T) {
	whole := write(t, someRows(97))
	footer := len(whole) - 8 - int(binary.LittleEndian.Uint32(whole[len(whole)-8:]))
	for at := range whole {
		b := slices.Clone(whole)
		b[at] ^= 1 << (at % 8)
		rows, err := read(b)
		var c *CorruptError
		switch {
		case err != nil && !errors.As(err, &c):
			t.Fatalf("flip in byte %d: not an error of the file: %v", at, err)
		case err == nil && at >= 4 && at < footer && at > 100 && !sameRows(rows, whole):
			t.Fatalf("flip in byte %d: wrong rows", at)
		case err != nil && c.Row > 97:
			t.Fatalf("flip in byte %d: %v", at, err)
		}
	}
	for n := range len(whole) {
		if n%7 == 0 {
			if _, err := read(whole[:n]); err == nil {
				t.Fatalf("cut at %d: read", n)
			}
		}
	}
}

func sameRows(rows []row, whole []byte) bool {
	want, err := read(whole)
	return err == nil && slices.Equal(rows, want)
}

func TestColumnsMustFit(t *testing.T) {
	b := write(t, someRows(3))
	for want, cols := range map[string][]Column{
		"no column missing":                      {{Name: "missing"}},
		"column at is not a required BYTE_ARRAY": {{Name: "at", Text: true}},
		"column text is not a required INT64":    {{Name: "text"}},
	} {
		if _, err := Open(bytes.NewReader(b), int64(len(b)), cols); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	r, err := Open(bytes.NewReader(b), int64(len(b)), []Column{{Name: "new", Later: true}, {Name: "few"}, {Name: "newer", Text: true, Later: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for k, want := range someRows(3) {
		if ok, err := r.Next(); !ok || err != nil || r.Int(0) != 0 || r.Int(1) != want.Few || r.Text(2) != "" {
			t.Errorf("row %d of a file that lacks later columns: %v", k, err)
		}
	}
	var other bytes.Buffer
	if err := parquet.Write(&other, []struct{ At *int64 }{{nil}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(bytes.NewReader(other.Bytes()), int64(other.Len()), []Column{{Name: "At"}}); err == nil {
		t.Error("an optional column was taken")
	}
}

// What a Reader holds does not grow with the file.
func TestReaderHoldsOnePage(t *testing.T) {
	b := write(t, someRows(3*groupRows))
	r, err := Open(bytes.NewReader(b), int64(len(b)), testColumns)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	runtime.GC()
	runtime.GC() // pools of the writer are empty after two
	var least, most uint64 = 1 << 62, 0
	for n := 0; ; n++ {
		if ok, err := r.Next(); err != nil {
			t.Fatal(err)
		} else if !ok {
			break
		}
		_, _, _, _ = r.Int(0), r.Int(1), r.Text(2), r.Text(3)
		if n%(groupRows/4) == groupRows/8 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			least, most = min(least, m.HeapAlloc), max(most, m.HeapAlloc)
		}
	}
	if most-least > 4<<20 {
		t.Errorf("between %d and %d bytes in use", least, most)
	}
}

// used is how much reading a file allocates.
func used(read func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// allowed is what a file of a size may make a Reader allocate, in all: pages decompress and runs
// expand, but within the limits of one page for each.
func allowed(size int) uint64 { return 64<<20 + 4096*uint64(size) }

func fixed(b, footer []byte) []byte {
	out := append(append([]byte("PAR1"), b...), footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	return append(out, "PAR1"...)
}

// A hostile file gives an error or rows, without a panic and in bounded memory.
func FuzzReader(f *testing.F) {
	for _, n := range []int{0, 3, 200} {
		whole := write(f, someRows(n))
		at := len(whole) - 8 - int(binary.LittleEndian.Uint32(whole[len(whole)-8:]))
		f.Add(whole[4:at], whole[at:len(whole)-8])
	}
	f.Add([]byte{}, []byte{0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07})
	f.Add([]byte{}, bytes.Repeat([]byte{0x1c}, 2000))
	f.Fuzz(func(t *testing.T, pages, footer []byte) {
		b := fixed(pages, footer)
		if n := used(func() { read(b) }); n > allowed(len(b)) {
			t.Errorf("%d bytes allocated for a file of %d", n, len(b))
		}
	})
}

// A hostile page, with the checksum right and uncompressed, in each encoding.
func FuzzPage(f *testing.F) {
	f.Add([]byte{128, 1, 4, 3, 0, 0, 0, 0, 0, 0, 2}, 3, uint8(0))
	f.Add([]byte{1, 6, 0, 3, 0x55}, 11, uint8(1))
	f.Add([]byte{32, 0xff, 0xff, 0x0f, 0, 0, 0, 0}, 1000, uint8(1))
	f.Add([]byte{1, 0, 0, 0, 'x', 0, 0, 0, 0}, 2, uint8(2))
	f.Add(bytes.Repeat([]byte{1}, 24), 3, uint8(3))
	f.Add([]byte("000\xed\xa8"), 3, uint8(37)) // a worker once hung on this, under load
	f.Fuzz(func(t *testing.T, b []byte, n int, how uint8) {
		if n < 0 || n > maxPageValues {
			return
		}
		c := &column{Column: Column{Text: how%2 == 0}, intDict: []int64{5, 7}, textDict: []string{"a", "b", "c"}}
		var err error
		spent := used(func() {
			switch how % 4 {
			case 0:
				c.ints, err = deltaInts(nil, b, n)
			case 1:
				err = c.lookUp(b, n)
			case 2:
				c.texts, err = plainTexts(nil, b, n)
			case 3:
				c.ints, err = plainInts(nil, b, n)
			}
		})
		if err == nil && len(c.ints)+len(c.texts) != n {
			t.Errorf("%d values of %d without an error", len(c.ints)+len(c.texts), n)
		}
		if spent > 1<<20+64*uint64(n)+64*uint64(len(b)) {
			t.Errorf("%d bytes allocated for %d values in %d bytes", spent, n, len(b))
		}
	})
}
