package loadgen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// fields collects the members of a built-in JSON body. What the user gives as a further field
// replaces the built-in one.
type fields struct {
	extra map[string]json.RawMessage
	out   []string
}

func (f *fields) add(name, value string) {
	if _, given := f.extra[name]; !given {
		f.out = append(f.out, jsonString(name)+":"+value)
	}
}

// addIf adds a string field that is not empty.
func (f *fields) addIf(name, value string) {
	if value != "" {
		f.add(name, jsonString(value))
	}
}

// builtinTemplate puts the id first, so that it stands in the captured head of the request however
// long the prompt is.
func builtinTemplate(cfg *Config) (string, error) {
	extra, err := extraFields(cfg.ExtraJSON)
	if err != nil {
		return "", err
	}
	f := &fields{extra: extra}
	if cfg.IDField != "" {
		f.add(cfg.IDField, `"{{id}}"`)
	}
	f.addIf("model", cfg.Model)
	input := map[Reply]func(*fields, *Config) (string, string){
		ReplySpeech: speechFields,
		ReplyOllama: ollamaFields,
		ReplyText:   textFields,
		ReplyChat:   chatFields,
	}[cfg.Reply]
	if input == nil {
		return "", fmt.Errorf("load plan: no built-in request body for %s: give a body template", cfg.URL)
	}
	name, value := input(f, cfg)
	for _, n := range slices.Sorted(maps.Keys(extra)) {
		f.out = append(f.out, jsonString(n)+":"+string(extra[n]))
	}
	// The long field comes last.
	f.add(name, value)
	return "{" + strings.Join(f.out, ",") + "}", nil
}

func speechFields(f *fields, cfg *Config) (string, string) {
	f.addIf("voice", cfg.Voice)
	f.add("response_format", jsonString(cfg.Format))
	if cfg.Stream {
		f.add("stream", "true")
	}
	f.seed(cfg)
	return "input", `"{{prompt}}"`
}

// seed makes the output of a request repeatable where it is asked for again.
func (f *fields) seed(cfg *Config) {
	if cfg.Client.Verify > 0 {
		f.add("seed", "{{seed}}")
	}
}

func (f *fields) sampling(cfg *Config) {
	if v := cfg.maxTokens(); v != "" {
		f.add("max_tokens", v)
	}
	f.add("temperature", "0")
	f.seed(cfg)
	f.add("stream", strconv.FormatBool(cfg.Stream))
	if cfg.Stream && !cfg.NoUsage {
		f.add("stream_options", `{"include_usage":true}`)
	}
}

func chatFields(f *fields, cfg *Config) (string, string) {
	f.sampling(cfg)
	if m := cfg.Client.Modalities; len(m) > 0 {
		list := make([]string, len(m))
		for i, s := range m {
			list[i] = jsonString(s)
		}
		f.add("modalities", "["+strings.Join(list, ",")+"]")
		if slices.Contains(m, "audio") && cfg.Voice != "" {
			f.add("audio", `{"voice":`+jsonString(cfg.Voice)+`,"format":`+jsonString(cfg.Format)+`}`)
		}
	}
	return "messages", `[{"role":"user","content":` + contentParts(&cfg.Client) + `}]`
}

func textFields(f *fields, cfg *Config) (string, string) {
	f.sampling(cfg)
	return "prompt", `"{{prompt}}"`
}

// ollamaFields are those of /api/generate and /api/chat, told apart by the path.
func ollamaFields(f *fields, cfg *Config) (string, string) {
	f.add("stream", strconv.FormatBool(cfg.Stream))
	options := []string{`"temperature":0`}
	if v := cfg.maxTokens(); v != "" {
		options = append(options, `"num_predict":`+v)
	}
	if cfg.Client.Verify > 0 {
		options = append(options, `"seed":{{seed}}`)
	}
	f.add("options", "{"+strings.Join(options, ",")+"}")
	images := ""
	if len(cfg.Client.Images) > 0 {
		images = `,"images":["{{image_base64}}"]`
	}
	if strings.HasSuffix(cfg.path(), "/api/chat") {
		return "messages", `[{"role":"user","content":"{{prompt}}"` + images + `}]`
	}
	return "prompt", `"{{prompt}}"` + images
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
