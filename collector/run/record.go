// Package run is the recorded run: the records a recorder writes, the directory they live in, and
// the reader that checks that directory before anybody draws a conclusion from it.
//
// A record states a fact the kernel reported or that a decoder read in bytes. Nothing here is an
// inference. Unknown is a stated value (0 for a time, -1 for a count), never a guess.
//
// All times are CLOCK_MONOTONIC nanoseconds, the clock of bpf_ktime_get_ns and of Mono.
package run

// SchemaVersion names the meaning of the records below; a reader refuses a run with another major
// version.
//
// 1.1 adds ShmSeen, messages of Proto "shm-ring" and endpoints of TransportShm.
// 1.2: the records of a sealed run are Parquet.
// 1.3 adds what recording took to the metadata.
const SchemaVersion = "1.3"

// Dir is the direction of an io call or message as its own process sees it.
type Dir uint8

const (
	Send Dir = 1
	Recv Dir = 2
)

func (d Dir) String() string {
	switch d {
	case Send:
		return "send"
	case Recv:
		return "recv"
	}
	return "?"
}

// Transport is the kind of kernel object behind an endpoint.
type Transport uint8

const (
	TransportUnknown Transport = 0
	TransportUnix    Transport = 1 // AF_UNIX stream or seqpacket
	TransportUnixDG  Transport = 2 // AF_UNIX datagram and SEQPACKET
	TransportTCP     Transport = 3
	TransportUDP     Transport = 4
	TransportPipe    Transport = 5 // pipe or FIFO
	TransportEventFD Transport = 6
	TransportShm     Transport = 7 // the transport of a hop; an endpoint only of a ring that was shadowed
	TransportOther   Transport = 8
	TransportMemory  Transport = 9 // inside one process; never an endpoint
)

var transportNames = [...]string{"unknown", "unix", "unix-dgram", "tcp", "udp", "pipe", "eventfd", "shm", "other", "memory"}

func (t Transport) String() string {
	if int(t) < len(transportNames) {
		return transportNames[t]
	}
	return "?"
}

// Endpoint is one kernel object that processes read and write: one end of a socket connection, a
// pipe (both ends share the object), or an eventfd. It is written before the first record that names
// its ID, and again under the same ID when more becomes known of it. One endpoint may be used by several processes (inherited descriptors); the io
// records say which process did what.
type Endpoint struct {
	ID        uint32 // dense, from 1, in order of first sight
	Transport Transport
	Inode     uint64 // socket or pipe inode; eventfd context address
	PeerInode uint64 // unix: the peer socket's inode, 0 when unconnected or gone
	NetNS     uint32 // inode of the network namespace, sockets only
	Local     string // tcp/udp: "ip:port"; else ""
	Remote    string
	Path      string // unix: path bound to this socket, or, for an accepted socket, its listener's
	PeerPath  string // unix: path bound to the peer
	FirstNS   int64
	// PosAbsolute: stream positions are the kernel's own sequence numbers (TCP), so both ends agree
	// on them without a base. Otherwise positions count bytes since FirstNS.
	PosAbsolute bool
}

// Call is the system call family of an io record (the x86-64 number).
type Call uint16

// IO is one read- or write-like call of a target on an endpoint, emitted at its return.
type IO struct {
	EnterNS  int64 // 0: the call was in flight when probes were attached
	ExitNS   int64
	TGID     uint32
	TID      uint32
	FD       int32
	Call     Call
	Dir      Dir
	EP       uint32
	Ret      int64  // as returned; negative errno on error
	Pos      uint64 // stream position of the first byte; meaningful when Ret > 0
	Captured uint32 // bytes seen by the decoder, 0 … Ret
	Queued   int64  // bytes queued towards the reader at EnterNS; -1 unknown
}

// IDRef is an identifier that a message carried. Values are limited to id-shaped text (see
// wire.IDShaped); free text of a payload is never stored.
type IDRef struct {
	Field string // where it stood: "request_id", "[0]", "header x-request-id", "json request_id"
	Value string
}

