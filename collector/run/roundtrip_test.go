package run

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// collected keeps copies of what a sink was given, in order.
type collected struct{ all []any }

func (c *collected) Endpoint(r *Endpoint) { c.all = append(c.all, *r) }
func (c *collected) IO(r *IO)             { c.all = append(c.all, *r) }
func (c *collected) Message(r *Message)   { c.all = append(c.all, *r) }
func (c *collected) Gap(r *Gap)           { c.all = append(c.all, *r) }
func (c *collected) Base(r *Base)         { c.all = append(c.all, *r) }
func (c *collected) Shm(r *Shm)           { c.all = append(c.all, *r) }
func (c *collected) OffCPU(r *OffCPU)     { c.all = append(c.all, *r) }
func (c *collected) Proc(r *Proc)         { c.all = append(c.all, *r) }
func (c *collected) Net(r *Net)           { c.all = append(c.all, *r) }
func (c *collected) Loss(r *Loss)         { c.all = append(c.all, *r) }
func (c *collected) Note(r *Note)         { c.all = append(c.all, *r) }

// put passes a record to the sink method of its type.
func put(s Sink, r any) {
	switch r := r.(type) {
	case Endpoint:
		s.Endpoint(&r)
	case IO:
		s.IO(&r)
	case Message:
		s.Message(&r)
	case Gap:
		s.Gap(&r)
	case Base:
		s.Base(&r)
	case Shm:
		s.Shm(&r)
	case OffCPU:
		s.OffCPU(&r)
	case Proc:
		s.Proc(&r)
	case Net:
		s.Net(&r)
	case Loss:
		s.Loss(&r)
	case Note:
		s.Note(&r)
	default:
		panic(fmt.Sprintf("no sink method for %T", r))
	}
}

var recordTypes = []reflect.Type{
	reflect.TypeFor[Endpoint](), reflect.TypeFor[IO](), reflect.TypeFor[Message](), reflect.TypeFor[Gap](),
	reflect.TypeFor[Base](), reflect.TypeFor[Shm](), reflect.TypeFor[OffCPU](), reflect.TypeFor[Proc](),
	reflect.TypeFor[Net](), reflect.TypeFor[Loss](), reflect.TypeFor[Note](),
}

// random fills every field of a record by reflection, so that a field that is added to the schema
// and forgotten in the codec does not survive the round trip.
func random(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for k := range v.NumField() {
			random(r, v.Field(k))
		}
	case reflect.Slice:
		if n := r.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for k := range n {
				random(r, v.Index(k))
			}
		}
	case reflect.String:
		v.SetString(randomText(r))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(randomBits(r) >> (64 - v.Type().Bits()))
	case reflect.Int32, reflect.Int64:
		n := int64(randomBits(r)) >> (64 - v.Type().Bits())
		if v.Type().Bits() == 64 {
			n /= 4 // times are within 2^62 of the base
		}
		v.SetInt(n)
	default:
		panic("schema has a kind of field this test does not fill: " + v.Kind().String())
	}
}

func randomBits(r *rand.Rand) uint64 {
	switch r.IntN(6) {
	case 0:
		return 0
	case 1:
		return 1<<64 - 1
	case 2:
		return 1 << 63
	}
	return r.Uint64()
}

func randomText(r *rand.Rand) string {
	switch r.IntN(8) {
	case 0:
		return ""
	case 1: // longer than what the string table takes
		return string(slices.Repeat([]byte{'x'}, 129+r.IntN(200)))
	case 2:
		return fmt.Sprintf("\x00\xff\n%d", r.IntN(1000))
	}
	return fmt.Sprintf("req-%04x", r.IntN(300))
}

func randomRecords(seed uint64, n int) []any {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]any, n)
	for k := range out {
		v := reflect.New(recordTypes[r.IntN(len(recordTypes))]).Elem()
		random(r, v)
		if io, ok := v.Addr().Interface().(*IO); ok && r.IntN(2) == 0 {
			io.EnterNS, io.ExitNS, io.Captured = 2_276_597_435_232, 2_276_597_440_001, 20
			io.Ret = 20
		}
		out[k] = v.Interface()
	}
	return out
}

