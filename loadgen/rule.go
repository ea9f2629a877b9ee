package loadgen

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stageline/stageline/collector/run"
)

// Rule says where a reply of an API that is not built in has its content and its end. Places are
// dotted paths into each JSON event, line or body: "choices.0.text". The zero value is no rule.
type Rule struct {
	Framing string // "sse", "ndjson", "json" or "raw"; "" goes by the content type
	Content string // text, or anything that is not empty
	Audio   string // base64
	End     string // PATH: present and not false, 0, null or ""; PATH=VALUE: equal to it
	Tokens  string // number of completion tokens so far
	Error   string // present and not empty: the server failed
}

func (r *Rule) isSet() bool { return *r != Rule{} }

func (r *Rule) check() error {
	switch r.Framing {
	case "", "sse", "ndjson", "json", "raw":
		return nil
	}
	return fmt.Errorf("load plan: framing %.20q of the reply: want sse, ndjson, json or raw", r.Framing)
}

func (r *Rule) shape() (shape, bool) {
	s, ok := map[string]shape{"sse": shapeSSE, "ndjson": shapeLines, "json": shapeJSON, "raw": shapeRaw}[r.Framing]
	return s, ok
}

// follow takes a dotted path; nil when it leads nowhere.
func follow(v any, path string) any {
	for part := range strings.SplitSeq(path, ".") {
		switch t := v.(type) {
		case map[string]any:
			v = t[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(t) {
				return nil
			}
			v = t[i]
		default:
			return nil
		}
	}
	return v
}

// present says whether a value means something: not null, false, 0, "" or empty.
func present(v any) bool {
	switch t := v.(type) {
	case nil:
		return false
	case bool:
		return t
	case float64:
		return t != 0
	case string:
		return t != ""
	case []any:
		return len(t) > 0
	case map[string]any:
		return len(t) > 0
	}
	return true
}

func (r *Rule) ended(v any) bool {
	path, want, exact := strings.Cut(r.End, "=")
	got := follow(v, path)
	if !exact {
		return present(got)
	}
	return got != nil && fmt.Sprint(got) == want
}

// byRule takes one JSON value of a reply.
func (r *reply) byRule(data []byte) {
	rule := &r.cfg.Client.Rule
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		if rule.Content == "" {
			r.text("content", len(data), utf8.RuneCount(data))
			return
		}
		r.add("other", len(data))
		r.failed(run.StateInvalidOutput, "event %d of the reply is no JSON, the rule for its content needs it", len(r.req.Events))
		return
	}
	if rule.Error != "" && present(follow(v, rule.Error)) {
		r.add("error", len(data))
		text := fmt.Sprint(follow(v, rule.Error))
		r.failed(r.stateOf(0, 0, text), "server: %s", oneLine(text))
		return
	}
	if n, ok := follow(v, rule.Tokens).(float64); rule.Tokens != "" && ok {
		r.counted(int64(n), "rule")
	}
	before := len(r.req.Events)
	if s, ok := follow(v, rule.Audio).(string); rule.Audio != "" && ok && s != "" {
		r.audioText(s, 0)
	}
	switch c := follow(v, rule.Content).(type) {
	case nil:
		if rule.Content == "" && rule.Audio == "" {
			r.text("content", len(data), utf8.RuneCount(data))
		}
	case string:
		r.text("content", len(c), utf8.RuneCountInString(c))
	default:
		if present(c) {
			r.text("content", len(data), 0)
		}
	}
	if rule.End != "" && rule.ended(v) {
		r.done, r.doneNS = true, r.nowNS
		r.add("done", 0)
	} else if len(r.req.Events) == before {
		r.add("other", len(data))
	}
}

// audioText takes a base64 piece of audio; rate, when stated beside it, is in Hz.
func (r *reply) audioText(s string, rate int) {
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		r.failed(run.StateInvalidOutput, "audio of event %d is no base64", len(r.req.Events)+1)
		return
	}
	m := r.audioOf("")
	if rate > 0 && !m.isWAV && m.format.rate != rate {
		m.setFormat(pcmFormat{rate: rate, channels: max(m.format.channels, 1), bits: max(m.format.bits, 16)}, "reply")
	}
	if n := m.piece(r.nowNS, b); n > 0 {
		r.add("audio", n)
	}
}
