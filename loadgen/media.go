package loadgen

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"mime/multipart"
	"net/textproto"
	"path/filepath"
	"slices"
	"strings"
)

// Media is one input file.
type Media struct {
	Name string // file name, for its type and an upload
	Data []byte
}

// mediaTypes are those whose registration on a host cannot be relied on.
var mediaTypes = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif",
	".wav": "audio/wav", ".mp3": "audio/mpeg", ".flac": "audio/flac", ".ogg": "audio/ogg", ".opus": "audio/opus", ".m4a": "audio/mp4",
	".mp4": "video/mp4", ".webm": "video/webm", ".mkv": "video/x-matroska", ".mov": "video/quicktime",
}

func (m *Media) mime() string {
	ext := strings.ToLower(filepath.Ext(m.Name))
	if t := mediaTypes[ext]; t != "" {
		return t
	}
	if t := mime.TypeByExtension(ext); t != "" {
		return t
	}
	return "application/octet-stream"
}

// format is the word for an audio file in a chat request.
func (m *Media) format() string {
	return strings.TrimPrefix(strings.ToLower(filepath.Ext(m.Name)), ".")
}

func (m *Media) base64() string { return base64.StdEncoding.EncodeToString(m.Data) }

func (m *Media) dataURL() string { return "data:" + m.mime() + ";base64," + m.base64() }

// turn is the text that stands for a hole, in turn by request.
type turn []string

func (t turn) of(n int) string {
	if len(t) == 0 {
		return ""
	}
	return t[(n-1)%len(t)]
}

// mediaHoles encodes the media once. image and video are data URLs, audio is base64 with its format
// beside it, and raw_… are what goes into an upload.
func mediaHoles(c *Client) map[string]turn {
	h := map[string]turn{}
	for i := range c.Images {
		h["image"] = append(h["image"], c.Images[i].dataURL())
		h["image_base64"] = append(h["image_base64"], c.Images[i].base64())
	}
	for i := range c.Videos {
		h["video"] = append(h["video"], c.Videos[i].dataURL())
	}
	for i := range c.Audios {
		m := &c.Audios[i]
		h["audio"] = append(h["audio"], m.base64())
		h["audio_format"] = append(h["audio_format"], m.format())
	}
	return h
}

// contentParts is the content of a chat message: a plain string, or parts when media go with it.
func contentParts(c *Client) string {
	const text = `"{{prompt}}"`
	if len(c.Images)+len(c.Audios)+len(c.Videos) == 0 {
		return text
	}
	parts := []string{`{"type":"text","text":` + text + `}`}
	if len(c.Images) > 0 {
		parts = append(parts, `{"type":"image_url","image_url":{"url":"{{image}}"}}`)
	}
	if len(c.Audios) > 0 {
		parts = append(parts, `{"type":"input_audio","input_audio":{"data":"{{audio}}","format":"{{audio_format}}"}}`)
	}
	if len(c.Videos) > 0 {
		parts = append(parts, `{"type":"video_url","video_url":{"url":"{{video}}"}}`)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

const formBoundary = "stageline-3a1f9c0e5b7d4286"

// uploadTemplate is the multipart body of a transcription. The id comes first, as in every body.
func uploadTemplate(cfg *Config) (tmpl, contentType string, err error) {
	c := &cfg.Client
	if len(c.Audios) == 0 {
		return "", "", fmt.Errorf("load plan: %s needs an audio file to upload: give --audio FILE", cfg.URL)
	}
	extra, err := extraFields(cfg.ExtraJSON)
	if err != nil {
		return "", "", err
	}
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	if err := w.SetBoundary(formBoundary); err != nil {
		return "", "", fmt.Errorf("load plan: multipart body: %w", err)
	}
	// Writing to a bytes.Buffer cannot go wrong.
	field := func(name, value string) {
		if _, given := extra[name]; !given && value != "" {
			_ = w.WriteField(name, value)
		}
	}
	if cfg.IDField != "" {
		field(cfg.IDField, "{{id}}")
	}
	field("model", cfg.Model)
	field("response_format", "json")
	if cfg.Stream {
		field("stream", "true")
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		raw := extra[name]
		var s string
		if json.Unmarshal(raw, &s) != nil {
			s = string(raw)
		}
		_ = w.WriteField(name, s)
	}
	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", `form-data; name="file"; filename="{{file_name}}"`)
	h.Set("Content-Type", "{{file_type}}")
	if part, err := w.CreatePart(h); err == nil {
		_, _ = part.Write([]byte("{{file}}"))
	}
	_ = w.Close()
	return buf.String(), w.FormDataContentType(), nil
}

// uploadHoles are the raw files of an upload. Names are kept to their extension: they may be private.
func uploadHoles(c *Client) map[string]turn {
	h := map[string]turn{}
	for i := range c.Audios {
		m := &c.Audios[i]
		h["file"] = append(h["file"], string(m.Data))
		h["file_name"] = append(h["file_name"], "audio"+strings.ToLower(filepath.Ext(m.Name)))
		h["file_type"] = append(h["file_type"], m.mime())
	}
	return h
}
