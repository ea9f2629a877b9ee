// Package correlate turns message and kernel records into the timeline of requests: channels, ids
// and their aliases, stages, hops, joins, and the boundaries ready, start and finish of each visit.
//
// It is fed record by record (Timeline implements run.Sink) and is pure: the same records give the
// same timeline. Nothing here invents an event: what was not seen is null, what was inferred
// carries an interval and says so in its grade.
package correlate

import "github.com/stageline/stageline/collector/run"

// Identity grades how a record was tied to a request.
type Identity string

const (
	IdentityExact   Identity = "exact"   // the id stands in the bytes or the name at both ends
	IdentityPaired  Identity = "paired"  // one end by id, the other by stream position or segment
	IdentityOrdered Identity = "ordered" // only one candidate in time
	IdentityUnknown Identity = "unknown"
)

// Timing grades a point in time.
type Timing string

const (
	TimingSeen    Timing = "seen"    // an event of the kernel is the boundary
	TimingBounded Timing = "bounded" // estimate inside [LoNS, HiNS]
	TimingUnknown Timing = "unknown" // null
)

// Point is a moment (CLOCK_MONOTONIC ns) with its grade. NS, LoNS and HiNS are null when unknown;
// for a seen point all three are equal.
type Point struct {
	NS     *int64 `json:"ns"`
	LoNS   *int64 `json:"lo_ns"`
	HiNS   *int64 `json:"hi_ns"`
	Timing Timing `json:"timing"`
	Rule   string `json:"rule,omitempty"` // the rule that gave it, e.g. "shm-unlink-then-wake"
	// RunnableUS is the longest time, within [LoNS, HiNS], that a thread on the causal chain of the
	// boundary was runnable and did not run; null when not determined.
	RunnableUS *float64 `json:"runnable_us,omitempty"`
	// Held says what held threads up inside a wide interval; null for a narrow one.
	Held *Held `json:"held,omitempty"`
}

// Input is one arrival at a visit.
type Input struct {
	From  string `json:"from"`
	Chunk *int64 `json:"chunk"`
	At    Point  `json:"at"` // last byte in the stage's hands: receive call returned
	// InHand is when its payload had been read: At, or the end of reading the segment it refers to.
	InHand Point `json:"in_hand"`
	Hop    int   `json:"hop"` // index into Request.Hops, -1 none
}

// Held is when the stage could use the input: InHand where it is known, else At.
func (in *Input) Held() Point {
	if in.InHand.NS != nil {
		return in.InHand
	}
	return in.At
}

// Last is the input that the stage could use last; nil when an arrival is unknown, or when the
// intervals of two inputs from different stages overlap so that either may have been the last.
func (v *Visit) Last() *Input {
	var last *Input
	for i := range v.Inputs {
		in := &v.Inputs[i]
		if in.Held().NS == nil {
			return nil
		}
		if last == nil || *in.Held().NS > *last.Held().NS {
			last = in
		}
	}
	for i := range v.Inputs {
		if in := &v.Inputs[i]; in.From != last.From && in.Held().hi() >= last.Held().lo() && last.Held().lo() != 0 {
			return nil
		}
	}
	return last
}

// Visit is one activation of a stage for a request (for a stage that fires per chunk: per chunk).
type Visit struct {
	Stage  string  `json:"stage"`
	TGID   uint32  `json:"tgid"`
	Chunk  *int64  `json:"chunk"`
	Inputs []Input `json:"inputs"`
	Join   bool    `json:"join"` // more than one distinct upstream
	// LossNear: records were lost between the request's first message and the last output of the visit,
	// so that it may have had more inputs than are known.
	LossNear  bool     `json:"loss_near,omitempty"`
	Arrival   Point    `json:"arrival"`   // first input
	Ready     Point    `json:"ready"`     // last needed input
	Start     Point    `json:"start"`     // activation begins
	Finish    Point    `json:"finish"`    // output handed over
	Departure Point    `json:"departure"` // write call of the last output entered
	Identity  Identity `json:"identity"`
	// Outputs are the data hops that left the visit (indices into Request.Hops), by send time.
	Outputs []int `json:"outputs"`
	// Activation is an index into Result.Activations; -1 when it is not known.
	Activation int `json:"activation"`
	// Shares of [start, finish] from off-CPU records, µs; null when not known. OnCPUUS, RunQueueUS
	// and the blocked times add up to the service time where all are known.
	OnCPUUS    *float64  `json:"on_cpu_us"`
	RunQueueUS *float64  `json:"run_queue_us"` // ready to run, without a CPU
	Blocked    []Blocked `json:"blocked"`      // asleep, by reason, longest first; null when not known

	tid     uint32   // the thread that served it; 0 not known
	batches []uint64 // messages for several requests that brought it in or carried its result
}

// Blocked is the part of a visit's service in which its thread slept for one reason.
type Blocked struct {
	// Reason: "lock" (a futex that others wait on, the GIL among them; a file lock), "futex", "timer",
	// "poll", "io", "memory" (mappings and truncation), "fault" (in no call), "yield", "ioctl", "child",
	// "other", or "unseen" (when it was woken was not seen: time in the run queue may be in it).
	Reason string  `json:"reason"`
	US     float64 `json:"us"`
	N      int     `json:"n"` // sleeps that lie in it at least in part
}

