package run

// Overhead is what the recording itself took, beside what the recorded processes took. Null in the
// metadata when the recorder was killed before it could say.
type Overhead struct {
	// FromNS to ToNS is the recording: from when the probes were on and the snapshot was taken until it
	// was told to end.
	FromNS int64 `json:"from_mono_ns"`
	ToNS   int64 `json:"to_mono_ns"`
	// Programs are the kernel programs during CountedNS of the recording, in which the kernel kept
	// their time; empty when it never did. They run in whichever process of the host passes a hook,
	// and their time is part of that process's CPU time.
	// KeepingNS is what keeping it adds to each run; it is in RunNS, and 0 when not known.
	CountedNS int64         `json:"counted_ns"`
	KeepingNS float64       `json:"keeping_ns_per_run"`
	Programs  []ProgramCost `json:"programs"`
	// RecordingCPUNS is what the whole recording process took, all its threads and their time in the
	// kernel, and DrainCPUNS the part of it that emptied the ring, decoded and wrote. When the load
	// generator ran in that process as well (SharesProcess), its time is in it, too.
	// AttachCPUNS is what the process took before, from its first look at the host, and EndCPUNS after,
	// until this account was closed, that is without sealing. ProcessCPUNS is all three.
	// Runs of versions that did not tell them apart have null: there FromNS and ProcessCPUNS begin when
	// the programs were loaded, and ToNS and DrainCPUNS reach to the end of the account.
	RecordingCPUNS *int64 `json:"recording_cpu_ns"`
	DrainCPUNS     int64  `json:"drain_cpu_ns"`
	AttachCPUNS    *int64 `json:"attach_cpu_ns"`
	EndCPUNS       *int64 `json:"end_cpu_ns"`
	ProcessCPUNS   int64  `json:"process_cpu_ns"`
	SharesProcess  bool   `json:"load_in_same_process"`
	// TargetCPUNS is the CPU time of the targets, the programs' time in them included. Of the
	// TargetsEnded the time is counted up to the last look, at most a second before their end.
	TargetCPUNS  int64 `json:"target_cpu_ns"`
	Targets      int   `json:"targets"`
	TargetsEnded int   `json:"targets_ended"`
}

// ProgramCost is one kernel program while its time was kept.
type ProgramCost struct {
	Name  string `json:"name"`
	Runs  uint64 `json:"runs"`
	RunNS int64  `json:"run_ns"`
}

// KernelNS is the run time of all programs over the whole recording, scaled from the part of it in
// which it was kept and without the keeping; false when that is nothing.
func (o *Overhead) KernelNS() (ns int64, known bool) {
	if len(o.Programs) == 0 || o.CountedNS <= 0 {
		return 0, false
	}
	for _, p := range o.Programs {
		ns += max(0, p.RunNS-int64(o.KeepingNS*float64(p.Runs)))
	}
	return int64(float64(ns) * float64(o.ToNS-o.FromNS) / float64(o.CountedNS)), true
}

// RecorderNS bounds the recorder's CPU time; both ends are equal when nothing else ran in its process.
// Where attaching and ending are not told apart they are in the upper end.
func (o *Overhead) RecorderNS() (lo, hi int64) {
	hi = o.ProcessCPUNS
	if o.RecordingCPUNS != nil {
		hi = *o.RecordingCPUNS
	}
	if o.SharesProcess {
		return o.DrainCPUNS, hi
	}
	return hi, hi
}
