package engine

import "encoding/binary"

// RingLayout says how an engine lays a ring of messages out in a shared-memory segment: Chunks chunks
// of ChunkBytes, then for each chunk a byte that is 1 when it is written, and a byte for each reader
// that is 1 when that one has read it. One process writes, chunk after chunk.
type RingLayout struct {
	Engine     string
	Checked    string // versions the layout was compared with
	ChunkBytes int64
	Chunks     int
	Readers    int
	// WriterIsChild: the writer is a child of its reader; else it is the parent of its readers.
	WriterIsChild bool
}

const (
	vllmRingChunks  = 10
	vllmReplyChunk  = 24 << 20 // replies of a worker; one reader
	maxRingReaders  = 64
	ringChunkFactor = 1 << 20 // chunk sizes are settable in MiB
)

// RingOf recognises a ring by the exact size of its file.
func RingOf(size int64) (RingLayout, bool) {
	if size <= 0 || size%vllmRingChunks != 0 {
		return RingLayout{}, false
	}
	each := size / vllmRingChunks
	chunk := each / ringChunkFactor * ringChunkFactor
	readers := int(each-chunk) - 1
	if chunk == 0 || readers < 1 || readers > maxRingReaders {
		return RingLayout{}, false
	}
	return RingLayout{
		Engine: "vllm", Checked: "0.10 to 0.26 (read)", ChunkBytes: chunk, Chunks: vllmRingChunks,
		Readers: readers, WriterIsChild: chunk == vllmReplyChunk && readers == 1,
	}, true
}

// MetaAt is where the flags begin, and MetaBytes how many there are.
func (l RingLayout) MetaAt() int64  { return l.ChunkBytes * int64(l.Chunks) }
func (l RingLayout) MetaBytes() int { return (1 + l.Readers) * l.Chunks }

// WrittenAt and ReadAt are where among the flags those of a chunk are.
func (l RingLayout) WrittenAt(chunk int) int      { return chunk * (1 + l.Readers) }
func (l RingLayout) ReadAt(chunk, reader int) int { return chunk*(1+l.Readers) + 1 + reader }

// Written reports that a chunk holds a message.
func (l RingLayout) Written(meta []byte, chunk int) bool { return meta[l.WrittenAt(chunk)] == 1 }

// Read reports that a reader has taken the message of a chunk.
func (l RingLayout) Read(meta []byte, chunk, reader int) bool {
	return meta[l.ReadAt(chunk, reader)] == 1
}

// RingMessage is what the head of a chunk says of its message.
type RingMessage struct {
	Bytes     int64  // of all its buffers with their lengths; -1 unknown
	Elsewhere bool   // too large for a chunk: its bytes go over a socket
	Body      []byte // of its first buffer, a pickle, as far as head holds it
	Whole     bool   // all of that buffer
}

// Message reads the head of a chunk: a byte that is 1 when the message went another way, the number
// of buffers in two bytes, then each buffer behind its length in four, all big-endian. Earlier
// versions have the pickle alone behind the first byte.
func (l RingLayout) Message(head []byte) RingMessage {
	m := RingMessage{Bytes: -1}
	switch {
	case len(head) < 3:
		return m
	case head[0] == 1:
		m.Elsewhere = true
		return m
	case head[1] == 0x80:
		m.Body = head[1:]
		return m
	}
	n := int(binary.BigEndian.Uint16(head[1:]))
	at, total := 3, int64(3)
	for i := range n {
		if at+4 > len(head) {
			return m
		}
		size := int(binary.BigEndian.Uint32(head[at:]))
		total += 4 + int64(size)
		if i == 0 {
			end := min(at+4+size, len(head))
			m.Body, m.Whole = head[at+4:end], at+4+size <= len(head)
		}
		at += 4 + size
	}
	if total <= l.ChunkBytes {
		m.Bytes = total
	}
	return m
}