// Activation is one firing of a stage: the visits that it worked on together. Visits are in one when
// a single message carried them (exact), or when the intervals in which one thread is certain to
// have served them overlap (ordered); overlap is carried on, so that with continuous batching, where
// members join and leave, an activation lasts until no request is left. A visit whose thread is not
// known, or whose boundaries are too wide to say whether it was served alone, is in none.
type Activation struct {
	Stage  string `json:"stage"`
	TGID   uint32 `json:"tgid"`
	Start  Point  `json:"start"`  // earliest start of its members
	Finish Point  `json:"finish"` // latest finish of its members
	// Members are its visits: index into Result.Requests and into that request's Visits.
	Members  [][2]int `json:"members"`
	Identity Identity `json:"identity"` // exact: one message carried all; ordered: from overlap in time, or the lack of it
}

// Hop is one crossing of a channel by one message.
type Hop struct {
	From      string        `json:"from"` // stage
	To        string        `json:"to"`
	FromTGID  uint32        `json:"from_tgid"`
	ToTGID    uint32        `json:"to_tgid"`
	Type      string        `json:"type"`
	Chunk     *int64        `json:"chunk"`
	Transport run.Transport `json:"-"`
	Via       string        `json:"transport"` // Transport.String(), "+shm" when a segment is referenced
	Send      Point         `json:"send"`      // write call that carried its first byte entered
	Recv      Point         `json:"recv"`      // read call that brought its last byte returned
	// VisibleNS is when its last byte was seen to be in the receiver's queue, at the latest; TCP only.
	VisibleNS *int64 `json:"visible_ns"`
	// PickedUpNS is when the read call that brought its first byte was entered; before Send when the
	// reader already waited in it.
	PickedUpNS *int64 `json:"picked_up_ns"`
	Bytes      *int64 `json:"bytes"` // message bytes
	ShmName    string `json:"shm,omitempty"`
	ShmBytes   *int64 `json:"shm_bytes"` // referenced payload
	// Shared-memory phases of the payload this message refers to.
	ShmWrite *[2]int64 `json:"shm_write_ns"` // create … unmapped by the sender
	ShmRead  *[2]int64 `json:"shm_read_ns"`  // opened … unlinked or unmapped by the receiver
	// ShmPhases says more of that payload; absent when no call on its segment was seen.
	ShmPhases *ShmPhases `json:"shm_phases,omitempty"`
	// CreditWaitUS is how long the payload waited for a credit of its receiver; absent where no
	// acknowledgements were seen that limit what is in flight.
	CreditWaitUS *CreditWait `json:"credit_wait_us,omitempty"`
	Identity     Identity    `json:"identity"`
	Reason       string      `json:"reason,omitempty"` // why it is not exact/seen
}

// ShmPhases are the steps of a payload through a shared-memory segment, as its calls show them. What
// was not seen is null.
type ShmPhases struct {
	CreatedNS  *int64   `json:"created_ns"`  // the creator's open entered
	Write      *Phase   `json:"write"`       // by the sender
	OpenedNS   *int64   `json:"opened_ns"`   // first open of the receiver that found it, returned
	Read       *Phase   `json:"read"`        // by the receiver
	UnlinkedNS *int64   `json:"unlinked_ns"` // returned
	LockWaitUS ShmLock  `json:"shm_lock_wait_us"`
	Poll       *ShmPoll `json:"shm_poll"` // null: the receiver never looked in vain
}

// Phase is a stretch of time between two events that Rule names.
type Phase struct {
	FromNS int64  `json:"from_ns"`
	ToNS   int64  `json:"to_ns"`
	Rule   string `json:"rule"` // "mmap→munmap", "ftruncate→munmap", …
}

// ShmLock is the time in calls that asked for the lock of a segment, by side; null when no such call
// was seen. A lock that is free costs about a microsecond.
type ShmLock struct {
	Sender   *float64 `json:"sender"`
	Receiver *float64 `json:"receiver"`
}

// ShmPoll is the receiver's wait by looking for a segment again and again.
type ShmPoll struct {
	N       int   `json:"n"`        // opens that found nothing
	FromNS  int64 `json:"from_ns"`  // the first of them entered
	LastNS  int64 `json:"last_ns"`  // the last of them returned
	FoundNS int64 `json:"found_ns"` // the first that succeeded returned
	// WaitUS is FromNS to FoundNS; JitterUS is LastNS to FoundNS: how late polling may have found it.
	WaitUS   float64 `json:"wait_us"`
	JitterUS float64 `json:"jitter_us"`
}

// CreditWait is a bounded estimate in µs.
type CreditWait struct {
	Lo   float64 `json:"lo"`
	Est  float64 `json:"est"`
	Hi   float64 `json:"hi"`
	Rule string  `json:"rule"`
}

