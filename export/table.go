package export

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/stageline/stageline/correlate/stat"
)

// table is rows of cells in aligned columns.
type table struct {
	left int  // number of leading columns that are aligned left; the others are figures
	last bool // the last column is prose and aligned left, too
	rows [][]string
}

// add appends a row. A cell is one line, whatever name is in it.
func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	t.rows = append(t.rows, cells)
}

func (t *table) write(w io.Writer) {
	var width []int
	for _, r := range t.rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range t.rows {
		var line strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i > 0 {
				line.WriteString("  ")
			}
			if i < t.left || t.last && i == len(width)-1 {
				line.WriteString(c + pad)
			} else {
				line.WriteString(pad + c)
			}
		}
		fmt.Fprintln(w, "  "+strings.TrimRight(line.String(), " "))
	}
}

// lineWidth is where prose is broken; tables are as wide as their names make them.
const lineWidth = 110

// wrap breaks text at spaces into lines of at most width characters; longer words stay whole.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// figure prints microseconds (or bytes) with three or more significant digits.
func figure(n stat.Num) string {
	switch {
	case n.Unbounded():
		return "inf"
	case !n.Known():
		return "-"
	case n >= 100 || n <= -100:
		return fmt.Sprintf("%.0f", float64(n))
	case n == stat.Num(int64(n)):
		return fmt.Sprintf("%d", int64(n))
	}
	return fmt.Sprintf("%.1f", float64(n))
}

// percent prints part of whole; a part that is not everything never reads 100 %.
func percent(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	p := 100 * float64(part) / float64(whole)
	if part < whole && p > 99.9 {
		p = 99.9
	}
	return fmt.Sprintf("%.1f %%", p)
}
