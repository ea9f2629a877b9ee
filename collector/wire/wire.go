// Package wire turns the bytes of io calls into message records while recording, and then forgets
// the bytes. It knows protocols, not engines: what a field means comes in Rules.
//
// One Conn serves one endpoint, both directions, because the answer to an HTTP request can only be
// numbered beside the request. A Conn is not safe for concurrent use.
package wire

import "github.com/stageline/stageline/collector/run"

// Chunk is the data of one successful io call: Len bytes of the stream from Pos, of which the
// first len(Data) were captured. Data is only valid during Feed.
type Chunk struct {
	Pos             uint64
	Len             uint64
	Data            []byte
	EnterNS, ExitNS int64 // EnterNS 0: unknown
	TGID, TID       uint32
}

// Emitter receives what a Conn finds. run.Sink satisfies it.
type Emitter interface {
	Message(*run.Message)
	Gap(*run.Gap)
}

// Rules say which fields of structured payloads carry meaning. Field names are matched at any
// depth; the first match in document order wins for single-valued ones.
type Rules struct {
	Name           string   // goes into Message.Decoder, with a version: "generic/1"
	IDFields       []string // request ids
	TypeFields     []string
	FromFields     []string
	ToFields       []string
	ChunkFields    []string
	ShmNameFields  []string
	ShmSizeFields  []string
	ArrayIDIndex   []int    // positions of the id in a top-level msgpack array
	HTTPIDHeaders  []string // lower case
	HTTPBodyFields []string // JSON fields of HTTP bodies, SSE events and NDJSON lines that carry ids
}
