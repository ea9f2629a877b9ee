// Package wire turns the bytes of io calls into message records while recording, and then forgets
// the bytes. It knows protocols, not engines: what a field means comes in Rules.
//
// One Conn serves one endpoint, both directions, because the answer to an HTTP request can only be
// numbered beside the request. A Conn is not safe for concurrent use.
//
// # Order and loss
//
// Calls of one stream may arrive out of order, twice, or never, and only the head of a call is
// captured. A reorder buffer sorts them by stream position; a hole that later calls do not fill is
// given up after MaxLaterCalls of them, after HoleAge (see Expire), or when the buffer is full, and
// becomes a run.Gap of cause GapLost. Bytes that are missing inside a frame whose length is known
// cost no framing: the message is emitted with MsgTruncated, and a GapLost may lie inside its range.
// Where a header is missing, the framing is lost: the stretch up to the next call that starts with a
// strictly valid frame becomes a gap (GapCapture if the header lay beyond a captured head, else
// GapUnframed), and the message after it carries MsgResynced. A message whose end is not known is
// never emitted.
//
// # Streams of no known protocol
//
// They become messages of Proto "burst": one for each run of calls in one direction in which no
// call starts more than BurstIdle after the one before it returned, no call of the other direction
// intervenes (except on pipes, whose two directions are the two ends of one pipe), and no byte was
// lost. Runs of calls of at most two bytes on pipes and unix sockets are wake-ups, not messages;
// eventfds never carry any.
//
// # Privacy
//
// No payload text leaves this package. A value gets into a record only if it stands under a field
// that Rules name and is id-shaped (IDShaped), or if it contains an identifier that is already in
// the IDSet. URLs are cut before their query.
package wire

import (
	"time"

	"github.com/stageline/stageline/collector/run"
)

// Bounds of one direction of a Conn.
const (
	MaxLaterCalls = 64                     // calls behind a hole before it is given up
	MaxReorder    = 512 << 10              // captured bytes waiting behind a hole
	HoleAge       = 200 * time.Millisecond // see Expire
	BurstIdle     = time.Millisecond
	maxBody       = 16 << 10 // head of a message body kept for its fields
	maxHTTPHead   = 16 << 10
	maxUndecided  = 64 << 10 // captured bytes held while the protocol is unknown
	maxFrame      = 1 << 40  // no length field beyond this is believed

	captureOpaque = 1 << 10
	captureHTTP   = 4 << 10 // heads with cookies, ids behind a first message
	captureFramed = 8 << 10 // libzmq coalesces small frames into writes of 8192 bytes; others do the like
)

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
// depth; for single-valued ones the shallowest wins, then the first in document order.
type Rules struct {
	Name           string   // goes into Message.Decoder, with a version: "generic/1"
	IDFields       []string // request ids; a list under such a field holds ids
	TypeFields     []string
	FromFields     []string
	ToFields       []string
	ChunkFields    []string
	LastFields     []string // true: the last message of a stream; sets run.MsgLast
	ShmNameFields  []string
	ShmSizeFields  []string // counted only beside a name in the same map
	ArrayIDIndex   []int    // positions of the id in a top-level msgpack array
	ArrayIDPaths   [][]int  // positions of ids in nested arrays from the top, -1 = every element
	ByteTypes      []string // meaning of a 1-byte frame before the payload of a multipart message, by value
	HTTPIDHeaders  []string // lower case
	HTTPBodyFields []string // JSON fields of HTTP bodies, SSE events and NDJSON lines that carry ids, at depth 1 and 2
}
