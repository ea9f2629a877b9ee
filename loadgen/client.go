package loadgen

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Client says how the client behaves and what it can read, beyond the plain request. The zero value
// reads as fast as it can, never gives up and never tries again.
type Client struct {
	Method   string // "" is POST
	HTTP     string // "1.1" (or "") or "2": over TLS by ALPN, else by prior knowledge
	CA       []byte // PEM certificates to trust instead of the host's
	Insecure bool   // do not verify the server's certificate

	Images, Audios, Videos []Media  // one of each kind goes with each request, in turn
	Modalities             []string // of a chat reply, such as text and audio; nil is not sent
	Lacks                  []string // modalities that the model lacks, as the user states: see Modality…

	ReadRate int    // bytes per second that a slow consumer reads; 0: as they come
	Pause    Pause  // one pause in the reading of each reply
	Cancel   Cancel // planned abandonment
	Retries  int    // further attempts after a refusal or a transport error; each is recorded

	PCM       PCM // of audio that comes without a header; zero: unknown
	Playable  int // samples per channel that can be played; 0 is 1
	Verify    int // so many replies are compared with the complete output after the load
	Tolerance float64

	Rule Rule // where a reply that is none of the known kinds has its content and end
	SLO  SLO
}

// Modalities beyond text that a request can use.
const (
	ModalityImage    = "image"
	ModalityVideo    = "video"
	ModalityAudioIn  = "audio-in"
	ModalityAudioOut = "audio-out"
)

var allModalities = []string{ModalityImage, ModalityVideo, ModalityAudioIn, ModalityAudioOut}

// PCM is how samples without a header are coded: signed little-endian, interleaved.
type PCM struct {
	Rate, Channels, Bits int
}

// Pause stops the reading of a reply once, as a suspended client does.
type Pause struct {
	Events int // after so many content events …
	Bytes  int64
	For    time.Duration // 0: no pause
}

// Stages of progress at which a request is abandoned.
const (
	CancelSent   = "sent"   // once the request is written, before a byte of the reply is read
	CancelEvents = "events" // after Events content events
	CancelAfter  = "after"  // After the send
)

// Cancel abandons requests by closing the connection (HTTP/2: by resetting the stream first).
type Cancel struct {
	Stage  string // "" never
	Events int
	After  time.Duration
	Share  float64 // of the requests, chosen by the seed; 0 is all of them
}

// ParseCancel reads "sent", "events=N" or "after=DURATION", each with an optional ",share=0.2".
func ParseCancel(s string) (Cancel, error) {
	var c Cancel
	err := eachPair(s, func(k, v string) (err error) {
		switch k {
		case CancelSent:
			c.Stage = k
		case CancelEvents:
			c.Stage = k
			c.Events, err = strconv.Atoi(v)
		case CancelAfter:
			c.Stage = k
			c.After, err = time.ParseDuration(v)
		case "share":
			c.Share, err = strconv.ParseFloat(v, 64)
		default:
			return errors.New("want sent, events=N or after=DURATION, and share=FRACTION")
		}
		return err
	})
	if err == nil && s != "" && c.Stage == "" {
		err = errors.New("no stage: want sent, events=N or after=DURATION")
	}
	if err != nil {
		return c, fmt.Errorf("cancellation %.60q: %w", s, err)
	}
	return c, nil
}

// ParsePause reads "events=N,for=DURATION" or "bytes=N,for=DURATION".
func ParsePause(s string) (Pause, error) {
	var p Pause
	err := eachPair(s, func(k, v string) (err error) {
		switch k {
		case "events":
			p.Events, err = strconv.Atoi(v)
		case "bytes":
			p.Bytes, err = strconv.ParseInt(v, 10, 64)
		case "for":
			p.For, err = time.ParseDuration(v)
		default:
			return errors.New("want events=N or bytes=N, and for=DURATION")
		}
		return err
	})
	if err == nil && s != "" && (p.For <= 0 || p.Events <= 0 && p.Bytes <= 0) {
		err = errors.New("want events=N or bytes=N, and for=DURATION")
	}
	if err != nil {
		return p, fmt.Errorf("pause %.60q: %w", s, err)
	}
	return p, nil
}

// ParsePCM reads "RATE", "RATE,CHANNELS" or "RATE,CHANNELS,BITS".
func ParsePCM(s string) (PCM, error) {
	if s == "" {
		return PCM{}, nil
	}
	p := PCM{Channels: 1, Bits: 16}
	fields := []*int{&p.Rate, &p.Channels, &p.Bits}
	parts := strings.Split(s, ",")
	for i, part := range parts {
		if i == len(fields) {
			return p, fmt.Errorf("PCM format %.40q: want RATE[,CHANNELS[,BITS]]", s)
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return p, fmt.Errorf("PCM format %.40q: want RATE[,CHANNELS[,BITS]], whole numbers", s)
		}
		*fields[i] = n
	}
	return p, nil
}

