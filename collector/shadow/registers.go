package shadow

import (
	"github.com/stageline/stageline/collector/attach"
	"github.com/stageline/stageline/collector/engine"
)

// word is how many bytes one debug register can watch.
const word = 8

// register is what one debug register watches in one process: the flags of some chunks that this
// process sets.
type register struct {
	ring   *ring
	pid    uint32
	reader int   // whose read flags; -1: the written flags, by the writer
	word   int   // where its 8 bytes begin among the flags
	at, n  int   // the bytes watched, in those 8
	flags  []int // by chunk below: where its flag is, in those 8
	chunks []int // in the order in which they are written and read
}

// registers lists what would have to be watched for all times of a ring in one process, from the
// first chunk on, so that a part of the list is the same chunks at both ends.
func registers(l engine.RingLayout, reader int) []register {
	var out []register
	for c := range l.Chunks {
		flag := l.WrittenAt(c)
		if reader >= 0 {
			flag = l.ReadAt(c, reader)
		}
		if n := len(out); n == 0 || out[n-1].word != flag/word*word {
			out = append(out, register{reader: reader, word: flag / word * word})
		}
		r := &out[len(out)-1]
		r.chunks, r.flags = append(r.chunks, c), append(r.flags, flag%word)
	}
	for i := range out {
		out[i].narrow()
	}
	return out
}

// narrow watches no more than the smallest span that holds the flags: a write to others is a trap
// for nothing.
func (r *register) narrow() {
	first, last := r.flags[0], r.flags[len(r.flags)-1]
	for r.n = 1; first/r.n != last/r.n; {
		r.n *= 2
	}
	r.at = first / r.n * r.n
}

// span is where that is in the process.
func (r *register) span() attach.Span {
	return attach.Span{Addr: r.ring.flagsIn[r.pid] + uint64(r.word+r.at), N: r.n}
}

// choose shares the registers of one process among the rings it has, in turn. Rings of which the
// process maps no flags get none.
func choose(rings []*ring, pid uint32) []register {
	var wants [][]register
	for _, r := range rings {
		if r.flagsIn[pid] == 0 {
			continue
		}
		l := registers(r.layout, r.readerOf(pid))
		for i := range l {
			l[i].ring, l[i].pid = r, pid
		}
		wants = append(wants, l)
	}
	var out []register
	for turn := 0; ; turn++ {
		any := false
		for _, l := range wants {
			if turn >= len(l) {
				continue
			}
			if len(out) == attach.DebugRegisters {
				return out
			}
			out, any = append(out, l[turn]), true
		}
		if !any {
			return out
		}
	}
}
