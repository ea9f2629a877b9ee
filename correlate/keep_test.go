package correlate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// memoryStore is a store without a file.
type memoryStore struct {
	b   []byte
	err error
}

func (s *memoryStore) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), s.err
}

func (s *memoryStore) ReadAt(p []byte, off int64) (int, error) {
	return copy(p, s.b[off:]), nil
}

// nowhere takes what is written and cannot be read.
type nowhere struct{ n int }

func (s *nowhere) Write(p []byte) (int, error) {
	s.n += len(p)
	return len(p), nil
}

func (*nowhere) ReadAt([]byte, int64) (int, error) { return 0, errors.New("no disk") }

// filler sets every field of a value to something else than zero and than the others.
type filler struct{ n int64 }

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				f.fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("t%d", f.n%97))
		if v.Type() == reflect.TypeFor[Timing]() {
			v.SetString(string(timings[f.n%int64(len(timings))]))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(f.n) / 7)
	case reflect.Uint8, reflect.Uint32:
		v.SetUint(uint64(f.n % 200))
	default:
		v.SetInt(f.n * 1_000_003 % (1 << 61))
	}
}

// Every field of a request comes back from the shelf, whatever fields there will be.
func TestShelfKeepsEveryField(t *testing.T) {
	var f filler
	full := RequestTimeline{}
	f.fill(reflect.ValueOf(&full).Elem())
	full.Visits[0].tid, full.Visits[0].batches = 7, []uint64{1, 1 << 63}
	empty := RequestTimeline{Aliases: []Alias{}, Visits: []Visit{{Blocked: []Blocked{}, Inputs: []Input{}, Outputs: []int{}}}, Hops: []Hop{}}
	early := RequestTimeline{Entry: seen(-5, "x"), Exit: bounded(1, 1<<62, 1<<62, "y"), Hops: []Hop{{ShmWrite: &[2]int64{-1, 1 << 60}}}}
	c := codec{numbers: map[string]uint64{}, names: new([]string)}
	d := decoder{names: c.names}
	for _, q := range []RequestTimeline{empty, full, {}, empty, early, full} {
		want := q
		want.Client = nil
		line := c.append(nil, &q)
		if got := d.request(line); d.bad || !reflect.DeepEqual(got, &want) {
			t.Errorf("bad %v:\n got %s\nwant %s", d.bad, encoded(t, got), encoded(t, &want))
		}
		client := full.Client
		if got := d.client(c.appendClient(nil, client)); d.bad || !reflect.DeepEqual(got, client) {
			t.Errorf("client: bad %v:\n got %+v\nwant %+v", d.bad, got, client)
		}
		for n := range line { // cut anywhere, it is bad and nothing worse
			if d.request(line[:n]); !d.bad {
				t.Fatalf("the first %d of %d bytes pass for a request", n, len(line))
			}
		}
	}
}

// loads are what a load generator says of the requests of recording.
func loads(n, stepUS int) (out []run.Request) {
	at := func(us int) *int64 { return ptr(baseNS + int64(us)*1000) }
	for i := range n {
		a := 1000 + i*stepUS
		q := run.Request{Source: "loadgen", ID: fmt.Sprintf("load-%06d", i), State: run.StateSuccess, SentNS: at(a - 10), FirstNS: at(a + 960), EndNS: at(a + 970),
			Events: []run.ReplyEvent{{MonoNS: *at(a + 960), Kind: "content", Bytes: 9}}}
		if i%10 == 3 {
			q.ID = fmt.Sprintf("unseen-%d", i) // no such request in the engine
		}
		out = append(out, q)
	}
	return out
}

func finished(t *testing.T, n, stepUS int, o Options) *Result {
	t.Helper()
	o.StageOf = byComm
	tl := New(o)
	for _, q := range loads(n, stepUS) {
		tl.Request(&q)
	}
	feed(t, tl, strings.Join(recording(n, stepUS), "\n"))
	late := fmt.Sprintf("send 2 10.11 %d-%d %d+50 submit id=load-%06d", n*stepUS+5_000_000, n*stepUS+5_000_005, n*50, 0)
	feed(t, tl, late)
	return tl.Finish()
}

// What a result reads back from its store is what it holds without one.
func TestStoreGivesWhatMemoryHolds(t *testing.T) {
	for _, apart := range []int{500, 100_000} {
		want, got := finished(t, 120, apart, Options{}), finished(t, 120, apart, Options{Store: &memoryStore{}})
		if got.Len() != want.Len() || len(got.Requests) != 0 || !reflect.DeepEqual(got.Counts, want.Counts) {
			t.Fatalf("%d requests (%d in memory), want %d", got.Len(), len(got.Requests), want.Len())
		}
		notes := 0
		for i, q := range got.All() {
			if g, w := encoded(t, q), encoded(t, &want.Requests[i]); g != w || got.ID(i) != q.ID {
				t.Fatalf("request %d (%s):\n got %s\nwant %s", i, got.ID(i), g, w)
			}
			if i%7 == 0 && encoded(t, got.Request(i)) != encoded(t, &want.Requests[i]) {
				t.Errorf("request %d differs when it is read alone", i)
			}
			notes += strings.Count(encoded(t, q), "long after its end")
		}
		if apart > 500 && notes != 1 {
			t.Errorf("%d requests say that a message came late", notes)
		}
		n := 0
		for i, a := range got.AllActivations() {
			if n++; !reflect.DeepEqual(*a, want.Activations[i]) {
				t.Errorf("activation %d: %+v, want %+v", i, *a, want.Activations[i])
			}
		}
		if n == 0 || n != len(want.Activations) {
			t.Errorf("%d activations, want %d", n, len(want.Activations))
		}
		var batches [2]bytes.Buffer
		for k, r := range []*Result{want, got} {
			for b := range r.Batches() {
				if err := json.NewEncoder(&batches[k]).Encode(b); err != nil {
					t.Fatal(err)
				}
			}
		}
		if batches[0].String() != batches[1].String() || got.Err() != nil {
			t.Errorf("batches differ (%v):\n%s\n%s", got.Err(), &batches[0], &batches[1])
		}
	}
}

// An error of the store ends the reading and is told.
func TestStoreErrors(t *testing.T) {
	for _, s := range []Store{&memoryStore{err: errors.New("no room")}, &nowhere{}} {
		r := finished(t, 10, 500, Options{Store: s})
		for range r.All() {
			t.Errorf("%T: a request was read", s)
		}
		if r.Err() == nil || r.Request(1) != nil {
			t.Errorf("%T: no error", s)
		}
	}
}

// Memory must not grow with the requests but for what finds them again.
func TestStoreBoundsMemory(t *testing.T) {
	kept := func(n int) (heap uint64, stored int64) {
		s := &nowhere{}
		tl := New(Options{StageOf: byComm, Store: s})
		for _, q := range loads(n, 20_000) {
			tl.Request(&q)
		}
		feed(t, tl, strings.Join(recording(n, 20_000), "\n"))
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		runtime.KeepAlive(tl)
		return m.HeapAlloc, tl.shelf.end
	}
	kept(200) // what is made once
	const n = 400
	few, _ := kept(n)
	many, stored := kept(8 * n)
	if stored < 8*n*300 {
		t.Fatalf("only %d bytes of %d requests were stored", stored, 8*n)
	}
	if grown := (int64(many) - int64(few)) / (7 * n); grown > 1500 {
		t.Errorf("%d bytes for each further request", grown)
	}
}