// Alias is another name of a request and why it is believed.
type Alias struct {
	Value  string `json:"value"`
	Reason string `json:"reason"` // "request", "contains", "same-exchange", "same-message", "order"
}

// RequestTimeline is everything known of one request.
type RequestTimeline struct {
	ID       string       `json:"request_id"`
	Source   string       `json:"source"` // "loadgen" | "discovered"
	Aliases  []Alias      `json:"aliases"`
	State    string       `json:"state"`
	Client   *run.Request `json:"client"`      // null when discovered only
	Entry    Point        `json:"entry"`       // engine's own read of the request's last byte
	Reply    Point        `json:"first_reply"` // first reply byte written by the entry
	Exit     Point        `json:"exit"`        // last reply write returned
	Visits   []Visit      `json:"visits"`
	Hops     []Hop        `json:"hops"`
	JCTUS    *float64     `json:"jct_us"`      // entry → exit
	Residual *float64     `json:"residual_us"` // JCT not covered by any visit's residency or hop
	// FromEntry is the client's view with the engine's own read as zero; null without both.
	FromEntry *FromEntry `json:"client_from_entry,omitempty"`
	InFlight  bool       `json:"in_flight_at_attach"`
	Notes     []string   `json:"notes,omitempty"`
}

// Channel is two endpoints (or a set of equal connections) between two stages.
type Channel struct {
	From          string    `json:"from"`
	To            string    `json:"to"`
	FromTGID      uint32    `json:"from_tgid"`
	ToTGID        uint32    `json:"to_tgid"`
	Transport     string    `json:"transport"`
	Endpoints     [2]uint32 `json:"endpoints"`
	Messages      uint64    `json:"messages"` // framed messages seen at the sender
	Received      uint64    `json:"received"`
	Unmatched     uint64    `json:"unmatched"` // seen at one end only
	BytesUnframed uint64    `json:"bytes_unframed"`
	Notices       uint64    `json:"notices,omitempty"` // messages of one byte that say no more than "look"
	Yields        *Yields   `json:"yields,omitempty"`  // of a ring: its reader's spinning; absent: none seen
	Covered       bool      `json:"covered"`           // false: a channel whose content cannot be read (why in Why)
	Why           string    `json:"why,omitempty"`
}

// Yields is the time that threads of a process gave their CPU to others in sched_yield. Spinning
// while nobody else wants the CPU switches to no one and is not seen.
type Yields struct {
	N  uint64  `json:"n"`
	US float64 `json:"us"`
}

// Stage is a worker role and the rule that named it.
type Stage struct {
	Name   string   `json:"name"`
	Rule   string   `json:"rule"` // "bound socket path", "process title", "message field", "process"
	TGIDs  []uint32 `json:"tgids"`
	Entry  bool     `json:"entry"`
	Engine string   `json:"engine,omitempty"`
}

// Uncovered is a hop of the graph that the kernel cannot see.
type Uncovered struct {
	From string `json:"from"`
	To   string `json:"to"`
	Why  string `json:"why"`
	N    int    `json:"n"`
}

// LossEntry is one line of the loss ledger.
type LossEntry struct {
	Reason   string `json:"reason"`
	What     string `json:"what"`
	N        uint64 `json:"n"`
	Bytes    uint64 `json:"bytes"`
	FromNS   int64  `json:"from_ns"`
	ToNS     int64  `json:"to_ns"`
	Severity string `json:"severity"` // "info", "data-loss"
	Meaning  string `json:"meaning"`  // one line for people
}

// Counts of what the timeline took in; every record is in exactly one class.
type Counts struct {
	Records          uint64 `json:"records"`
	Messages         uint64 `json:"messages"`
	MessagesNoID     uint64 `json:"messages_without_id"`
	MessagesPaired   uint64 `json:"messages_seen_at_both_ends"`
	MessagesOneEnded uint64 `json:"messages_seen_at_one_end"`
	MessagesAtEntry  uint64 `json:"messages_at_entry"`        // HTTP with clients outside the targets
	MessagesOutside  uint64 `json:"messages_with_outside"`    // other messages whose peer is no target
	MessagesUnframed uint64 `json:"messages_without_framing"` // bursts: one a call
	Gaps             uint64 `json:"gaps"`
	Resyncs          uint64 `json:"resyncs"`
	BytesUnframed    uint64 `json:"bytes_unframed"`
}

// Result is a finished timeline. Requests are sorted by Entry (or client send) time; read them with
// All, which also finds those that Options.Store keeps, of which Requests and Activations hold none.
type Result struct {
	Stages   []Stage           `json:"stages"`
	Channels []Channel         `json:"channels"`
	Requests []RequestTimeline `json:"requests"`
	// Activations are sorted by start; null when a report does not list them.
	Activations []Activation `json:"activations"`
	Uncovered   []Uncovered  `json:"uncovered_hops"`
	Loss        []LossEntry  `json:"loss"`
	Counts      Counts       `json:"counts"`
	Notes       []run.Note   `json:"notes"`
	FromNS      int64        `json:"from_ns"`
	ToNS        int64        `json:"to_ns"`

	kept *shelved // the requests, when Options.Store keeps them
}
