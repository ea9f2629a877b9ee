package loadgen

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strconv"
	"strings"
)

// requestHead is a request's head as a template; the id and the length vary.
type requestHead struct {
	start, rest []segment
	path        []segment // without query, for the record
	idHeaders   []string
	trace       bool
	bodyless    bool
}

// idHoles are what may stand in a path and in headers: nothing that would need escaping there.
var idHoles = map[string]bool{"id": true, "n": true, "seed": true}

func newRequestHead(cfg *Config, u *url.URL, contentType string) (requestHead, error) {
	h := requestHead{idHeaders: cfg.IDHeaders, trace: cfg.Trace, bodyless: cfg.bodyless()}
	rest := "Accept: " + accepts(cfg) + "\r\nUser-Agent: stageline\r\n"
	if !h.bodyless {
		rest = "Content-Type: " + contentType + "\r\n" + rest
	}
	for _, line := range cfg.Header {
		rest += line + "\r\n"
	}
	// url.URL escapes braces in the path.
	braces := strings.NewReplacer("%7B%7B", "{{", "%7D%7D", "}}")
	var err error
	if h.rest, err = compile(rest, idHoles); err != nil {
		return h, err
	}
	if h.path, err = compile(u.Path, idHoles); err != nil {
		return h, err
	}
	start := cfg.Client.Method + " " + braces.Replace(u.RequestURI()) + " HTTP/1.1\r\nHost: " + u.Host + "\r\n"
	h.start, err = compile(start, idHoles)
	return h, err
}

func accepts(cfg *Config) string {
	switch {
	case cfg.Reply == ReplyOllama && cfg.Stream:
		return "application/x-ndjson"
	case cfg.Stream && (cfg.Reply == ReplyChat || cfg.Reply == ReplyText):
		return "text/event-stream"
	}
	return "*/*"
}

// appendRequest adds the whole request to dst. scratch is grown as needed and returned.
func (p *Plan) appendRequest(dst, scratch []byte, it Item) (req, newScratch []byte) {
	return p.appendWith(p.body, dst, scratch, &it)
}

func (p *Plan) appendWith(b *body, dst, scratch []byte, it *Item) (req, newScratch []byte) {
	scratch = b.append(scratch[:0], it)
	h := &p.head
	dst = b.fill(dst, h.start, it)
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
	dst = b.fill(dst, h.rest, it)
	if !h.bodyless {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(scratch)), 10)
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, "\r\n"...)
	return append(dst, scratch...), scratch
}

// pathOf is the path of one request, without its query.
func (p *Plan) pathOf(it *Item) string {
	return string(p.body.fill(nil, p.head.path, it))
}

// splitRequest takes a rendered request apart again: its first line, header lines and body.
func splitRequest(b []byte) (first string, headers []string, content []byte) {
	head, content, _ := bytes.Cut(b, []byte("\r\n\r\n"))
	lines := strings.Split(string(head), "\r\n")
	return lines[0], lines[1:], content
}
