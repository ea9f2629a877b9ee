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
	if full, err := p.preloadMaps(me); err != nil || full > 0 {
		t.Fatal(full, err)
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
	noRecord := bpf.StagelineSlMapKey{Addr: 4096, Tgid: 1<<30 + 2} // of its exit
	if err := p.Objs.SlMaps.Put(&noRecord, &bpf.StagelineSlMapVal{Ino: 1}); err != nil {
		t.Fatal(err)
	}
	stale = append(stale, noRecord)
	whole, err := p.ForgetMappings(map[uint32]bool{me: true, gone: true}, func(pid uint32) bool { return pid == noRecord.Tgid })
	if err != nil || !whole {
		t.Fatal(whole, err)
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

// A target whose exit the programs missed is one no more.
func TestForgetTargets(t *testing.T) {
	p := loaded(t)
	const lives, ended = 1<<21 + 1, 1<<21 + 2
	for _, pid := range []uint32{lives, ended} {
		if err := p.watch(pid, targetFollowed); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.ForgetTargets(func(pid uint32) bool { return pid == ended }); err != nil {
		t.Fatal(err)
	}
	pids, err := p.Objs.SlTargetPids.Memory()
	if err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[uint32]byte{lives: 1, ended: 0} {
		var flags uint32
		known := p.Objs.SlTargets.Lookup(pid, &flags) == nil
		at := make([]byte, 1)
		if _, err := pids.ReadAt(at, int64(pid)); err != nil || at[0] != want || known != (want == 1) {
			t.Errorf("process %d: byte %d, in the table %v, %v; want %d", pid, at[0], known, err, want)
		}
	}
}