// ShmRef is a shared-memory object that a message names.
type ShmRef struct {
	Name string // file name below /dev/shm, without a leading slash
	Size int64  // -1 unknown
}

// ProtoRing marks a message of a ring in shared memory that was watched by looking at it at an
// interval. No call carried it: at the sender FirstEnterNS and LastExitNS are the two looks between
// which it was enqueued, at the receiver those between which it was dequeued. All its times are the
// same where a watchpoint gave the moment: then TID is the thread that wrote the flag; else it is TGID.
// Its positions count bytes of messages since the first look.
const ProtoRing = "shm-ring"

// MsgFlags qualify a message record.
type MsgFlags uint16

const (
	MsgTruncated   MsgFlags = 1 << iota // the captured bytes ended before the message did; IDs may be missing
	MsgResynced                         // first message after the decoder lost and regained framing
	MsgCoalesced                        // shares its last io call with a following message
	MsgGuessed                          // framing was inferred (mid-stream attach), not seen from the start
	MsgInFlight                         // one of its io calls was in flight at attach; EnterNS unknown
	MsgFirst                            // HTTP: the first part of an exchange in this direction
	MsgLast                             // HTTP/SSE/NDJSON: the last part of the exchange in this direction; else: the message says that its stream ends
	MsgMore                             // ZMTP: one frame of a multipart that continues (never set on whole messages)
	MsgDuplicateID                      // several different request ids in one message (a batch)
)

// Message is one framed message seen at one endpoint in one direction. Its stream range lets the
// two ends of a channel be matched byte for byte.
type Message struct {
	EP  uint32
	Dir Dir
	// Range [Pos, End) in the endpoint's own stream positions (see Endpoint.PosAbsolute).
	Pos, End uint64
	// Calls that carried the first and the last byte.
	FirstEnterNS, FirstExitNS int64
	LastEnterNS, LastExitNS   int64
	TGID, TID                 uint32 // caller of the last byte
	Proto                     string // "zmtp", "http1", "sse", "ndjson", "pickle", "lenprefix", "burst", ProtoRing
	Type                      string // msgpack "type" field; "POST /v1/x"; "200"; ZMTP command name; …
	Exchange                  uint32 // http1/sse/ndjson: number of the exchange on this connection, from 1
	From, To                  string // stage names stated in the message, "" if none
	Chunk                     int64  // chunk number stated in the message, -1 none
	IDs                       []IDRef
	Shm                       []ShmRef
	Bytes                     int64 // End-Pos, or the payload length where the protocol states it; -1 unknown
	Status                    int32 // HTTP status; 0 none
	Flags                     MsgFlags
	Decoder                   string // name/version that produced the record
}

// GapCause says why a stretch of a stream was not decoded.
type GapCause uint8

const (
	GapCapture  GapCause = 1 // beyond the captured head of a call (skipped by frame length)
	GapLost     GapCause = 2 // records were lost; the position jumped
	GapUnframed GapCause = 3 // bytes dropped while looking for the next frame
	GapUnknown  GapCause = 4 // stream of no known protocol
)

// Gap is a stretch [Pos, End) of a stream that no message covers though it should have been framed.
type Gap struct {
	EP       uint32
	Dir      Dir
	Pos, End uint64
	AtNS     int64
	Cause    GapCause
}

// Base aligns the positions of a channel whose ends count bytes since attach: receiver position +
// Base = sender position... stated for the direction Sender → Receiver (endpoint IDs).
type Base struct {
	Sender, Receiver uint32
	Base             int64 // sender position − receiver position of the same byte
	Votes, Against   uint32
	FirstNS, LastNS  int64 // first and last observation
}

// ShmOp is a shared-memory operation.
type ShmOp uint8

const (
	ShmOpen     ShmOp = 1 // Flags: open flags; Ret -ENOENT is a poll that found nothing
	ShmTruncate ShmOp = 2
	ShmMap      ShmOp = 3
	ShmUnmap    ShmOp = 4
	ShmUnlink   ShmOp = 5
	ShmRename   ShmOp = 6
	ShmFlock    ShmOp = 7 // Flags: LOCK_SH 1, LOCK_EX 2, LOCK_UN 8
	ShmGet      ShmOp = 8 // System V
	ShmAttach   ShmOp = 9
	ShmMemfd    ShmOp = 10
	ShmSeen     ShmOp = 11 // no call: mapped when the recording began, seen at ExitNS; EnterNS 0
)