func mustCreate(t testing.TB, dir string, limit int64) *Writer {
	t.Helper()
	w, err := create(dir, Metadata{}, limit, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustOpen(t testing.TB, dir string) *Run {
	t.Helper()
	r, err := Open(dir, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func replayed(t testing.TB, r *Run) []any {
	t.Helper()
	var c collected
	if err := r.Replay(&c); err != nil {
		t.Fatal(err)
	}
	return c.all
}

func diffRecords(t testing.TB, got, want []any) {
	t.Helper()
	for k := range min(len(got), len(want)) {
		if !reflect.DeepEqual(got[k], want[k]) {
			t.Fatalf("record %d:\n got %+v\nwant %+v", k, got[k], want[k])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("got %d records, want %d", len(got), len(want))
	}
}

func TestRoundTripOfEveryKind(t *testing.T) {
	for seed := range uint64(5) {
		dir := filepath.Join(t.TempDir(), "run")
		w := mustCreate(t, dir, 300<<10) // several segments
		want := randomRecords(seed, 6007)
		for _, r := range want {
			put(w, r)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Seal(dir); err != nil {
			t.Fatal(err)
		}
		r := mustOpen(t, dir)
		if len(r.Notes) != 0 {
			t.Errorf("notes on a clean run: %+v", r.Notes)
		}
		diffRecords(t, replayed(t, r), want)
		diffRecords(t, replayed(t, r), want) // a run can be replayed again
		kinds := make(map[string]bool)
		for k := range r.Meta.Spool.Records {
			kinds[k] = true
		}
		if len(kinds) != len(recordTypes) || r.Meta.Spool.Segments < 2 {
			t.Errorf("account: %d kinds in %d segments, want %d in 2 or more", len(kinds), r.Meta.Spool.Segments, len(recordTypes))
		}
	}
}

// A sink may keep the strings and slices it was given: they are not written again.
func TestReplayedSlicesMayBeKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w := mustCreate(t, dir, segmentBytes)
	var want []any
	for k := range 1009 {
		want = append(want, Message{EP: 1, IDs: []IDRef{{"a", fmt.Sprint(k)}, {"b", fmt.Sprint(k + 1)}}, Shm: []ShmRef{{fmt.Sprint(k), 3}}})
	}
	for _, r := range want {
		put(w, r)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	diffRecords(t, replayed(t, mustOpen(t, dir)), want)
}

func TestStringTableOverflow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w := mustCreate(t, dir, segmentBytes)
	var want []any
	for k := range maxTable + 1009 {
		want = append(want, Shm{Name: fmt.Sprintf("psm_%d", k)})
	}
	want = append(want, want...)
	for _, r := range want {
		put(w, r)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	diffRecords(t, replayed(t, mustOpen(t, dir)), want)
}

func TestOversizeRecordIsALoss(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w := mustCreate(t, dir, segmentBytes)
	big := Note{AtNS: Mono(), Text: string(make([]byte, maxRecord+1))}
	small := Note{AtNS: big.AtNS + 1, Text: "after"}
	w.Note(&big)
	w.Note(&small)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := replayed(t, mustOpen(t, dir))
	if len(got) != 2 || got[1] != small {
		t.Fatalf("got %d records", len(got))
	}
	l := got[0].(Loss)
	if l.Reason != "spool" || l.What != "note" || l.N != 1 || l.Bytes < maxRecord || l.FromNS != big.AtNS {
		t.Errorf("loss %+v", l)
	}
}

func TestWriterAllocatesNothingPerRecord(t *testing.T) {
	w := mustCreate(t, filepath.Join(t.TempDir(), "run"), segmentBytes)
	defer w.Close()
	io, msg := sampleIO(), sampleMessage()
	w.IO(io)
	w.Message(msg)
	if n := testing.AllocsPerRun(20000, func() { w.IO(io); w.Message(msg) }); n != 0 {
		t.Errorf("%v allocations for two records", n)
	}
}

func sampleIO() *IO {
	now := Mono()
	return &IO{EnterNS: now, ExitNS: now + 12345, TGID: 41234, TID: 41260, FD: 37, Call: 45, Dir: Recv, EP: 113, Ret: 412, Pos: 123456, Captured: 412, Queued: 512}
}

func sampleMessage() *Message {
	now := Mono()
	return &Message{EP: 113, Dir: Recv, Pos: 123456, End: 123868, FirstEnterNS: now, FirstExitNS: now + 4000, LastEnterNS: now, LastExitNS: now + 4000,
		TGID: 41234, TID: 41260, Proto: "zmtp", Type: "data_ready", From: "thinker", To: "talker", Chunk: -1,
		IDs: []IDRef{{"request_id", "8e272bcb-1f4d-4c55-9f20-c2a4ea67a2d1"}}, Shm: []ShmRef{{"psm_1a2b3c4d", 300000}}, Bytes: 412, Decoder: "zmtp/1"}
}

func benchRun(b *testing.B, put func(*Writer)) {
	dir := filepath.Join(b.TempDir(), "run")
	w := mustCreate(b, dir, segmentBytes)
	n := 0
	for b.Loop() {
		put(w)
		n++
	}
	b.StopTimer()
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(w.meta.Spool.Bytes)/float64(n), "B/record")
}

func BenchmarkWriteIO(b *testing.B) {
	r := sampleIO()
	benchRun(b, func(w *Writer) { r.Pos += 412; r.EnterNS += 999; r.ExitNS += 999; w.IO(r) })
}

func BenchmarkWriteMessage(b *testing.B) {
	r := sampleMessage()
	benchRun(b, func(w *Writer) { r.Pos += 412; r.LastExitNS += 999; w.Message(r) })
}

type nowhere struct{}

func (nowhere) Endpoint(*Endpoint) {}
func (nowhere) IO(*IO)             {}
func (nowhere) Message(*Message)   {}
func (nowhere) Gap(*Gap)           {}
func (nowhere) Base(*Base)         {}
func (nowhere) Shm(*Shm)           {}
func (nowhere) OffCPU(*OffCPU)     {}
func (nowhere) Proc(*Proc)         {}
func (nowhere) Net(*Net)           {}
func (nowhere) Loss(*Loss)         {}
func (nowhere) Note(*Note)         {}

func TestMain(m *testing.M) {
	if dir := os.Getenv("STAGELINE_TEST_WRITER"); dir != "" {
		os.Exit(killedWriter(dir))
	}
	if dir := os.Getenv("STAGELINE_TEST_SEALER"); dir != "" {
		os.Exit(killedSealer(dir))
	}
	os.Exit(m.Run())
}
