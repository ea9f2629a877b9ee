package loadgen

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

// chunk is a chat completion chunk or a whole chat completion, as far as it is read. Fields that
// servers shape differently stay raw.
type chunk struct {
	ID       string          `json:"id"`
	Object   string          `json:"object"`
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
	} `json:"usage"`
}

type delta struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Reasoning        string          `json:"reasoning"`
	ReasoningContent string          `json:"reasoning_content"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
	Audio            *struct {
		Data string `json:"data"`
	} `json:"audio"`
}

func (c *chunk) isError() bool {
	return c.Object == "error" || len(c.Error) > 0 && string(c.Error) != "null"
}

// kind says what a chunk is for the reader of the reply, and how many bytes of it.
func (c *chunk) kind() (string, int) {
	var text, reasoning, audio int
	role := false
	for i := range c.Choices {
		ch := &c.Choices[i]
		text += len(ch.Text)
		for _, d := range []*delta{ch.Delta, ch.Message} {
			if d == nil {
				continue
			}
			role = role || d.Role != ""
			text += textLen(d.Content) + listLen(d.ToolCalls)
			reasoning += max(len(d.Reasoning), len(d.ReasoningContent)) // some servers send both names
			if d.Audio != nil {
				audio += decodedLen(d.Audio.Data)
			}
		}
	}
	if c.Modality == "audio" && text > 0 { // audio as base64 text of the content field
		audio, text = audio+text*3/4, 0
	}
	switch {
	case text > 0:
		return "content", text
	case audio > 0:
		return "audio", audio
	case reasoning > 0:
		return "reasoning", reasoning
	case c.finish() != "":
		return "finish", 0
	case c.Usage != nil && c.Usage.CompletionTokens != nil:
		return "usage", 0
	case role:
		return "role", 0
	}
	return "other", 0
}

// finish returns the first finish reason, "" when none is a short word.
func (c *chunk) finish() string {
	for i := range c.Choices {
		var s string
		if json.Unmarshal(c.Choices[i].FinishReason, &s) == nil && len(s) <= 32 && idShaped(s) {
			return s
		}
	}
	return ""
}

// textLen is the length in bytes of a content field: a string, or a list of parts with text.
func textLen(raw json.RawMessage) int {
	if len(raw) == 0 || raw[0] == 'n' {
		return 0
	}
	if raw[0] == '"' {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return 0
		}
		return len(s)
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return 0
	}
	n := 0
	for _, p := range parts {
		n += len(p.Text)
	}
	return n
}

func listLen(raw json.RawMessage) int {
	var l []json.RawMessage
	if json.Unmarshal(raw, &l) != nil || len(l) == 0 {
		return 0
	}
	return len(raw)
}

// decodedLen is the number of bytes that standard base64 text stands for.
func decodedLen(s string) int { return len(strings.TrimRight(s, "=")) * 3 / 4 }

const maxErrorLen = 256

// errorText finds the message and the numeric code in an error body: the OpenAI form, its flat
// form, FastAPI's detail (of a list of faults only their kinds: the rest quotes the request), else
// the text itself.
func errorText(body []byte) (text string, code int) {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &e) != nil {
		return oneLine(string(body)), 0
	}
	_ = json.Unmarshal(e.Code, &code) // a code that is a word stays 0
	var inner struct {
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"`
	}
	var faults []struct {
		Type string `json:"type"`
	}
	switch {
	case json.Unmarshal(e.Error, &text) == nil && text != "":
	case json.Unmarshal(e.Error, &inner) == nil && inner.Message != "":
		text = inner.Message
		_ = json.Unmarshal(inner.Code, &code)
	case e.Message != "":
		text = e.Message
	case json.Unmarshal(e.Detail, &text) == nil && text != "":
	case json.Unmarshal(e.Detail, &faults) == nil && len(faults) > 0:
		text = "request refused: " + faults[0].Type
	default:
		text = "no message in the error"
	}
	return oneLine(text), code
}

// oneLine shortens a text to one printable line.
func oneLine(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	if len(s) > maxErrorLen {
		s = strings.ToValidUTF8(s[:maxErrorLen], "") + "…"
	}
	if s == "" {
		return "no message"
	}
	return s
}

var (
	oomText = regexp.MustCompile(`(?i)out[ -]?of[ -]?memory|\bOOM\b`)
	// The engine itself must say that a part of it is gone; a connection that breaks is not enough.
	lostText = regexp.MustCompile(`(?i)\b(worker|stage|engine|process|replica|rank)\w*\b[^.]{0,48}\b(died|dead|crashed|lost|killed|exited|terminated)\b|EngineDead`)
)

// stateOf maps what the server said to a terminal state. A refused request (other 4xx) is this
// program's fault; any other failure that the server states is an output that is not valid.
func stateOf(status, code int, text string) string {
	if status == 0 && (code == 429 || code == 503) {
		status = code
	}
	switch {
	case oomText.MatchString(text):
		return run.StateOOM
	case lostText.MatchString(text):
		return run.StateWorkerLost
	case status == 429 || status == 503:
		return run.StateRejected
	case status/100 == 4:
		return run.StateHarnessError
	}
	return run.StateInvalidOutput
}
