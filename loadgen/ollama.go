package loadgen

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/stageline/stageline/collector/run"
)

// ollamaLine is one object of /api/generate or /api/chat. A counter that does not stand in it is not
// known: an engine leaves prompt_eval_count out when the prompt was cached.
type ollamaLine struct {
	Response string          `json:"response"`
	Thinking string          `json:"thinking"`
	Error    json.RawMessage `json:"error"`
	Message  *struct {
		Role      string          `json:"role"`
		Content   string          `json:"content"`
		Thinking  string          `json:"thinking"`
		ToolCalls json.RawMessage `json:"tool_calls"`
	} `json:"message"`
	Done       bool   `json:"done"`
	DoneReason string `json:"done_reason"`

	TotalNS      *int64 `json:"total_duration"`
	LoadNS       *int64 `json:"load_duration"`
	PromptTokens *int64 `json:"prompt_eval_count"`
	PromptEvalNS *int64 `json:"prompt_eval_duration"`
	Tokens       *int64 `json:"eval_count"`
	EvalNS       *int64 `json:"eval_duration"`
}

// ollama takes one line of a stream, or the one object of a reply that is not streamed.
func (r *reply) ollama(data []byte) {
	var l ollamaLine
	if err := json.Unmarshal(data, &l); err != nil {
		r.add("other", len(data))
		r.failed(run.StateInvalidOutput, "line %d of the stream is no object of this protocol", len(r.req.Events))
		return
	}
	if len(l.Error) > 0 && string(l.Error) != "null" {
		r.add("error", len(data))
		r.engineFailed(0, data)
		return
	}
	before := len(r.req.Events)
	text, thinking, other := l.Response, l.Thinking, 0
	if m := l.Message; m != nil {
		text, thinking, other = text+m.Content, thinking+m.Thinking, listLen(m.ToolCalls)
	}
	r.text("reasoning", len(thinking), utf8.RuneCountInString(thinking))
	r.text("content", len(text)+other, utf8.RuneCountInString(text)+other)
	if !l.Done {
		if len(r.req.Events) == before {
			r.add("other", 0)
		}
		return
	}
	r.done, r.doneNS = true, r.nowNS
	if idShaped(l.DoneReason) && len(l.DoneReason) <= 32 {
		r.req.Finish = l.DoneReason
	}
	if l.Tokens != nil {
		r.req.Tokens, r.req.TokensFrom = l.Tokens, "eval_count"
	}
	r.req.PromptTokens = l.PromptTokens
	r.req.Engine = &run.EngineCounters{TotalNS: l.TotalNS, LoadNS: l.LoadNS, PromptEvalNS: l.PromptEvalNS, EvalNS: l.EvalNS}
	r.add("done", 0)
}
