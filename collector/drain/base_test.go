package drain

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Sends into a pipe that holds more than is looked at say nothing of its alignment, however many: the
// next ones that can are asked, and count.
func TestBaseAfterFullPipe(t *testing.T) {
	const page, before, unseen, last = 4096, 23, 41, 3
	var p [2]int
	var st unix.Stat_t
	size := func() error { _, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20); return err }
	write := func(pages int) (err error) {
		for range pages {
			err = errors.Join(err, second(unix.Write(p[1], make([]byte, page))))
		}
		return err
	}
	if err := errors.Join(unix.Pipe(p[:]), size(), unix.Fstat(p[0], &st), write(before)); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	d := ownDrain(t)
	all := make([]byte, (before+unseen)*page)
	if err := errors.Join(write(unseen), second(unix.Read(p[0], all)), write(last), d.empty()); err != nil {
		t.Fatal(err)
	}
	e := d.find(st.Ino)
	if e == nil {
		t.Fatal("the pipe is not known")
	}
	if base, n, second := e.votes.leader(); base != -before*page || n != last || second != 0 {
		t.Errorf("base %d by %d sends, %d said otherwise; want %d by %d", base, n, second, -before*page, last)
	}
}
