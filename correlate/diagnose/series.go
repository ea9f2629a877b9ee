package diagnose

// StageSeries is what stood and ran at one stage over time: one point at each change.
type StageSeries struct {
	Stage  string        `json:"stage"`
	Points []SeriesPoint `json:"points"` // by time
}

// SeriesPoint holds from NS to the next point. Visits without known times are in no count.
type SeriesPoint struct {
	NS       int64  `json:"ns"`              // CLOCK_MONOTONIC
	Queue    int    `json:"queue"`           // visits that are ready and have not started
	OldestNS *int64 `json:"oldest_ready_ns"` // ready of the one that waits longest; null: none waits
	Active   int    `json:"active"`          // visits that have started and not finished
}
