package loadgen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

const (
	silenceWindow = 50   // windows a second: 20 ms each
	silenceRMS    = 3e-3 // of full scale: −50 dBFS
	repeatMin     = 64   // frames that must be equal before a repetition is suspected
	repeatMax     = 4096
)

// audioMeter measures the audio of one reply as it comes. It keeps the end of the last piece, never
// more of the sound, unless the reply is to be compared later.
type audioMeter struct {
	audio  *run.Audio
	wav    wavParser
	sniff  []byte // first bytes, until it is known whether they begin a WAV file
	known  bool
	isWAV  bool
	opaque bool // compressed: samples cannot be counted

	nowNS   int64
	bytes   int64 // sample bytes in the current feed
	format  pcmFormat
	frame   int
	carry   []byte // of a frame cut by a border
	samples int64
	pieces  int
	tail    []byte
	repeats []run.AudioBorder

	window, windows, silent int
	square                  float64
	keep                    *keptAudio
}

// keptAudio is the sound of a reply that is compared with the complete output after the load.
type keptAudio struct {
	pcm     []byte
	borders []int // byte positions at which a piece begins
	format  pcmFormat
	over    bool // longer than what is kept
}

func newAudioMeter(c *Config, contentType string, keep *keptAudio) *audioMeter {
	m := &audioMeter{audio: &run.Audio{Format: c.Format, PlayableSamples: c.Client.Playable}, keep: keep}
	m.wav.format = func(f pcmFormat) { m.setFormat(f, "header") }
	m.wav.data = m.pcm
	kind, rest, _ := strings.Cut(contentType, ";")
	switch kind = strings.TrimSpace(kind); {
	case strings.Contains(kind, "wav"):
		m.known, m.isWAV, m.audio.Format = true, true, "wav"
	case strings.HasPrefix(kind, "audio/") && !strings.Contains(kind, "pcm") && !strings.HasPrefix(kind, "audio/l"):
		m.known, m.opaque, m.audio.Format = true, true, strings.TrimPrefix(kind, "audio/")
	}
	m.statedPCM(kind, rest, c.Client.PCM)
	return m
}

// statedPCM takes the coding of headerless samples from the content type's parameters, else from the
// user. audio/L16 is of 16 bits by its name, and big-endian: only its numbers are used.
func (m *audioMeter) statedPCM(kind, parameters string, user PCM) {
	f := pcmFormat{channels: 1, bits: 16}
	for p := range strings.SplitSeq(parameters, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(p), "=")
		n, err := strconv.Atoi(strings.Trim(v, `"`))
		if err != nil || n < 1 {
			continue
		}
		switch k {
		case "rate":
			f.rate = n
		case "channels":
			f.channels = n
		case "bits":
			f.bits = n
		}
	}
	switch {
	case m.isWAV || m.opaque:
	case f.rate > 0 && kind != "":
		m.setFormat(f, "content-type")
	case user.Rate > 0:
		m.setFormat(pcmFormat{rate: user.Rate, channels: user.Channels, bits: user.Bits}, "user")
	}
}

// setFormat notes the coding. A change after samples have come is counted.
func (m *audioMeter) setFormat(f pcmFormat, from string) {
	if m.samples > 0 && f != m.format {
		m.audio.Changes++
		return // the first coding stays the one that figures are in
	}
	m.format, m.frame = f, f.frame()
	if m.keep != nil {
		m.keep.format = f
	}
	a := m.audio
	a.RateFrom = from
	a.SampleRate, a.Channels, a.Bits = positive(f.rate), positive(f.channels), positive(f.bits)
}

func positive(n int) *int {
	if n < 1 {
		return nil
	}
	return &n
}

// feed takes one piece as the server handed it out and returns how many bytes of it are samples.
func (m *audioMeter) feed(nowNS int64, b []byte) int {
	m.nowNS, m.bytes = nowNS, 0
	m.take(b)
	return int(m.bytes)
}

func (m *audioMeter) take(b []byte) {
	if !m.known {
		m.sniff = append(m.sniff, b...)
		if len(m.sniff) < 4 && strings.HasPrefix("RIFF", string(m.sniff)) {
			return
		}
		m.known, m.isWAV = true, bytes.HasPrefix(m.sniff, []byte("RIFF"))
		b, m.sniff = m.sniff, nil
		if m.isWAV {
			m.audio.Format = "wav"
		}
	}
	if m.isWAV {
		m.wav.feed(b)
		return
	}
	m.pcm(b)
}

// piece takes one base64 delta, decoded. A delta that begins with RIFF is a file of its own.
func (m *audioMeter) piece(nowNS int64, b []byte) int {
	if m.isWAV && bytes.HasPrefix(b, []byte("RIFF")) {
		declared := m.wav.declared
		m.wav = wavParser{format: m.wav.format, data: m.wav.data, declared: declared}
	}
	return m.feed(nowNS, b)
}

// pcm takes sample bytes.
func (m *audioMeter) pcm(b []byte) {
	if len(b) == 0 {
		return
	}
	m.bytes += int64(len(b))
	m.pieces++
	m.keepPiece(b)
	if m.frame == 0 || m.opaque {
		return
	}
	m.findRepeat(b)
	if len(m.carry) > 0 {
		b = append(m.carry, b...)
	}
	whole := len(b) / m.frame * m.frame
	m.measureSilence(b[:whole])
	m.samples += int64(whole / m.frame)
	m.carry = append([]byte(nil), b[whole:]...)
	if m.audio.FirstPlayableNS == nil && m.samples >= int64(m.audio.PlayableSamples) {
		at := m.nowNS
		m.audio.FirstPlayableNS = &at
	}
}

