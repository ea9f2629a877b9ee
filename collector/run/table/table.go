// Package table writes and reads flat Parquet files: required columns of 64-bit integers and of
// text, zstd, rows in the order in which they were written.
//
// Any Parquet reader can read the files. The Reader here reads only what the Writer writes, because
// it must be able to face a file that somebody made up: it holds one page of each column, allocates
// nothing that the file does not really contain (a general reader believes the counts in a page,
// and eight bytes may claim 2^31 values), and answers what is wrong with an error that names the
// row. Parquet's own checksums of pages are compared.
//
// Text that is not UTF-8, which the STRING type of Parquet does not allow, is stored as Escape
// returns it; both sides do this by themselves.
package table

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Column describes a column.
type Column struct {
	Name string
	Text bool // else a 64-bit integer
	// Repeats says that few different values are expected: they are then stored once for each row
	// group. Else integers are stored as differences from row to row, text in full.
	Repeats bool
	// Later says that files of an earlier version lack the column: its values are then 0 or "".
	Later bool
}

// Limits of what a Reader takes. The Writer stays far below them.
const (
	maxFooter     = 1 << 20
	maxColumns    = 256
	maxPage       = 16 << 20 // bytes, compressed or not
	maxPageValues = 1 << 18
	maxGroupRows  = 1 << 20
	// MaxText bounds a text, in bytes as stored.
	MaxText = 4 << 20
)

// CorruptError says what is wrong with a file.
type CorruptError struct {
	Row    int64 // first row that cannot be read; -1 when the file as a whole cannot
	Column string
	Why    string
}

func (e *CorruptError) Error() string {
	var b strings.Builder
	if e.Row >= 0 {
		fmt.Fprintf(&b, "row %d: ", e.Row)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, "column %s: ", e.Column)
	}
	return b.String() + e.Why
}

// A byte b that is no part of UTF-8 is stored as the rune escapeBase+b, of a block for private use;
// runes of that block are themselves stored byte by byte, so that Unescape finds what was there.
const (
	escapeBase  = 0xef00
	escapeFirst = escapeBase + 0x80
	escapeLast  = escapeBase + 0xff
)

// escaped reports whether s may hold runes of the block, which are EE BE xx and EE BF xx in UTF-8.
func escaped(s string) bool {
	for at := 0; ; {
		i := strings.IndexByte(s[at:], 0xee)
		if i < 0 {
			return false
		}
		if at += i + 1; at < len(s) && (s[at] == 0xbe || s[at] == 0xbf) {
			return true
		}
	}
}

// Escape turns any bytes into UTF-8; ordinary text stays as it is.
func Escape(s string) string {
	if utf8.ValidString(s) && !escaped(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r != utf8.RuneError && (r < escapeFirst || r > escapeLast) || r == utf8.RuneError && n == 3 {
			b.WriteString(s[:n])
		} else {
			for k := range n {
				b.WriteRune(escapeBase + rune(s[k]))
			}
		}
		s = s[n:]
	}
	return b.String()
}

// Unescape is the inverse of Escape.
func Unescape(s string) string {
	if !escaped(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r >= escapeFirst && r <= escapeLast {
			b.WriteByte(byte(r - escapeBase))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
