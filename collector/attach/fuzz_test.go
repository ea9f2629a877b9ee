package attach

import (
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// A process chooses its own name, with spaces, brackets and ends of lines: nothing of it becomes the
// number of its parent or its start.
func FuzzStat(f *testing.F) {
	const rest = " S 41 7 7 0 -1 4194560 1 0 0 0 3 2 0 0 20 0 1 0 987654 1 2 3"
	for _, name := range []string{"cat", "a) R 1 (b", ") ", "\n)", "\x1b[2J", "", "(((", "x) Z 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"} {
		f.Add(name, rest)
	}
	f.Add("cat", " S")
	f.Add("cat", " S -1 99999999999999999999")
	f.Fuzz(func(t *testing.T, name, after string) {
		b := []byte("9 (" + name + ")" + after)
		var p run.Proc
		err := parseStat(b, &p)
		_, _ = exited(b), kernelThread(b)
		if strings.ContainsRune(after, ')') {
			return // no kernel writes that
		}
		if after == rest && (err != nil || p.Comm != name || p.PPID != 41 || p.StartNS != 987654*(1e9/clockTicks) || exited(b) || kernelThread(b)) {
			t.Errorf("%q: %+v, %v", name, p, err)
		}
	})
}
