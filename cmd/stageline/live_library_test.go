package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compile builds what is in testdata with the C compiler that make build needs, too.
func compile(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("cc", append([]string{"-O1"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("cc %v: %v: %s", args, err, out)
	}
}

// A library that its process runs is replaced by another or removed, while recording and before: the
// process goes on with the old one, and so does the recording; the run says so of what was replaced
// before, which versions on disk do not tell.
func TestLiveReplacedLibrary(t *testing.T) {
	needLive(t)
	dir := workDir(t)
	library, program, other := filepath.Join(dir, "libwords.so"), filepath.Join(dir, "engine"), filepath.Join(dir, "other.so")
	flags := []string{"-shared", "-fPIC", "testdata/library.c"}
	compile(t, append(flags, "-o", other, fmt.Sprintf("-DLENGTH=%d", wordLen+1))...)
	for how, change := range map[string]func() error{
		"another in its place": func() error { return os.Rename(other, library) },
		"removed":              func() error { return os.Remove(library) },
	} {
		t.Run(how, func(t *testing.T) {
			compile(t, append(flags, "-o", library, fmt.Sprintf("-DLENGTH=%d", wordLen))...)
			compile(t, "testdata/library_user.c", library, "-o", program)
			p := startPuppetBy(t, exec.Command(program), nil)
			during, after := filepath.Join(dir, "during "+how), filepath.Join(dir, "after "+how)
			r := startRecord(t, "-p", fmt.Sprint(p.pid), "-o", during)
			p.do(t, "talk 5")
			if err := change(); err != nil {
				t.Fatal(err)
			}
			p.do(t, "talk 6")
			r.interrupt(t).want(t, exitOK)
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.pid))
			if err != nil || !strings.Contains(string(maps), library+" (deleted)") {
				t.Fatalf("the library was not replaced, %v: %s", err, maps)
			}
			wantWords(t, during, p.pid, 11, false)
			r = startRecord(t, "-p", fmt.Sprint(p.pid), "-o", after)
			p.do(t, "talk 7")
			r.interrupt(t).want(t, exitOK)
			wantWords(t, after, p.pid, 7, true)
		})
	}
}

// wantWords compares a run with the words that a process said and heard, and with whether its library
// had been replaced when the recording began.
func wantWords(t *testing.T, dir string, pid, n int, replaced bool) {
	t.Helper()
	rec := recordsOf(t, dir)
	if sent, received := rec.words(pid); sent != n || received != n || len(rec.loss) > 0 {
		t.Errorf("%s: %d words sent, %d received, losses %v; want %d and none", dir, sent, received, rec.loss, n)
	}
	if rec.noted("library-replaced") != replaced || rec.noted("program-replaced") {
		t.Errorf("%s: notes %+v; want one of library-replaced: %v, of program-replaced: none", dir, rec.notes, replaced)
	}
}
