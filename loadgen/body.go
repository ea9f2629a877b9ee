package loadgen

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// body renders request bodies from a template compiled to segments; prompts are escaped before the
// run, so that rendering is copying.
type body struct {
	segs    []segment
	prompts []prompt
	synth   *synthesis // nil when prompts are given
	private bool       // the template is the user's
}

type segment struct {
	lit  string
	hole string // "id", "n", "prompt", "max_tokens"; "" for a literal
}

type prompt struct {
	text    string
	escaped string // as it stands in the body
}

func newBody(cfg *Config) (*body, error) {
	tmpl := cfg.Template
	var err error
	if tmpl == "" {
		if tmpl, err = builtinTemplate(cfg); err != nil {
			return nil, err
		}
	}
	b := &body{private: cfg.Template != ""}
	if b.segs, err = compile(tmpl); err != nil {
		return nil, err
	}
	asJSON := strings.Contains(cfg.ContentType, "json")
	for _, p := range cfg.Prompts {
		e := p
		if asJSON {
			e = jsonInner(p)
		}
		b.prompts = append(b.prompts, prompt{p, e})
	}
	if len(b.prompts) == 0 {
		b.synth = newSynthesis(cfg)
	}
	return b, nil
}

// append adds the body of a request to dst.
func (b *body) append(dst []byte, it *Item) []byte {
	for _, s := range b.segs {
		switch s.hole {
		case "id":
			dst = append(dst, it.ID...)
		case "n":
			dst = strconv.AppendInt(dst, int64(it.N), 10)
		case "max_tokens":
			dst = strconv.AppendInt(dst, int64(it.MaxTokens), 10)
		case "prompt":
			dst = b.appendPrompt(dst, it)
		default:
			dst = append(dst, s.lit...)
		}
	}
	return dst
}

func (b *body) appendPrompt(dst []byte, it *Item) []byte {
	if len(b.prompts) > 0 {
		return append(dst, b.prompts[(it.N-1)%len(b.prompts)].escaped...)
	}
	return b.synth.append(dst, it)
}

// quotes says whether text repeats a stretch of what the user gave for request n: the prompt, the
// template, further fields, headers or the URL's query. Windows of 16 bytes, every 4: whatever
// quotes 19 bytes or more is found, and a shorter one when it is quoted whole. The built-in bodies
// and synthetic prompts hold nothing private.
func (p *Plan) quotes(text string, n int) bool {
	b, given := p.body, slices.Clone(p.given)
	if b.private {
		for _, s := range b.segs {
			given = append(given, s.lit)
		}
	}
	if len(b.prompts) > 0 {
		q := b.prompts[(n-1)%len(b.prompts)]
		given = append(given, q.text, q.escaped)
	}
	for _, g := range given {
		if len(g) > 3 && len(g) < 16 && strings.Contains(text, g) {
			return true
		}
		for i := 0; i+16 <= len(text) && len(g) >= 16; i += 4 {
			if strings.Contains(g, text[i:i+16]) {
				return true
			}
		}
	}
	return false
}

// privateTexts are what the user gave beside the body.
func privateTexts(cfg *Config, u *url.URL) []string {
	var out []string
	add := func(s string) {
		if s != "" {
			out = append(out, s)
		}
	}
	for _, h := range cfg.Header {
		_, v, _ := strings.Cut(h, ":")
		v = strings.TrimSpace(v)
		add(v)
		// A scheme such as "Bearer" goes before what is secret.
		if _, secret, ok := strings.Cut(v, " "); ok {
			add(strings.TrimSpace(secret))
		}
	}
	add(u.RawQuery)
	for _, values := range u.Query() {
		for _, v := range values {
			add(v)
		}
	}
	add(cfg.ExtraJSON)
	return out
}

func compile(tmpl string) ([]segment, error) {
	var out []segment
	for tmpl != "" {
		i := strings.Index(tmpl, "{{")
		if i < 0 {
			return append(out, segment{lit: tmpl}), nil
		}
		if i > 0 {
			out = append(out, segment{lit: tmpl[:i]})
		}
		rest := tmpl[i+2:]
		j := strings.Index(rest, "}}")
		if j < 0 {
			return nil, errors.New("load plan: body template: \"{{\" without \"}}\"")
		}
		switch name := strings.TrimSpace(rest[:j]); name {
		case "id", "n", "prompt", "max_tokens":
			out = append(out, segment{hole: name})
		default:
			return nil, fmt.Errorf("load plan: body template: {{%s}}: want {{id}}, {{n}}, {{max_tokens}} or {{prompt}}", name)
		}
		tmpl = rest[j+2:]
	}
	return out, nil
}