// Shm is one call on a shared-memory file of a target.
type Shm struct {
	EnterNS, ExitNS int64
	TGID, TID       uint32
	Op              ShmOp
	Ret             int64
	Dev             uint32
	Inode           uint64 // 0 when unknown (failed open, unlink by name)
	Name            string // file name; "" when unknown
	Addr            uint64 // map/unmap
	Size            int64  // truncate/map length; -1 unknown
	Flags           uint32
}

// OffState is why a thread left the CPU.
type OffState uint8

const (
	OffSleep     OffState = 1 // interruptible or uninterruptible sleep
	OffPreempted OffState = 2 // still runnable
	OffExit      OffState = 3
)

// OffCPU is one interval in which a target thread was not running.
type OffCPU struct {
	OutNS, WakeNS, InNS int64 // WakeNS 0: never seen (preempted, or lost)
	TGID, TID           uint32
	State               OffState
	WakerTGID, WakerTID uint32 // 0 unknown (timer interrupt, or none)
	Call                int32  // system call it slept in; -1 none (fault, interrupt)
	Arg0, Arg1          uint64 // first arguments of Call (futex: address, op)
}

// ProcEvent is a life-cycle event.
type ProcEvent uint8

const (
	ProcSeen   ProcEvent = 1 // found by the snapshot
	ProcFork   ProcEvent = 2 // new process
	ProcThread ProcEvent = 3 // new thread
	ProcExec   ProcEvent = 4
	ProcExit   ProcEvent = 5 // whole process (TID==TGID) or a thread
	ProcRename ProcEvent = 6
)

// Proc is a life-cycle event of a target.
type Proc struct {
	AtNS      int64
	Event     ProcEvent
	TGID, TID uint32
	PPID      uint32 // fork: parent tgid
	StartNS   int64  // process start (boot clock as /proc states it); tells reused PIDs apart; 0 unknown
	ExitCode  int32
	Comm      string
	Exe       string   // ProcSeen, ProcExec
	Cmdline   []string // ProcSeen, ProcExec; secrets redacted
	Bound     []string // ProcSeen: unix socket paths and "tcp:ip:port" this process listens on or has bound
	NSPID     uint32   // pid in its own PID namespace
	Target    bool     // named by the user (else: followed)
}

// NetEvent is an event of a socket outside a call of the target.
type NetEvent uint8

const (
	NetState NetEvent = 1 // Old → New TCP state
	NetData  NetEvent = 2 // data became readable
)

// Net is a socket event.
type Net struct {
	AtNS     int64
	Event    NetEvent
	EP       uint32
	Old, New uint8
	Bytes    int64 // readable bytes after the event; -1 unknown
}

// Loss counts records that could not be taken between two moments.
type Loss struct {
	FromNS, ToNS int64
	Reason       string // "ring-full", "map-full", "read-fault", "debug-drop", "recursion", "decode", "spool", …
	What         string // record class or program: "io", "offcpu", …
	N            uint64
	Bytes        uint64
}

// Note is a statement of the recorder about itself: a probe that is missing, a process that could
// not be followed.
type Note struct {
	AtNS  int64  `json:"at_ns"`
	Level string `json:"level"` // "info", "warn"
	Code  string `json:"code"`  // short stable word
	Text  string `json:"text"`
}

// Sink takes records in recording order. The spool writer and the timeline are sinks, so that a
// live view and a later report see the same sequence. A sink must not keep the pointers it is given.
type Sink interface {
	Endpoint(*Endpoint)
	IO(*IO)
	Message(*Message)
	Gap(*Gap)
	Base(*Base)
	Shm(*Shm)
	OffCPU(*OffCPU)
	Proc(*Proc)
	Net(*Net)
	Loss(*Loss)
	Note(*Note)
}
