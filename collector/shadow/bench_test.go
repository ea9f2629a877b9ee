package shadow

import (
	"bytes"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/collector/wire"
)

type nobody struct{ found }

// BenchmarkLook compares what one look without news costs by each way of reading: the flags and
// 4 KiB of one chunk. "look" is the whole of it, with every sixteenth one at all chunks.
func BenchmarkLook(b *testing.B) {
	w := newTestRing(&testing.T{}, 10)
	meta, head := make([]byte, w.r.layout.MetaBytes()), make([]byte, headBytes)
	at := w.r.layout.MetaAt()
	b.Run("look", func(b *testing.B) {
		l := wire.NewLooker(&wire.Rules{Name: "test/1"}, wire.NewIDSet())
		w.r.next = 0
		for b.Loop() {
			if err := w.r.look(l, nobody{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pread", func(b *testing.B) {
		for b.Loop() {
			unix.Pread(w.r.fd, meta, at)
			unix.Pread(w.r.fd, head, 0)
		}
	})
	m, err := unix.Mmap(w.r.fd, 0, testSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(m)
	b.Run("mmap", func(b *testing.B) {
		for b.Loop() {
			copy(meta, m[at:])
			bytes.Equal(head, m[:headBytes])
		}
	})
	b.Run("process_vm_readv", func(b *testing.B) {
		base := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
		local := []unix.Iovec{{Base: &meta[0], Len: uint64(len(meta))}, {Base: &head[0], Len: uint64(len(head))}}
		remote := []unix.RemoteIovec{{Base: base + uintptr(at), Len: len(meta)}, {Base: base, Len: len(head)}}
		for b.Loop() {
			if _, err := unix.ProcessVMReadv(os.Getpid(), local, remote, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
