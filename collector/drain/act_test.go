package drain_test

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// shmOnce makes, fills, maps, unmaps and removes one segment.
func shmOnce(name string, size int) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Ftruncate(int(f.Fd()), int64(size)) != nil {
		return
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return
	}
	b[size-1] = 1
	_ = unix.Munmap(b)
	_ = unix.Unlink(name)
}

func eventOnce(n int) {
	fd, err := unix.Eventfd(0, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	one := binary.LittleEndian.AppendUint64(nil, 1)
	for range n {
		_, _ = unix.Write(fd, one)
	}
}