// builtinTemplate puts the id first, so that it stands in the captured head of the request however
// long the prompt is.
func builtinTemplate(cfg *Config) (string, error) {
	extra, err := extraFields(cfg.ExtraJSON)
	if err != nil {
		return "", err
	}
	var fields []string
	add := func(name, value string) {
		if _, given := extra[name]; !given {
			fields = append(fields, jsonString(name)+":"+value)
		}
	}
	if cfg.IDField != "" {
		add(cfg.IDField, `"{{id}}"`)
	}
	if cfg.Model != "" {
		add("model", jsonString(cfg.Model))
	}
	switch cfg.Reply {
	case ReplySpeech:
		if cfg.Voice != "" {
			add("voice", jsonString(cfg.Voice))
		}
		add("response_format", jsonString(cfg.Format))
		if cfg.Stream {
			add("stream", "true")
		}
	default:
		if v := cfg.maxTokens(); v != "" {
			add("max_tokens", v)
		}
		add("temperature", "0")
		add("stream", strconv.FormatBool(cfg.Stream))
		if cfg.Stream && !cfg.NoUsage {
			add("stream_options", `{"include_usage":true}`)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		fields = append(fields, jsonString(name)+":"+string(extra[name]))
	}
	if cfg.Reply == ReplySpeech {
		add("input", `"{{prompt}}"`)
	} else {
		add("messages", `[{"role":"user","content":"{{prompt}}"}]`)
	}
	return "{" + strings.Join(fields, ",") + "}", nil
}

// extraFields returns the members of a JSON object.
func extraFields(s string) (map[string]json.RawMessage, error) {
	if s == "" {
		return nil, nil
	}
	if strings.Contains(s, "{{") {
		return nil, errors.New("load plan: extra fields: \"{{\" has a meaning only in a body template")
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		return nil, fmt.Errorf("load plan: extra fields: want a JSON object: %w", err)
	}
	return m, nil
}

func jsonString(s string) string { return `"` + jsonInner(s) + `"` }

// jsonInner escapes s for the inside of a JSON string. <, > and & stay as they are: what reaches
// the engine's tokenizer must not depend on HTML escaping.
func jsonInner(s string) string {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil { // a string always encodes; a bytes.Buffer always takes it
		return ""
	}
	return buf.String()[1 : buf.Len()-2]
}

// requestHead is the constant part of a request's head; the id and the length vary.
type requestHead struct {
	start, rest string
	idHeaders   []string
	trace       bool
}

func newRequestHead(cfg *Config, u *url.URL) requestHead {
	accept := "*/*"
	if cfg.Stream && cfg.Reply == ReplyChat {
		accept = "text/event-stream"
	}
	rest := "Content-Type: " + cfg.ContentType + "\r\nAccept: " + accept + "\r\nUser-Agent: stageline\r\n"
	for _, h := range cfg.Header {
		rest += h + "\r\n"
	}
	return requestHead{
		start:     "POST " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\n",
		rest:      rest,
		idHeaders: cfg.IDHeaders,
		trace:     cfg.Trace,
	}
}

// appendRequest adds the whole request to dst. scratch is grown as needed and returned.
func (p *Plan) appendRequest(dst, scratch []byte, it Item) (req, newScratch []byte) {
	scratch = p.body.append(scratch[:0], &it)
	h := &p.head
	dst = append(dst, h.start...)
	for _, name := range h.idHeaders {
		dst = append(append(append(append(dst, name...), ": "...), it.ID...), "\r\n"...)
	}
	if h.trace {
		sum := sha256.Sum256([]byte(it.ID))
		dst = append(dst, "traceparent: 00-"...)
		dst = hex.AppendEncode(dst, sum[:16])
		dst = append(dst, '-')
		dst = hex.AppendEncode(dst, sum[16:24])
		dst = append(dst, "-01\r\n"...)
	}
	dst = append(dst, h.rest...)
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(scratch)), 10)
	dst = append(dst, "\r\n\r\n"...)
	return append(dst, scratch...), scratch
}
