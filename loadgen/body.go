package loadgen

import (
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
	seed    uint64
	holes   map[string]turn // media, encoded
	private bool            // the template is the user's

	contentType string
}

type segment struct {
	lit  string
	hole string // "id", "n", "seed", "max_tokens", "prompt" or one of the media; "" for a literal
}

type prompt struct {
	text    string
	escaped string // as it stands in the body
}

func newBody(cfg *Config) (*body, error) {
	b := &body{seed: cfg.Seed, private: cfg.Template != "", contentType: cfg.ContentType, holes: mediaHoles(&cfg.Client)}
	tmpl := cfg.Template
	var err error
	switch {
	case tmpl != "" || cfg.bodyless():
	case cfg.Reply == ReplyTranscription:
		b.holes = uploadHoles(&cfg.Client)
		tmpl, b.contentType, err = uploadTemplate(cfg)
	default:
		tmpl, err = builtinTemplate(cfg)
	}
	if err != nil {
		return nil, err
	}
	if b.segs, err = compile(tmpl, b.allowed()); err != nil {
		return nil, err
	}
	asJSON := strings.Contains(b.contentType, "json")
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

func (b *body) allowed() map[string]bool {
	m := map[string]bool{"prompt": true, "max_tokens": true}
	maps.Copy(m, idHoles)
	for k := range b.holes {
		m[k] = true
	}
	return m
}

// append adds the body of a request to dst.
func (b *body) append(dst []byte, it *Item) []byte { return b.fill(dst, b.segs, it) }

func (b *body) fill(dst []byte, segs []segment, it *Item) []byte {
	for _, s := range segs {
		switch s.hole {
		case "":
			dst = append(dst, s.lit...)
		case "id":
			dst = append(dst, it.ID...)
		case "n":
			dst = strconv.AppendInt(dst, int64(it.N), 10)
		case "seed":
			dst = strconv.AppendUint(dst, b.seedOf(it.N), 10)
		case "max_tokens":
			dst = strconv.AppendInt(dst, int64(it.MaxTokens), 10)
		case "prompt":
			dst = b.appendPrompt(dst, it)
		default:
			dst = append(dst, b.holes[s.hole].of(it.N)...)
		}
	}
	return dst
}

// seedOf is the sampling seed of request n: 31 bits, which every engine takes.
func (b *body) seedOf(n int) uint64 { return mix(b.seed+uint64(n)) >> 33 }

// promptOf numbers the given prompt of request n, from 1; 0 when prompts are synthetic.
func (b *body) promptOf(n int) int {
	if len(b.prompts) == 0 {
		return 0
	}
	return (n-1)%len(b.prompts) + 1
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
	for _, name := range []string{"image_base64", "video", "audio", "file"} {
		given = append(given, b.holes[name].of(n))
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

func compile(tmpl string, holes map[string]bool) ([]segment, error) {
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
			return nil, errors.New("load plan: template: \"{{\" without \"}}\"")
		}
		name := strings.TrimSpace(rest[:j])
		if !holes[name] {
			return nil, fmt.Errorf("load plan: template: {{%.40s}} is unknown here: want one of %s", name, strings.Join(slices.Sorted(maps.Keys(holes)), ", "))
		}
		out = append(out, segment{hole: name})
		tmpl = rest[j+2:]
	}
	return out, nil
}