func (m *audioMeter) keepPiece(b []byte) {
	k := m.keep
	if k == nil || k.over {
		return
	}
	if len(k.pcm)+len(b) > maxKeptAudio {
		k.over, k.pcm = true, nil
		return
	}
	k.borders = append(k.borders, len(k.pcm))
	k.pcm = append(k.pcm, b...)
}

// findRepeat looks for a piece that begins with what the one before ended with.
func (m *audioMeter) findRepeat(b []byte) {
	least, most := repeatMin*m.frame, repeatMax*m.frame
	if len(m.carry) == 0 && len(b) >= least && len(m.tail) >= least {
		probe := b[:least]
		for from := 0; ; {
			i := bytes.Index(m.tail[from:], probe)
			if i < 0 {
				break
			}
			at := from + i
			if n := len(m.tail) - at; n%m.frame == 0 && n <= len(b) && bytes.Equal(m.tail[at:], b[:n]) && !constant(probe, m.frame) {
				m.repeats = append(m.repeats, run.AudioBorder{Sample: m.samples, Chunk: m.pieces, AtBorder: true, Repeated: int64(n / m.frame)})
				break
			}
			from = at + 1
		}
	}
	m.tail = append(m.tail, b...)
	if extra := len(m.tail) - most; extra > 0 {
		m.tail = append(m.tail[:0], m.tail[extra:]...)
	}
}

// constant says whether all frames are equal, as in silence: they repeat without meaning it.
func constant(b []byte, frame int) bool {
	for i := frame; i < len(b); i++ {
		if b[i] != b[i-frame] {
			return false
		}
	}
	return true
}

func (m *audioMeter) measureSilence(b []byte) {
	size := m.format.bits / 8
	per := m.format.rate / silenceWindow * m.format.channels
	if per == 0 {
		return
	}
	for ; len(b) >= size; b = b[size:] {
		v := sampleValue(b[:size], m.format.float)
		m.square += v * v
		if m.window++; m.window == per {
			m.windows++
			if math.Sqrt(m.square/float64(per)) < silenceRMS {
				m.silent++
			}
			m.window, m.square = 0, 0
		}
	}
}

// sampleValue is a little-endian sample as a share of full scale.
func sampleValue(b []byte, float bool) float64 {
	le := binary.LittleEndian
	switch len(b) {
	case 1:
		return (float64(b[0]) - 128) / 128 // 8-bit samples are unsigned
	case 2:
		return float64(int16(le.Uint16(b))) / (1 << 15)
	case 3:
		return float64(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24)) / (1 << 31)
	case 4:
		if float {
			return float64(math.Float32frombits(le.Uint32(b)))
		}
		return float64(int32(le.Uint32(b))) / (1 << 31)
	case 8:
		if float {
			return math.Float64frombits(le.Uint64(b))
		}
		return float64(int64(le.Uint64(b))) / (1 << 63)
	}
	return 0
}

// end completes the figures and judges the reply's audio by itself.
func (m *audioMeter) end(req *run.Request) *run.Quality {
	if len(m.sniff) > 0 { // fewer than four bytes, and no WAV file
		m.known = true
		m.pcm(m.sniff)
	}
	a := m.audio
	if m.frame > 0 && !m.opaque {
		n := m.samples
		a.Samples = &n
		if m.isWAV && m.wav.declared > 0 {
			d := m.wav.declared / int64(m.frame)
			a.Declared = &d
		}
	}
	if m.windows > 0 {
		s := float64(m.silent) / float64(m.windows)
		a.SilenceRatio = &s
	}
	q := &run.Quality{RunID: req.RunID, RequestID: req.ID, Check: "audio-stream", Status: run.QualityOK, Audio: a, Chunks: m.pieces, Borders: m.repeats}
	note := func(status, format string, args ...any) {
		q.Why = append(q.Why, fmt.Sprintf(format, args...))
		if q.Status != run.QualityFailed {
			q.Status = status
		}
	}
	if a.Samples == nil {
		note(run.QualityUnknown, "samples cannot be counted: the coding is %s", orUnknown(a.Format, m.opaque))
	}
	if a.Samples != nil && a.Declared != nil && *a.Samples != *a.Declared {
		note(run.QualityFailed, "%d samples came, the header declares %d", *a.Samples, *a.Declared)
	}
	if a.Changes > 0 {
		note(run.QualityFailed, "sample rate, channels or sample size changed %d times", a.Changes)
	}
	if len(m.carry) > 0 {
		note(run.QualityFailed, "%d bytes at the end are no whole sample", len(m.carry))
	}
	if len(m.repeats) > 0 {
		note(run.QualityUnknown, "%d pieces begin with the samples before them: repetition suspected, a comparison with the complete output can tell", len(m.repeats))
	}
	return q
}

func orUnknown(format string, opaque bool) string {
	if opaque {
		return strconv.Quote(format)
	}
	return "not stated (name it, for example 24000,1,16)"
}
