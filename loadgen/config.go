package loadgen

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Reply says how a reply is judged.
type Reply string

const (
	ReplyChat   Reply = "chat"   // OpenAI chat completion, streamed (SSE) or one JSON object
	ReplyText   Reply = "text"   // OpenAI completion, streamed (SSE) or one JSON object
	ReplySpeech Reply = "speech" // audio bytes, or SSE events with base64 audio
	ReplyOllama Reply = "ollama" // /api/generate and /api/chat, streamed (NDJSON) or one JSON object
	ReplyAny    Reply = "any"    // whatever the content type says; any non-empty 2xx reply is content

	ReplyTranscription Reply = "transcription" // uploaded audio to text: JSON, plain text or SSE
)

var replies = []Reply{ReplyChat, ReplyText, ReplySpeech, ReplyTranscription, ReplyOllama, ReplyAny}

// Config describes a load. The zero value of every field but URL has a meaning stated here.
type Config struct {
	// URL of the endpoint. An empty path means /v1/chat/completions.
	URL   string
	Reply Reply // "" is derived from the path: …/audio/speech, …/chat/completions, else any

	Rate        float64 // requests per second (open loop); 0: closed loop
	Arrival     Arrival // open loop; "" is poisson
	Schedule            // and what else decides it
	Concurrency int     // closed loop: requests in flight, at least 1. Open loop: cap of them, 0 none
	N           int     // measured requests; 0: as many as Duration holds
	Duration    time.Duration
	Warmup      int    // requests of class "warmup" sent before the N measured ones
	Seed        uint64 // of arrival times and synthetic prompts

	RunID     string
	IDPrefix  string   // ids are IDPrefix-000001 …; "" mints sl-<8 random hex digits>
	IDHeaders []string // headers that carry the id; nil is X-Request-Id, empty is none
	IDField   string   // first field of a built-in JSON body, carrying the id; "" none
	Trace     bool     // send a W3C traceparent whose trace id is derived from the request id
	Header    []string // further "Name: value" header lines

	Model       string
	MaxTokens   int  // 0: not sent
	Stream      bool // ask for a streamed reply
	NoUsage     bool // do not ask for the usage chunk of a stream
	Voice       string
	Format      string // speech response_format; "" is wav
	ExtraJSON   string // JSON object whose fields are added to a built-in body
	Template    string // request body with {{id}}, {{n}} and {{prompt}}; "" uses the built-in bodies
	ContentType string // "" is application/json; anything else turns off JSON escaping in Template

	Client Client // how the client behaves, and replies of other kinds

	Prompts     []string // used in turn; nil: synthetic text
	PromptChars int      // length of synthetic prompts; 0 is 128

	// Deadline of a request counts from its planned time (closed loop: from when a worker took it
	// up). 0: none.
	Deadline time.Duration

	statesTokens bool // requests of the plan state max_tokens of their own
}

const defaultPromptChars = 128

// normalise fills in defaults and rejects what cannot be run.
func (c *Config) normalise() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("load plan: URL: want http://HOST:PORT[/path]: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("load plan: URL %q: want http://HOST:PORT[/path] or https://…", c.URL)
	}
	if u.User != nil {
		return nil, errors.New("load plan: a user in the URL is not sent: give a header, as in \"Authorization: Basic …\"")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/chat/completions"
	}
	if c.Reply == "" {
		c.Reply = replyOf(u.Path)
	}
	if c.IDHeaders == nil {
		c.IDHeaders = []string{"X-Request-Id"}
	}
	if c.ContentType == "" {
		c.ContentType = "application/json"
	}
	if c.PromptChars == 0 {
		c.PromptChars = defaultPromptChars
	}
	if c.Format == "" {
		c.Format = "wav"
	}
	if err := c.checkUnused(); err != nil {
		return nil, err
	}
	c.normaliseSchedule()
	if err := c.checkSchedule(); err != nil {
		return nil, err
	}
	c.URL = u.String()
	if err := c.Client.normalise(); err != nil {
		return nil, err
	}
	return u, c.check()
}

// path is that of the URL, once it is normalised.
func (c *Config) path() string {
	u, err := url.Parse(c.URL)
	if err != nil {
		return ""
	}
	return u.Path
}

// bodyless says whether requests have no body: a GET, for which no template was given.
func (c *Config) bodyless() bool {
	return c.Template == "" && (c.Client.Method == "GET" || c.Client.Method == "DELETE")
}

func replyOf(path string) Reply {
	switch {
	case strings.HasSuffix(path, "/audio/speech"):
		return ReplySpeech
	case strings.HasSuffix(path, "/chat/completions"):
		return ReplyChat
	case strings.HasSuffix(path, "/completions"):
		return ReplyText
	case strings.HasSuffix(path, "/audio/transcriptions"), strings.HasSuffix(path, "/audio/translations"):
		return ReplyTranscription
	case strings.HasSuffix(path, "/api/generate"), strings.HasSuffix(path, "/api/chat"):
		return ReplyOllama
	}
	return ReplyAny
}

func (c *Config) check() error {
	switch {
	case c.Concurrency < 0:
		return fmt.Errorf("load plan: concurrency %d is negative", c.Concurrency)
	case c.N < 0 || c.Warmup < 0 || c.PromptChars < 0 || c.MaxTokens < 0:
		return errors.New("load plan: counts must not be negative")
	case c.Duration < 0 || c.Deadline < 0:
		return errors.New("load plan: durations must not be negative")
	case !slices.Contains(replies, c.Reply):
		return fmt.Errorf("load plan: reply %q: want one of %v", c.Reply, replies)
	case c.Reply == ReplyAny && c.Template == "" && !c.bodyless():
		return fmt.Errorf("load plan: no built-in request body for %s: give a body template", c.URL)
	case c.IDPrefix != "" && (!idShaped(c.IDPrefix) || len(c.IDPrefix) > 96):
		return fmt.Errorf("load plan: id prefix %q: want at most 96 letters, digits, '-', '_', '.' or ':'", c.IDPrefix)
	}
	for _, h := range append(append([]string(nil), c.Header...), c.IDHeaders...) {
		if strings.ContainsAny(h, "\r\n") {
			return errors.New("load plan: a header contains a line break")
		}
	}
	for _, h := range c.Header {
		if i := strings.IndexByte(h, ':'); i <= 0 {
			return fmt.Errorf("load plan: header %q: want \"Name: value\"", firstWord(h))
		}
	}
	return nil
}

// firstWord shortens a header for an error text: its value may be a secret.
func firstWord(s string) string {
	w, _, _ := strings.Cut(s, " ")
	return w
}

// idShaped says whether s can stand as an identifier: it never carries free text.
func idShaped(s string) bool {
	if s == "" || len(s) > 160 {
		return false
	}
	for i := range len(s) {
		b := s[i]
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
		case b == '-', b == '_', b == '.', b == ':':
		default:
			return false
		}
	}
	return true
}