// eachPair passes the parts of "a,k=v,…".
func eachPair(s string, each func(k, v string) error) error {
	if s == "" {
		return nil
	}
	for part := range strings.SplitSeq(s, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		if err := each(k, v); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) normalise() error {
	if c.Method == "" {
		c.Method = http.MethodPost
	}
	if c.HTTP == "" {
		c.HTTP = "1.1"
	}
	if c.Playable == 0 {
		c.Playable = 1
	}
	return c.check()
}

func (c *Client) check() error {
	switch {
	case c.HTTP != "1.1" && c.HTTP != "2":
		return fmt.Errorf("load plan: HTTP version %q: want 1.1 or 2", c.HTTP)
	case strings.Trim(c.Method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "":
		return fmt.Errorf("load plan: method %.20q: want upper-case letters", c.Method)
	case c.Method == http.MethodHead:
		return errors.New("load plan: method HEAD has no reply to measure: use GET")
	case c.ReadRate < 0 || c.Retries < 0 || c.Playable < 0 || c.Verify < 0 || c.Tolerance < 0:
		return errors.New("load plan: read rate, retries and audio figures must not be negative")
	case c.Cancel.Share < 0 || c.Cancel.Share > 1:
		return fmt.Errorf("load plan: share %v of cancelled requests: want 0 to 1", c.Cancel.Share)
	case c.Cancel.Stage == CancelEvents && c.Cancel.Events < 1, c.Cancel.Stage == CancelAfter && c.Cancel.After <= 0:
		return errors.New("load plan: a planned cancellation needs a positive number")
	case c.Verify > maxVerify:
		return fmt.Errorf("load plan: %d replies to verify: at most %d are kept in memory", c.Verify, maxVerify)
	}
	for _, m := range c.Lacks {
		if !slices.Contains(allModalities, m) {
			return fmt.Errorf("load plan: modality %.20q: want %s", m, strings.Join(allModalities, ", "))
		}
	}
	return c.Rule.check()
}

// uses lists the modalities beyond text of the plan's requests.
func (c *Config) uses() []string {
	var out []string
	add := func(m string, used bool) {
		if used {
			out = append(out, m)
		}
	}
	k := &c.Client
	add(ModalityImage, len(k.Images) > 0)
	add(ModalityVideo, len(k.Videos) > 0)
	add(ModalityAudioIn, len(k.Audios) > 0 || c.Reply == ReplyTranscription)
	add(ModalityAudioOut, c.Reply == ReplySpeech || slices.Contains(k.Modalities, "audio"))
	return out
}

// lacking names the first modality in use that the user says the model lacks.
func (c *Config) lacking() string {
	for _, m := range c.uses() {
		if slices.Contains(c.Client.Lacks, m) {
			return m
		}
	}
	return ""
}

// cancels says whether request n is to be abandoned: by a hash of seed and number, so that the choice
// is the same for every run of the plan.
func (p *Plan) cancels(n int) bool {
	c := &p.cfg.Client.Cancel
	switch {
	case c.Stage == "":
		return false
	case c.Share == 0 || c.Share == 1:
		return true
	}
	return draw(p.cfg.Seed, n, drawCancel) < c.Share
}

// options describes the client for a run's metadata, as far as it is not the plain one.
func (c *Client) options(m map[string]string) {
	add := func(name, value string, is bool) {
		if is {
			m[name] = value
		}
	}
	m["load_http"] = c.HTTP
	m["load_retries"] = strconv.Itoa(c.Retries)
	add("load_method", c.Method, c.Method != http.MethodPost)
	add("load_tls_insecure", "true", c.Insecure)
	for _, l := range []struct {
		name string
		n    int
	}{{"load_images", len(c.Images)}, {"load_audios", len(c.Audios)}, {"load_videos", len(c.Videos)}, {"load_verify_audio", c.Verify}} {
		add(l.name, strconv.Itoa(l.n), l.n > 0)
	}
	add("load_modalities", strings.Join(c.Modalities, ","), len(c.Modalities) > 0)
	add("load_lacks", strings.Join(c.Lacks, ","), len(c.Lacks) > 0)
	add("load_read_rate", strconv.Itoa(c.ReadRate), c.ReadRate > 0)
	add("load_pause", c.Pause.String(), c.Pause.For > 0)
	add("load_cancel", c.Cancel.String(), c.Cancel.Stage != "")
	add("load_pcm", fmt.Sprintf("%d,%d,%d", c.PCM.Rate, c.PCM.Channels, c.PCM.Bits), c.PCM.Rate > 0)
	add("load_playable_samples", strconv.Itoa(c.Playable), c.Playable > 1)
	add("load_slo", c.SLO.String(), len(c.SLO.Bounds) > 0)
}

// String is the form that ParsePause reads.
func (p Pause) String() string {
	if p.Events > 0 {
		return fmt.Sprintf("events=%d,for=%v", p.Events, p.For)
	}
	return fmt.Sprintf("bytes=%d,for=%v", p.Bytes, p.For)
}

// String is the form that ParseCancel reads.
func (c Cancel) String() string {
	s := c.Stage
	switch c.Stage {
	case CancelEvents:
		s = fmt.Sprintf("events=%d", c.Events)
	case CancelAfter:
		s = fmt.Sprintf("after=%v", c.After)
	}
	if c.Share > 0 {
		s += ",share=" + strconv.FormatFloat(c.Share, 'g', -1, 64)
	}
	return s
}
