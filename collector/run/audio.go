package run

// Audio is what the audio of one reply was. A figure that nobody stated is null.
type Audio struct {
	Format     string `json:"format"` // as asked for, or the container that came: "wav", "pcm", …
	SampleRate *int   `json:"sample_rate"`
	Channels   *int   `json:"channels"`
	Bits       *int   `json:"bits_per_sample"`
	RateFrom   string `json:"rate_from,omitempty"` // "header", "content-type", "reply", "user"
	// Samples are those that came, per channel; null where the coding hides them.
	Samples  *int64 `json:"samples"`
	Declared *int64 `json:"declared_samples"` // per channel, as the header says; null when it says nothing
	// FirstPlayableNS is the read after which PlayableSamples samples had come.
	FirstPlayableNS *int64   `json:"first_playable_mono_ns"`
	PlayableSamples int      `json:"playable_samples"`
	Changes         int      `json:"format_changes"` // of rate, channels or sample size within the reply
	SilenceRatio    *float64 `json:"silence_ratio"`  // share of 20 ms windows below −50 dBFS
}

// EngineCounters are what an engine says of its own work in the reply (Ollama's last line).
type EngineCounters struct {
	TotalNS      *int64 `json:"total_ns"`
	LoadNS       *int64 `json:"load_ns"`
	PromptEvalNS *int64 `json:"prompt_eval_ns"`
	EvalNS       *int64 `json:"eval_ns"`
}

// Results of a quality check.
const (
	QualityOK      = "ok"
	QualityFailed  = "failed"
	QualityUnknown = "unknown" // what is needed for a judgement did not come
)

// Quality is one line of quality.jsonl: one check of one reply's output. It says nothing of the
// content: counts and places only.
type Quality struct {
	RunID     string `json:"run_id"`
	RequestID string `json:"request_id"`
	// Check is "audio-stream" (the reply by itself) or "audio-complete" (against the same request's
	// complete output).
	Check  string   `json:"check"`
	Status string   `json:"status"`
	Why    []string `json:"why,omitempty"`
	Audio  *Audio   `json:"audio"`
	Chunks int      `json:"chunks"` // pieces in which the server handed the audio out

	// Only for audio-complete, per channel.
	CompleteSamples *int64        `json:"complete_samples,omitempty"`
	Lost            *int64        `json:"lost_samples,omitempty"`
	Repeated        *int64        `json:"repeated_samples,omitempty"`
	Differing       *int64        `json:"differing_samples,omitempty"`
	MaxDifference   *float64      `json:"max_difference,omitempty"` // of full scale
	Tolerance       *float64      `json:"tolerance,omitempty"`      // of full scale
	Borders         []AudioBorder `json:"borders,omitempty"`
}

// AudioBorder is a place where samples are lost or repeated.
type AudioBorder struct {
	Sample   int64 `json:"sample"` // position in the streamed output, per channel
	Chunk    int   `json:"chunk"`  // piece that begins there or holds it, from 1
	AtBorder bool  `json:"at_border"`
	Lost     int64 `json:"lost,omitempty"`
	Repeated int64 `json:"repeated,omitempty"`
}
