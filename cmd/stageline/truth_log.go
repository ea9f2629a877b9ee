package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
)

// truthLog is a truth log of which the requests are read one at a time: a line of it may stand
// anywhere, so that the places of those of each request are kept.
type truthLog struct {
	f      *os.File
	whole  *truth          // what holds for all; no visits and hops
	types  map[string]bool // message types
	number map[string]uint32
	lines  [][]byte // by request: varints of offset, as difference to the one before, and length
	lastAt []int64  // by request

	// owners are requests by the hash of a further name: two names with one hash have requests read
	// together, which changes nothing.
	owners map[uint64]uint32
	seed   maphash.Seed
}

// openTruth goes through a truth log once: one JSON object a line, of kind meta, visit, hop or request.
func openTruth(path string) (_ *truthLog, err error) {
	f, err := openWhole(path)
	if err != nil {
		return nil, fmt.Errorf("open truth: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	l := &truthLog{f: f, whole: newTruth(), types: map[string]bool{}, number: map[string]uint32{}, owners: map[uint64]uint32{}, seed: maphash.MakeSeed()}
	var at, end int64
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	sc.Split(func(b []byte, eof bool) (int, []byte, error) {
		n, line, err := bufio.ScanLines(b, eof)
		at, end = end, end+int64(n)
		return n, line, err
	})
	for n := 1; sc.Scan(); n++ {
		if err := l.note(sc.Bytes(), at); err != nil {
			return nil, fmt.Errorf("truth %s line %d: %w", path, n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read truth %s: %w", path, err)
	}
	if len(l.whole.stages) == 0 || len(l.lines) == 0 {
		return nil, fmt.Errorf("truth %s names %d stages and %d requests; it must hold both", path, len(l.whole.stages), len(l.lines))
	}
	return l, nil
}

// note keeps the place of a line, and of what it says what concerns all.
func (l *truthLog) note(line []byte, at int64) error {
	w := l.whole
	id, err := w.line(line)
	if err != nil || id == "" {
		return err
	}
	i, known := l.number[id]
	if !known {
		i = uint32(len(l.lines))
		l.number[id] = i
		l.lines, l.lastAt = append(l.lines, nil), append(l.lastAt, 0)
	}
	b := binary.AppendUvarint(l.lines[i], uint64(at-l.lastAt[i]))
	l.lines[i], l.lastAt[i] = binary.AppendUvarint(b, uint64(len(line))), at
	for _, h := range w.hops[id] {
		l.types[h.Type] = true
	}
	for name := range w.owner {
		l.owners[maphash.String(l.seed, name)] = i
	}
	clear(w.visits)
	clear(w.hops)
	clear(w.messages)
	clear(w.owner)
	return nil
}

func (l *truthLog) Len() int { return len(l.lines) }

// of is the numbers of the requests that names may belong to.
func (l *truthLog) of(names []string) (out []uint32) {
	for _, n := range names {
		if i, ok := l.number[n]; ok {
			out = append(out, i)
		}
		if i, ok := l.owners[maphash.String(l.seed, n)]; ok {
			out = append(out, i)
		}
	}
	return out
}

// read reads some requests, by their numbers in order.
func (l *truthLog) read(numbers []int) (*truth, error) {
	t := newTruth()
	t.source, t.stages, t.inHand, t.numbers = l.whole.source, l.whole.stages, l.whole.inHand, numbers
	var at []truthPlace
	for _, i := range numbers {
		at = appendPlaces(at, l.lines[i])
	}
	slices.SortFunc(at, func(a, b truthPlace) int { return int(min(max(a.at-b.at, -1), 1)) }) // as if read as a whole
	ids := make([]string, len(numbers))
	var buf []byte
	for _, p := range at {
		buf = slices.Grow(buf[:0], p.n)[:p.n]
		if _, err := l.f.ReadAt(buf, p.at); err != nil {
			return nil, fmt.Errorf("read truth again: %w", err)
		}
		id, err := t.line(buf)
		if err != nil {
			return nil, fmt.Errorf("read truth again: it has changed: %w", err)
		}
		if k, found := slices.BinarySearch(numbers, int(l.number[id])); found {
			ids[k] = id
		}
	}
	t.requests = ids
	t.sort()
	return t, nil
}

type truthPlace struct {
	at int64
	n  int
}

func appendPlaces(out []truthPlace, b []byte) []truthPlace {
	var last int64
	for len(b) > 0 {
		d, k := binary.Uvarint(b)
		n, m := binary.Uvarint(b[k:])
		last, b = last+int64(d), b[k+m:]
		out = append(out, truthPlace{last, int(n)})
	}
	return out
}

func (l *truthLog) Close() error { return l.f.Close() }

// readTruth reads a truth log as a whole.
func readTruth(path string) (*truth, error) {
	l, err := openTruth(path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	all := make([]int, l.Len())
	for i := range all {
		all[i] = i
	}
	return l.read(all)
}

// openWhole opens a file that can be read at any place: what cannot, such as a pipe, is copied.
func openWhole(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Mode().IsRegular() {
		return f, nil
	}
	defer f.Close()
	if err != nil {
		return nil, err
	}
	to, err := nameless(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", path, err)
	}
	if _, err = io.Copy(to, f); err == nil {
		_, err = to.Seek(0, io.SeekStart)
	}
	if err != nil {
		to.Close()
		return nil, fmt.Errorf("copy %s: %w", path, err)
	}
	return to, nil
}
