package attach

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/bpf"
)

// Of a process's mappings those are forgotten that it no longer has; nobody else's.
func TestForgetMappings(t *testing.T) {
	needRoot(t)
	p, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	path := fmt.Sprintf("/dev/shm/stageline-forget-%d", os.Getpid())
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	me, gone, other := uint32(os.Getpid()), uint32(1<<30), uint32(1<<30+1)
	if err := p.preloadMaps(me); err != nil {
		t.Fatal(err)
	}
	var kept bpf.StagelineSlMapKey
	for _, m := range Mappings(me) {
		kept = bpf.StagelineSlMapKey{Addr: m.Addr, Tgid: me}
	}
	stale := []bpf.StagelineSlMapKey{{Addr: 4096, Tgid: me}, {Addr: kept.Addr, Tgid: gone}}
	others := bpf.StagelineSlMapKey{Addr: 4096, Tgid: other}
	for _, k := range append(stale, others) {
		if err := p.Objs.SlMaps.Put(&k, &bpf.StagelineSlMapVal{Ino: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.ForgetMappings(map[uint32]bool{me: true, gone: true}); err != nil {
		t.Fatal(err)
	}
	var v bpf.StagelineSlMapVal
	for _, k := range stale {
		if err := p.Objs.SlMaps.Lookup(&k, &v); !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Errorf("a mapping that is gone is kept: %+v, %v", k, err)
		}
	}
	for _, k := range []bpf.StagelineSlMapKey{kept, others} {
		if err := p.Objs.SlMaps.Lookup(&k, &v); err != nil {
			t.Errorf("a mapping was forgotten that is there: %+v, %v", k, err)
		}
	}
}
