package loadgen

// metric is one row of the summary.
type metric struct {
	name string
	unit string // "ms" or "" for a ratio or a count
	text string // its definition; "" where another row has said it
	of   func(*Measures) Figure
	into func(*Summary) **Dist
}

// Rows whose values are not one a request.
const (
	metricITL = 10
	metricGap = 11
)

var metrics = [...]metric{
	{"first content from send", "ms", "first event with text, reasoning or bytes of audio; from the first write of the request",
		func(m *Measures) Figure { return m.First.Send }, func(s *Summary) **Dist { return &s.FirstFromSend }},
	{"TTFT from send", "ms", "first event with text or reasoning that is not empty; from send: from just before the first write of the request",
		func(m *Measures) Figure { return m.TTFT.Send }, func(s *Summary) **Dist { return &s.TTFTFromSend }},
	{"TTFT from plan", "ms", "from plan: from the planned send, so that time held back by the generator or its cap is in it",
		func(m *Measures) Figure { return m.TTFT.Plan }, func(s *Summary) **Dist { return &s.TTFTFromPlan }},
	{"first answer from send", "ms", "first event with text that is not reasoning",
		func(m *Measures) Figure { return m.Answer.Send }, func(s *Summary) **Dist { return &s.AnswerFromSend }},
	{"first answer from plan", "ms", "", func(m *Measures) Figure { return m.Answer.Plan }, func(s *Summary) **Dist { return &s.AnswerFromPlan }},
	{"TTFA from send", "ms", "read after which the stated number of samples per channel (default 1) had come; headers and empty chunks have none",
		func(m *Measures) Figure { return m.TTFA.Send }, func(s *Summary) **Dist { return &s.TTFAFromSend }},
	{"TTFA from plan", "ms", "", func(m *Measures) Figure { return m.TTFA.Plan }, func(s *Summary) **Dist { return &s.TTFAFromPlan }},
	{"JCT from send", "ms", "end of the reply (end of its framing, or its end mark where the framing stays open); contains queueing, preprocessing and network",
		func(m *Measures) Figure { return m.JCT.Send }, func(s *Summary) **Dist { return &s.JCTFromSend }},
	{"JCT from plan", "ms", "", func(m *Measures) Figure { return m.JCT.Plan }, func(s *Summary) **Dist { return &s.JCTFromPlan }},
	{"TPOT", "ms", "(last − first text) ÷ (completion tokens − 1) of one request; not applicable for one token, not known without the server's count or when all came in one read",
		func(m *Measures) Figure { return m.TPOT }, func(s *Summary) **Dist { return &s.TPOT }},
	metricITL: {"ITL, by token", "ms", "time by token; k tokens of one read stand for k equal parts of the gap before it; not known where the server does not say how many a read brought",
		nil, func(s *Summary) **Dist { return &s.ITL }},
	metricGap: {"chunk gap", "ms", "between reads that completed content, of requests that came to their end; events of one read are coalesced and have no gap, and a pause of the client is none",
		nil, func(s *Summary) **Dist { return &s.ChunkGap }},
	{"largest chunk gap, a request", "ms", "", func(m *Measures) Figure { return m.MaxGap }, func(s *Summary) **Dist { return &s.MaxGap }},
	{"CV of chunk gaps, a request", "", "standard deviation ÷ mean of the chunk gaps of one request",
		func(m *Measures) Figure { return m.GapCV }, func(s *Summary) **Dist { return &s.GapCV }},
	{"RTF from send", "", "JCT ÷ duration of the audio that came (x_RT is 1 ÷ RTF); absent without audio",
		func(m *Measures) Figure { return m.RTF.Send }, func(s *Summary) **Dist { return &s.RTFFromSend }},
	{"RTF from plan", "", "", func(m *Measures) Figure { return m.RTF.Plan }, func(s *Summary) **Dist { return &s.RTFFromPlan }},
	{"underruns, a request", "", "how often a player that starts with the first playable sample and plays at real time runs dry before the end",
		func(m *Measures) Figure { return m.Underruns }, func(s *Summary) **Dist { return &s.Underruns }},
	{"stalled playback, a request", "ms", "time that this player stands still in all", func(m *Measures) Figure { return m.Stall }, func(s *Summary) **Dist { return &s.Stall }},
	{"longest stall, a request", "ms", "", func(m *Measures) Figure { return m.LongestGap }, func(s *Summary) **Dist { return &s.LongestStall }},
}

var commonDefinitions = []Definition{
	{"stamp", "when the bytes had arrived at the client's socket, below TLS and HTTP and before parsing; under TLS the read of the record, under HTTP/2 the read that completed the frame"},
	{"percentiles", "nearest rank over measured and failed attempts together; a failed attempt is later than any other, so a percentile among them is unbounded. A longer series than 65536 is counted in buckets of 1/1024 of the value"},
	{"n, failed, n/a, n?", "measured; failed before the point; not applicable (in no percentile); not known (in no percentile)"},
}

var compatDefinitions = []Definition{
	{"M1 tok_per_sec", "tokens_generated ÷ generation_s, generation_s = total − TTFT; 0.0 when generation_s < 0.01 s. Ollama: eval_duration of the server, else the client's clock"},
	{"M2 ttft_ms", "request sent → first output token. Ollama: prompt_eval_duration; else first content chunk − send at the client"},
	{"M3 total_duration_ms", "wall time of the request"},
	{"M4 tokens_generated", "the server's counter (eval_count, usage.completion_tokens), else max(1, characters ÷ 4); never the number of chunks"},
	{"M5 generation_duration_ms", "eval_duration (Ollama), else max(0, total − TTFT)"},
	{"M6, M7", "mean GPU power over these runs, and M1 ÷ M6: not measured by the load"},
	{"M8 std_dev_tok_s", "pooled within prompts: root of the mean population variance of prompts run at least twice; CV = that ÷ average · 100: < 5 stable, < 10 variable, else unstable"},
}
