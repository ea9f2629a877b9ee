package loadgen

import "encoding/binary"

// pcmFormat is how samples are coded. The zero value is not known.
type pcmFormat struct {
	rate, channels, bits int
	float                bool
}

// frame is the size in bytes of one sample of every channel; 0 when the coding is not known or no
// coding of whole bytes.
func (f pcmFormat) frame() int {
	if f.bits < 8 || f.bits%8 != 0 || f.bits > 64 || f.channels < 1 {
		return 0
	}
	return f.bits / 8 * f.channels
}

const (
	wavPCM        = 1
	wavFloat      = 3
	wavExtensible = 0xFFFE
	// streamingSize: a data size from here on is a placeholder of a writer that cannot seek back.
	streamingSize = 0x7FFFF000
	maxFmtChunk   = 4096
)

// wavParser tells the samples of a RIFF/WAVE stream from its headers: samples are what follows the
// header of the "data" chunk, whatever chunks stand before it. A data size of 0 or near 2 or 4 GiB
// is what a streaming writer leaves there and is not believed. Several files one after the other are
// read as one stream, as some servers send a file a chunk.
type wavParser struct {
	format   func(pcmFormat) // a "fmt " chunk is complete
	data     func([]byte)    // sample bytes
	declared int64           // sample bytes that headers promise; -1 once one does not say

	buf     []byte // header or fmt bytes not yet complete
	skip    int64  // bytes of another chunk still to pass over
	fmtSize int64  // > 0: inside a fmt chunk
	riff    bool   // a RIFF header has been seen
	inData  bool
	hadData bool
	left    int64 // bytes of the data chunk still to come; -1 unknown
	pad     int64 // after the data
	surplus bool  // what follows the declared data is no chunk: more samples than declared
	invalid bool  // not RIFF/WAVE
}

func (w *wavParser) feed(b []byte) {
	for len(b) > 0 && !w.invalid {
		switch {
		case w.surplus, w.inData && w.left < 0:
			w.data(b)
			return
		case w.inData:
			n := min(w.left, int64(len(b)))
			w.data(b[:n])
			if w.left -= n; w.left == 0 {
				w.inData, w.skip = false, w.pad
			}
			b = b[n:]
		case w.skip > 0:
			n := min(w.skip, int64(len(b)))
			w.skip -= n
			b = b[n:]
		case w.fmtSize > 0:
			b = w.fmtChunk(b)
		default:
			b = w.header(b)
		}
	}
}

// fill moves bytes to buf until it holds need of them.
func (w *wavParser) fill(b []byte, need int) (rest []byte, full bool) {
	n := min(need-len(w.buf), len(b))
	w.buf = append(w.buf, b[:n]...)
	return b[n:], len(w.buf) == need
}

// header takes bytes of the RIFF header or of one chunk's header and returns the rest.
func (w *wavParser) header(b []byte) []byte {
	need := 8
	if !w.riff || len(w.buf) >= 4 && string(w.buf[:4]) == "RIFF" {
		need = 12
	}
	rest, full := w.fill(b, need)
	if !full {
		return rest
	}
	id, size := string(w.buf[:4]), int64(binary.LittleEndian.Uint32(w.buf[4:8]))
	if id == "RIFF" && need == 8 {
		return rest // another file: its header has four bytes more
	}
	head := w.buf
	w.buf = w.buf[:0]
	switch {
	case id == "RIFF" || !w.riff:
		w.riff = true
		w.invalid = id != "RIFF" || string(head[8:12]) != "WAVE"
	case id == "data":
		w.startData(size)
	case id == "fmt " && size >= 14 && size <= maxFmtChunk:
		w.fmtSize = size
	case !chunkName(id) && w.hadData:
		w.surplus = true
		w.data(append([]byte(nil), head...))
	default:
		w.skip = size + size&1 // chunks are padded to even length
	}
	return rest
}

func (w *wavParser) startData(size int64) {
	w.inData, w.hadData, w.left, w.pad = true, true, size, size&1
	switch {
	case size == 0 || size >= streamingSize:
		w.left, w.declared = -1, -1
	case w.declared >= 0:
		w.declared += size
	}
}

func chunkName(id string) bool {
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}

func (w *wavParser) fmtChunk(b []byte) []byte {
	rest, full := w.fill(b, int(w.fmtSize))
	if !full {
		return rest
	}
	le, c := binary.LittleEndian, w.buf
	tag := le.Uint16(c)
	f := pcmFormat{channels: int(le.Uint16(c[2:])), rate: int(le.Uint32(c[4:]))}
	if len(c) >= 16 {
		f.bits = int(le.Uint16(c[14:]))
	}
	if tag == wavExtensible && len(c) >= 26 {
		tag = le.Uint16(c[24:])
	}
	if tag != wavPCM && tag != wavFloat {
		f.bits = 0 // a coding whose samples cannot be counted by size
	}
	f.float = tag == wavFloat
	w.skip, w.fmtSize, w.buf = w.fmtSize&1, 0, w.buf[:0]
	w.format(f)
	return rest
}
