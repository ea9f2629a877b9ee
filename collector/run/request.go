package run

// Request is one line of requests.jsonl: one attempt of the load generator, or one request
// discovered at the engine's entry (Source "discovered"; client times are then null).
type Request struct {
	RunID    string `json:"run_id"`
	Source   string `json:"source"` // "loadgen" | "discovered"
	ID       string `json:"request_id"`
	Group    string `json:"attempt_group"` // id of the first attempt
	Attempt  int    `json:"attempt"`       // from 1
	Session  string `json:"session_id,omitempty"`
	Class    string `json:"class,omitempty"`
	Tenant   string `json:"tenant,omitempty"`
	Turn     int    `json:"turn,omitempty"` // of the session, from 1
	Method   string `json:"method"`
	Path     string `json:"path"` // without query
	Local    string `json:"local,omitempty"`
	Remote   string `json:"remote,omitempty"`
	NewConn  *bool  `json:"new_connection"`
	Exchange *int   `json:"exchange"` // number of the exchange on its connection, from 1

	PlannedNS   *int64 `json:"planned_mono_ns"`   // absolute deadline from the schedule (a later turn's: from the reply before); null in closed loop
	DequeuedNS  *int64 `json:"dequeued_mono_ns"`  // a worker took it up, possibly ahead of its time
	ConnectedNS *int64 `json:"connected_mono_ns"` // connection ready
	SentNS      *int64 `json:"sent_mono_ns"`      // just before the first write
	WrittenNS   *int64 `json:"written_mono_ns"`   // request fully written
	FirstByteNS *int64 `json:"first_byte_mono_ns"`
	FirstNS     *int64 `json:"first_content_mono_ns"` // first event with content (TTFT/TTFA)
	LastNS      *int64 `json:"last_content_mono_ns"`
	EndNS       *int64 `json:"end_mono_ns"` // stream end or failure

	// LagNS is how much later than it could have been the generator sent the request: after its planned
	// time and after a place under its cap (closed loop: the reply before) was there, connecting aside.
	LagNS *int64 `json:"lag_ns"`

	BytesOut int64  `json:"bytes_out"`
	BytesIn  int64  `json:"bytes_in"`
	Status   int    `json:"http_status"`
	State    string `json:"state"` // contract C12
	Error    string `json:"error,omitempty"`
	Finish   string `json:"finish_reason,omitempty"`
	Tokens   *int64 `json:"completion_tokens"`
	ReplyID  string `json:"reply_id,omitempty"` // id in the reply, an alias of ID

	TokensFrom   string          `json:"tokens_from,omitempty"`   // the server's field that Tokens is taken from
	PromptTokens *int64          `json:"prompt_tokens,omitempty"` // as the server says; absent when it does not
	TextChars    int64           `json:"text_chars,omitempty"`    // characters of text and reasoning that came
	Prompt       int             `json:"prompt,omitempty"`        // number of the given prompt, from 1
	Retried      bool            `json:"retried,omitempty"`       // another attempt of the group followed
	Engine       *EngineCounters `json:"engine_counters,omitempty"`
	Audio        *Audio          `json:"audio,omitempty"`

	Events []ReplyEvent `json:"events"`

	// Quality, when there is one, is written to quality.jsonl beside the request.
	Quality *Quality `json:"-"`
}

// ReplyEvent is one event of a streamed reply, stamped with the arrival of the bytes of the raw socket
// read that completed it.
type ReplyEvent struct {
	MonoNS    int64  `json:"mono_ns"`
	Kind      string `json:"kind"` // "content", "reasoning", "audio", "role", "usage", "finish", "done", "error", "comment", "other"; of the client itself "paused", "resumed"
	Bytes     int    `json:"bytes"`
	Tokens    int    `json:"tokens,omitempty"`    // completion tokens that the server counts to this event; 0: not said
	Coalesced bool   `json:"coalesced,omitempty"` // shared its read with the event before
	// ReadLagNS is how much later than MonoNS the client's own read returned, where MonoNS is the
	// kernel's stamp of the arrival; 0 where MonoNS is the stamp of the read itself.
	ReadLagNS int64 `json:"read_lag_ns,omitempty"`
}

// Terminal states of a request (contract C12).
const (
	StateSuccess          = "success"
	StateQualityFailed    = "quality-failed"
	StateClientCancelled  = "client-cancelled"
	StateDeadlineExceeded = "deadline-exceeded"
	StateRejected         = "admission-rejected"
	StateOOM              = "oom"
	StateWorkerLost       = "worker-lost"
	StateTransportError   = "transport-error"
	StateInvalidOutput    = "invalid-output"
	StateHarnessError     = "harness-error"
	// StateNotApplicable is a modality that the model lacks (contract C3): no failure, and in no figure.
	StateNotApplicable = "not-applicable"
)
