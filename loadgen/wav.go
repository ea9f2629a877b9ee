package loadgen

import "encoding/binary"

// wavSkipper tells the sample bytes of a RIFF/WAVE stream from its headers: samples are what
// follows the header of the "data" chunk, whatever chunks stand before it. A data size of 0 or
// 0xFFFFFFFF is what a streaming writer leaves there and is not believed.
type wavSkipper struct {
	buf     []byte // header bytes not yet complete
	skip    int64  // bytes of another chunk still to pass over
	riff    bool   // the RIFF header has been seen
	inData  bool
	left    int64 // bytes of the data chunk still to come; -1 unknown
	invalid bool  // not RIFF/WAVE
}

// samples returns how many bytes of b are sample bytes.
func (w *wavSkipper) samples(b []byte) int {
	for len(b) > 0 && !w.invalid {
		switch {
		case w.inData && w.left < 0:
			return len(b)
		case w.inData:
			n := min(w.left, int64(len(b)))
			w.left -= n
			return int(n)
		case w.skip > 0:
			n := min(w.skip, int64(len(b)))
			w.skip -= n
			b = b[n:]
		default:
			b = w.header(b)
		}
	}
	return 0
}

// header takes bytes of the RIFF header or of one chunk's header and returns the rest.
func (w *wavSkipper) header(b []byte) []byte {
	need := 8
	if !w.riff {
		need = 12
	}
	n := min(need-len(w.buf), len(b))
	w.buf = append(w.buf, b[:n]...)
	if len(w.buf) < need {
		return nil
	}
	id, size := string(w.buf[:4]), int64(binary.LittleEndian.Uint32(w.buf[4:8]))
	switch {
	case !w.riff:
		w.riff = true
		w.invalid = id != "RIFF" || string(w.buf[8:12]) != "WAVE"
	case id == "data":
		w.inData, w.left = true, size
		if size == 0 || size == 0xFFFFFFFF {
			w.left = -1
		}
	default:
		w.skip = size + size&1 // chunks are padded to even length
	}
	w.buf = w.buf[:0]
	return b[n:]
}
