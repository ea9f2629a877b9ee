package export

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable replaces what could disturb or deceive a terminal (controls, escape sequences, marks that
// turn the direction of writing); names come from foreign processes.
func Printable(s string) string { return strings.Map(plainRune, s) }

func printable(s string) string { return Printable(s) }

func plainRune(r rune) rune {
	if !unicode.IsPrint(r) || r == utf8.RuneError {
		return '?'
	}
	return r
}

// Lines is Printable for a text of several lines.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return plainRune(r)
	}, s)
}

// Plain passes text on to w as Lines does, whatever parts it comes in: the last guard for text that
// holds names from a run, a log or a server. Bytes at the very end that begin a rune and do not
// complete it are left out.
func Plain(w io.Writer) io.Writer { return &plain{w: w} }

type plain struct {
	w    io.Writer
	part []byte // the begin of a rune
}

func (p *plain) Write(b []byte) (int, error) {
	all := append(p.part, b...)
	end := len(all)
	for back := 1; back < utf8.UTFMax && back <= len(all); back++ {
		if c := all[len(all)-back:]; utf8.RuneStart(c[0]) {
			if !utf8.FullRune(c) {
				end = len(all) - back
			}
			break
		}
	}
	p.part = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(p.w, Lines(string(all[:end]))); err != nil {
		return 0, err
	}
	return len(b), nil
}
