package drain

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func notYet() (bool, error) { return false, nil }

// The kernel wakes who waits when a quarter of the ring is full and when a process is born;
// else the wait takes as long as it was told, or ends with its context.
func TestWait(t *testing.T) {
	const ring, record, look = 1 << 16, 96, 64 // look: WAKE_LOOK of the programs
	d := ownDrain(t)                           // whose quarter a birth does not fill
	long := func() time.Time { return time.Now().Add(time.Minute) }
	wakes := func(why string, do func() error) {
		t.Helper()
		if err := d.empty(); err != nil {
			t.Fatal(err)
		}
		until, done := long(), make(chan error, 1)
		err := d.wait.until(until, func() (bool, error) {
			go func() { done <- do() }()
			return notYet()
		})
		if did := <-done; err != nil || did != nil {
			t.Fatal(why, err, did)
		}
		if !time.Now().Before(until) {
			t.Errorf("%s did not wake", why)
		}
	}
	wakes("a birth", exec.Command("true").Run)
	// The kernel's word of this one is there before the wait begins, and forgotten with that.
	if err := errors.Join(d.empty(), exec.Command("true").Run()); err != nil {
		t.Fatal(err)
	}
	d.born = false
	until := long()
	if err := d.wait.until(until, d.late); err != nil || !time.Now().Before(until) || !d.born {
		t.Errorf("a birth before the wait: %v, seen %v", err, d.born)
	}
	d = ownDrainOf(t, ring)
	event, err := unix.Eventfd(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(event)
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	wakes("a quarter of the ring", func() error {
		for range ring/4/record + 4*look {
			if _, err := unix.Write(event, one); err != nil {
				return err
			}
		}
		return nil
	})
	d = ownDrain(t)
	from := time.Now()
	if err := d.wait.until(from.Add(20*time.Millisecond), notYet); err != nil || time.Since(from) < 20*time.Millisecond {
		t.Errorf("waited for %v of 20 ms: %v", time.Since(from), err)
	}
	// What is over already is told as well.
	until = long()
	if err := d.wait.f.SetReadDeadline(until); err != nil {
		t.Fatal(err)
	}
	for round := range 1000 {
		if err := d.wait.until(time.Now(), notYet); err != nil || !time.Now().Before(until) {
			t.Fatalf("a time that was over already was not told in round %d: %v", round, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	d.wait.endWith(ended)
	end()
	until = long()
	if err := d.wait.until(until, notYet); err != nil || !time.Now().Before(until) {
		t.Errorf("an ended context does not end the wait: %v", err)
	}
}
