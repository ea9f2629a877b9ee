package run

// Event is one line of events.jsonl: a stage event as the analysis derived it at sealing. Unknown
// is null or absent.
type Event struct {
	RunID      string `json:"run_id"`
	RequestID  string `json:"request_id"`
	SessionID  string `json:"session_id,omitempty"`
	Stage      string `json:"stage"`
	Attempt    int    `json:"attempt,omitempty"`
	ChunkID    *int64 `json:"chunk_id"`
	Event      string `json:"event"` // "arrival", "ready", "start", "finish", "departure", "hop_send", "hop_recv", …
	MonoNS     *int64 `json:"mono_ns"`
	LoNS       *int64 `json:"lo_ns"`
	HiNS       *int64 `json:"hi_ns"`
	WallNS     *int64 `json:"wall_ns"`
	Device     string `json:"device,omitempty"`
	Bytes      *int64 `json:"bytes"`
	Batch      *int64 `json:"batch"`
	Samples    *int64 `json:"samples,omitempty"`
	SampleRate *int64 `json:"sample_rate,omitempty"`
	Status     string `json:"status"`
	Identity   string `json:"identity,omitempty"`
	Timing     string `json:"timing,omitempty"`
}
