package attach

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// stripped writes an executable without sections and symbols whose first instruction is at an offset,
// and mapped elsewhere than the file begins.
func stripped(t *testing.T, offset uint64) string {
	t.Helper()
	const base = 0x600000
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Entry: base + offset, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 2}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	load := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base, Filesz: 0x2000, Memsz: 0x2000, Align: 0x1000}
	other := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: 0x1000, Vaddr: base + 0x10000, Filesz: 0x1000, Memsz: 0x1000, Align: 0x1000}
	for _, v := range []any{h, other, load} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	file := append(b.Bytes(), make([]byte, 0x2000-b.Len())...)
	copy(file[offset:], []byte{0x90, 0xc3}) // nop, ret
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, file, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEntryOfStripped(t *testing.T) {
	if at, err := entryOffset(stripped(t, 0x1230)); at != 0x1230 || err != nil {
		t.Errorf("first instruction at %#x, %v; want 0x1230", at, err)
	}
	if _, err := entryOffset(stripped(t, 0x2000-2)); err != nil {
		t.Errorf("in the last bytes: %v", err)
	}
}

// Whether the kernel has uprobes does not depend on symbols in the program that asks.
func TestUprobeOnStripped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches a uprobe")
	}
	path := stripped(t, 0x1230)
	for _, multi := range []bool{false, true} {
		err := tryUprobe(path, multi)
		if own := tryUprobe(ownProgram, multi); (err == nil) != (own == nil) {
			t.Errorf("multi %v: on a stripped program %v, on this one %v", multi, err, own)
		}
		// An event that is there: without it, the row would be false.
		if _, errSys := os.Stat("/sys/bus/event_source/devices/uprobe"); !multi && errSys == nil && err != nil {
			t.Errorf("the kernel has uprobes, and trying one says %v", err)
		}
	}
}
