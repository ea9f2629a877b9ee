package loadgen

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/stageline/stageline/collector/run"
)

// chunk is one object of the OpenAI family of replies, as far as it is read: a chat or text
// completion or a chunk of one, a transcription, an event of streamed speech. Fields that servers
// shape differently stay raw.
type chunk struct {
	ID       string          `json:"id"`
	Object   string          `json:"object"`
	Type     string          `json:"type"` // of an event: "transcript.text.delta", "speech.audio.done", …
	Modality string          `json:"modality"`
	Error    json.RawMessage `json:"error"`
	Choices  []struct {
		Delta        *delta          `json:"delta"`
		Message      *delta          `json:"message"`
		Text         string          `json:"text"`
		FinishReason json.RawMessage `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens *int64 `json:"completion_tokens"`
		PromptTokens     *int64 `json:"prompt_tokens"`
	} `json:"usage"`

	Delta        json.RawMessage `json:"delta"` // transcriptions: a string
	Text         json.RawMessage `json:"text"`
	Audio        json.RawMessage `json:"audio"` // speech: base64, or an object with it
	FinishReason json.RawMessage `json:"finish_reason"`
}

type delta struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Reasoning        string          `json:"reasoning"`
	ReasoningContent string          `json:"reasoning_content"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
	Audio            *audioDelta     `json:"audio"`
}

// audioDelta is a piece of audio: of a chat delta, or of an event of streamed speech.
type audioDelta struct {
	Data       string `json:"data"`
	Transcript string `json:"transcript"`
	SampleRate int    `json:"sample_rate"`
}

func (c *chunk) isError() bool {
	return c.Object == "error" || len(c.Error) > 0 && string(c.Error) != "null"
}

// parts is what a chunk brings: bytes and characters of text and of reasoning, and audio.
type parts struct {
	text, textChars           int
	reasoning, reasoningChars int
	audio                     []audioDelta
	role                      bool
}

func (c *chunk) parts() parts {
	var p parts
	for i := range c.Choices {
		ch := &c.Choices[i]
		p.addText(ch.Text)
		for _, d := range []*delta{ch.Delta, ch.Message} {
			if d != nil {
				p.addDelta(d, c.Modality)
			}
		}
	}
	if len(c.Choices) == 0 {
		p.addFlat(c)
	}
	return p
}

func (p *parts) addText(s string) {
	p.text += len(s)
	p.textChars += utf8.RuneCountInString(s)
}

func (p *parts) addDelta(d *delta, modality string) {
	p.role = p.role || d.Role != ""
	if modality == "audio" { // audio as base64 text of the content field
		var s string
		if json.Unmarshal(d.Content, &s) == nil && s != "" {
			p.audio = append(p.audio, audioDelta{Data: s})
		}
	} else {
		p.addContent(d.Content)
	}
	n := listLen(d.ToolCalls)
	p.text, p.textChars = p.text+n, p.textChars+n
	thought := d.Reasoning
	if len(d.ReasoningContent) > len(thought) { // some servers send both names
		thought = d.ReasoningContent
	}
	p.reasoning += len(thought)
	p.reasoningChars += utf8.RuneCountInString(thought)
	if a := d.Audio; a != nil {
		p.addText(a.Transcript)
		if a.Data != "" {
			p.audio = append(p.audio, *a)
		}
	}
}

// addContent takes a content field: a string, or a list of parts with text.
func (p *parts) addContent(raw json.RawMessage) {
	if len(raw) == 0 || raw[0] == 'n' {
		return
	}
	if raw[0] == '"' {
		var s string
		_ = json.Unmarshal(raw, &s) // anything else has no text
		p.addText(s)
		return
	}
	var list []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(raw, &list)
	for _, part := range list {
		p.addText(part.Text)
	}
}

// addFlat takes transcriptions and speech, which have no choices. The last event of a streamed
// transcription repeats the whole text: only deltas are content there.
func (p *parts) addFlat(c *chunk) {
	var s string
	if json.Unmarshal(c.Delta, &s) == nil {
		p.addText(s)
	}
	if c.Type != "transcript.text.done" && json.Unmarshal(c.Text, &s) == nil {
		p.addText(s)
	}
	var a audioDelta
	if json.Unmarshal(c.Audio, &a.Data) != nil {
		_ = json.Unmarshal(c.Audio, &a)
	}
	if a.Data != "" {
		p.audio = append(p.audio, a)
	}
}

// finish returns the first finish reason, "" when none is a short word.
func (c *chunk) finish() string {
	reasons := make([]json.RawMessage, 0, len(c.Choices)+1)
	for i := range c.Choices {
		reasons = append(reasons, c.Choices[i].FinishReason)
	}
	for _, raw := range append(reasons, c.FinishReason) {
		var s string
		if json.Unmarshal(raw, &s) == nil && len(s) <= 32 && idShaped(s) {
			return s
		}
	}
	if c.Type == "transcript.text.done" || c.Type == "speech.audio.done" {
		return "done"
	}
	return ""
}

func listLen(raw json.RawMessage) int {
	var l []json.RawMessage
	if json.Unmarshal(raw, &l) != nil || len(l) == 0 {
		return 0
	}
	return len(raw)
}

// take applies one chunk, or the one object of a reply that is not streamed.
func (r *reply) take(c *chunk, size int) {
	if r.req.ReplyID == "" && idShaped(c.ID) {
		r.req.ReplyID = c.ID
	}
	usage := c.Usage != nil && c.Usage.CompletionTokens != nil
	if c.Usage != nil && c.Usage.PromptTokens != nil {
		r.req.PromptTokens = c.Usage.PromptTokens
	}
	if usage {
		r.counted(*c.Usage.CompletionTokens, "usage")
	}
	finish := c.finish()
	if finish != "" {
		r.req.Finish = finish
		if finish == "abort" || finish == "error" {
			r.failed(run.StateInvalidOutput, "server ended the reply with finish_reason %q", finish)
		}
	}
	before := len(r.req.Events)
	p := c.parts()
	r.text("reasoning", p.reasoning, p.reasoningChars)
	r.text("content", p.text, p.textChars)
	for i := range p.audio {
		r.audioText(p.audio[i].Data, p.audio[i].SampleRate)
	}
	switch {
	case len(r.req.Events) > before:
	case finish != "":
		r.add("finish", 0)
	case usage:
		r.add("usage", 0)
	case p.role:
		r.add("role", 0)
	case r.mode == ReplyAny && len(c.Choices) == 0:
		r.add("content", size)
	default:
		r.add("other", 0)
	}
}
