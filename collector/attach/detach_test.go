package attach

import (
	"bufio"
	"os/exec"
	"testing"

	"github.com/stageline/stageline/bpf"
)

// sent counts the records that the programs made.
func sent(t *testing.T, p *Programs) (n uint64) {
	t.Helper()
	for i := range p.Objs.SlSent.MaxEntries() {
		var per []bpf.StagelineSlCount
		if err := p.Objs.SlSent.Lookup(i, &per); err != nil {
			t.Fatal(err)
		}
		for _, c := range per {
			n += c.N
		}
	}
	return n
}

// What a process does after the end of the recording is in no record, although it is still a target
// and the programs are still attached: none of them goes on while others are off already.
func TestEndsAtOnce(t *testing.T) {
	needRoot(t)
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	p, err := Load(Options{RingBytes: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, _, err := p.Watch([]uint32{uint32(cmd.Process.Pid)}, true); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	echo := func() {
		if _, err := in.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	before := sent(t, p)
	echo()
	during := sent(t, p)
	if during < before+2 {
		t.Fatalf("%d records of a read and a write", during-before)
	}
	if err := p.record(false); err != nil {
		t.Fatal(err)
	}
	echo() // behind it no call that began before the end is in flight
	ended := sent(t, p)
	echo()
	if after := sent(t, p); after != ended || !p.Alive() {
		t.Errorf("%d records after the end, targets %v, want none and true", after-ended, p.Alive())
	}
}
