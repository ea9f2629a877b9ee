package attach

import (
	"os"
	"os/exec"
	"testing"
)

// A process that still runs when the programs are taken off is a target no longer: none of them goes
// on recording while others are off already.
func TestDetachLeavesNoTarget(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs into the running kernel")
	}
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
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
	if n := p.Alive(); n != 1 {
		t.Fatalf("%d targets, want 1", n)
	}
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	if n := p.Alive(); n != 0 {
		t.Errorf("%d targets after Detach, want none", n)
	}
}
