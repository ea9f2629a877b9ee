package run

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// ErrIntegrity is returned (wrapped) when a sealed run is not what was sealed.
var ErrIntegrity = errors.New("the run is not what was sealed")

type fileSum struct {
	name string
	sum  [sha256.Size]byte
}

func (d *directory) sumFile(name string) (fileSum, int64, error) {
	out := fileSum{name: name}
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return out, 0, err
	}
	defer f.Close()
	h := sha256.New()
	st, err := f.Stat()
	if err != nil {
		return out, 0, fmt.Errorf("hash %s: %w", f.Name(), err)
	}
	n, err := io.Copy(h, io.LimitReader(f, st.Size()+1)) // one that grows would have no end
	h.Sum(out.sum[:0])
	if err == nil && n > st.Size() {
		err = errors.New("it grows while it is read")
	}
	if err != nil {
		return out, n, fmt.Errorf("hash %s: %w", f.Name(), err)
	}
	return out, n, nil
}

// writeSums writes the list in the form of sha256sum(1).
func (d *directory) writeSums(sums []fileSum) error {
	return d.replace(FileSums, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		for _, s := range sums {
			fmt.Fprintf(b, "%x  %s\n", s.sum, s.name)
		}
		return b.Flush()
	})
}

func parseSums(b []byte) ([]fileSum, error) {
	var sums []fileSum
	for n := 1; len(b) > 0; n++ {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		b = rest
		var s fileSum
		// Two digits a byte, two spaces, and a name that checkName takes.
		const at = 2*sha256.Size + 2
		if !ended || len(line) <= at || string(line[at-2:at]) != "  " {
			return nil, fmt.Errorf("%s line %d: not a hash and a name", FileSums, n)
		}
		if _, err := hex.Decode(s.sum[:], line[:at-2]); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", FileSums, n, err)
		}
		s.name = string(line[at:])
		if err := checkName(s.name); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", FileSums, n, err)
		}
		if len(sums) > 0 && sums[len(sums)-1].name >= s.name {
			return nil, fmt.Errorf("%s line %d: %s is out of order", FileSums, n, s.name)
		}
		if sums = append(sums, s); len(sums) > maxFiles {
			return nil, fmt.Errorf("%s: more than %d files", FileSums, maxFiles)
		}
	}
	return sums, nil
}

// verify compares the directory with its SHA256SUMS: the same files, the same bytes. When the records
// are in tables, segments of the spool may be left; it returns those.
func (d *directory) verify(tables bool) (left []string, err error) {
	b, err := d.small(FileSums)
	if err != nil {
		return nil, err
	}
	sums, err := parseSums(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", d.path, ErrIntegrity, err)
	}
	names, err := d.list()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIntegrity, err)
	}
	for _, name := range names {
		_, listed := slices.BinarySearchFunc(sums, name, func(s fileSum, n string) int { return bytes.Compare([]byte(s.name), []byte(n)) })
		switch {
		case listed || name == FileSums:
		case tables && isSpool(name):
			left = append(left, name)
		default:
			return nil, fmt.Errorf("%s: %w: %s was added", d.path, ErrIntegrity, name)
		}
	}
	for _, want := range sums {
		got, _, err := d.sumFile(want.name)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w: %s is gone", d.path, ErrIntegrity, want.name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", d.path, ErrIntegrity, err)
		}
		if got != want {
			return nil, fmt.Errorf("%s: %w: %s has changed (SHA-256 differs)", d.path, ErrIntegrity, want.name)
		}
	}
	return left, nil
}
