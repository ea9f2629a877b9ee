package loadgen

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

func TestAudioByItself(t *testing.T) {
	pcm := sound(8000, 3)
	const pcmHead = "HTTP/1.1 200 OK\r\nContent-Type: audio/pcm;rate=16000;channels=1\r\nConnection: close\r\n\r\n"
	silence := string(make([]byte, 16000)) // half of the 16 000 frames
	for _, tc := range []struct {
		name, script, state, status, why string
		samples                          int64
	}{
		{"declared and complete", wavHead + wavFile(16000, 16000, pcm), run.StateSuccess, run.QualityOK, "", 8000},
		{"fewer than declared", wavHead + wavFile(16000, 16002, pcm), run.StateInvalidOutput, run.QualityUnknown, "8000 samples came, the header declares 8001", 8000},
		{"more than declared", wavHead + wavFile(16000, 15000, pcm), run.StateQualityFailed, run.QualityFailed, "8000 samples came, the header declares 7500", 8000},
		{"rate changes between files", wavHead + wavFile(16000, 16000, pcm) + pauseMark + wavFile(24000, 16000, sound(8000, 9)), run.StateQualityFailed, run.QualityFailed, "changed 1 times", 16000},
		{"half a sample at the end", pcmHead + string(pcm) + "x", run.StateQualityFailed, run.QualityFailed, "no whole sample", 8000},
		{"a piece repeated", pcmHead + string(pcm[:8000]) + pauseMark + string(pcm[6000:]), run.StateSuccess, run.QualityUnknown, "1 pieces begin with the samples before", 9000},
		{"half silent", pcmHead + silence + string(pcm), run.StateSuccess, run.QualityOK, "", 16000},
		{"compressed", strings.Replace(wavHead, "wav", "mpeg", 1) + "ID3 whatever", run.StateSuccess, run.QualityUnknown, "cannot be counted", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := one(t, play(tc.script), speech)
			q := r.Quality
			if r.State != tc.state || q == nil || q.Status != tc.status || !strings.Contains(strings.Join(q.Why, "; "), tc.why) {
				t.Fatalf("state %q (%s), quality %+v", r.State, r.Error, q)
			}
			if deref(r.Audio.Samples) != tc.samples {
				t.Errorf("%d samples, want %d", deref(r.Audio.Samples), tc.samples)
			}
			if s := r.Audio.SilenceRatio; tc.name == "half silent" && (s == nil || *s != 0.5) {
				t.Errorf("silence ratio %v, want 0.5", s)
			}
		})
	}
}

func TestPlayableSamples(t *testing.T) {
	const pcmHead = "HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nConnection: close\r\n\r\n"
	script := pcmHead + "a" + pauseMark + "b" + string(sound(9, 1)) + pauseMark + string(sound(90, 1)) + pauseMark + string(sound(10, 7))
	for n, event := range map[int]int{1: 1, 10: 1, 11: 2, 100: 2, 101: 3} {
		r := one(t, play(script), func(c *Config) {
			speech(c)
			c.Client.PCM, c.Client.Playable = PCM{24000, 1, 16}, n
		})
		if got := *r.Audio.FirstPlayableNS; got != r.Events[event].MonoNS {
			t.Errorf("%d samples: playable at %d, want that of read %d: %d", n, got, event, r.Events[event].MonoNS)
		}
	}
}

// A second of sound in four pieces; the third comes 300 ms after the sound before it has run out.
func TestUnderrun(t *testing.T) {
	rate, ch, bits, n := 1000, 1, 16, int64(1000)
	r := &run.Request{
		State: run.StateSuccess, SentNS: at(0), FirstNS: at(100e6), EndNS: at(1500e6),
		Audio: &run.Audio{SampleRate: &rate, Channels: &ch, Bits: &bits, Samples: &n, FirstPlayableNS: at(100e6)},
	}
	for _, ms := range []int64{100, 200, 900, 1000} {
		r.Events = append(r.Events, run.ReplyEvent{MonoNS: ms * 1e6, Kind: "audio", Bytes: 500})
	}
	m := Measure(r, Expect{Streamed: true, Audio: true})
	if m.Underruns.Value != 1e6 || m.Stall.Value != 300e6 || m.LongestGap.Value != 300e6 {
		t.Errorf("underruns %+v, stall %+v, longest %+v; want one of 300 ms", m.Underruns, m.Stall, m.LongestGap)
	}
	if m.TTFA.Send.Value != 100e6 || m.RTF.Send.Value != 1.5e6 {
		t.Errorf("TTFA %+v, RTF %+v", m.TTFA, m.RTF)
	}
	if m.MaxGap.Value != 700e6 || len(m.Gaps) != 3 {
		t.Errorf("gaps %v", m.Gaps)
	}
}

func TestCompareAudio(t *testing.T) {
	f := pcmFormat{rate: 8000, channels: 1, bits: 16}
	whole := sound(4000, 11)
	cut := func(from, to int) []byte { return whole[from*2 : to*2] }
	louder := bytes.Clone(whole)
	louder[2001] ^= 0x40
	for _, tc := range []struct {
		name                      string
		pieces                    [][]byte
		lost, repeated, differing int64
		border                    *run.AudioBorder
	}{
		{"equal", [][]byte{cut(0, 1000), cut(1000, 4000)}, 0, 0, 0, nil},
		{"55 lost at a border", [][]byte{cut(0, 1000), cut(1055, 4000)}, 55, 0, 0, &run.AudioBorder{Sample: 1000, Chunk: 2, AtBorder: true, Lost: 55}},
		{"70 repeated at a border", [][]byte{cut(0, 1000), cut(930, 4000)}, 0, 70, 0, &run.AudioBorder{Sample: 1000, Chunk: 2, AtBorder: true, Repeated: 70}},
		{"lost inside a piece", [][]byte{cut(0, 500), append(bytes.Clone(cut(500, 1500)), cut(1600, 4000)...)}, 100, 0, 0, &run.AudioBorder{Sample: 1500, Chunk: 2, Lost: 100}},
		{"end missing", [][]byte{cut(0, 3990)}, 10, 0, 0, &run.AudioBorder{Sample: 3990, Chunk: 1, Lost: 10}},
		{"one sample changed", [][]byte{louder}, 0, 0, 1, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := &keptAudio{format: f}
			for _, p := range tc.pieces {
				k.borders = append(k.borders, len(k.pcm))
				k.pcm = append(k.pcm, p...)
			}
			q := compareAudio(k, whole, 0)
			if *q.Lost != tc.lost || *q.Repeated != tc.repeated || *q.Differing != tc.differing || *q.CompleteSamples != 4000 {
				t.Errorf("lost %d, repeated %d, differing %d", *q.Lost, *q.Repeated, *q.Differing)
			}
			bad := tc.lost+tc.repeated+tc.differing > 0
			if bad != (q.Status == run.QualityFailed) || tc.border != nil && (len(q.Borders) != 1 || q.Borders[0] != *tc.border) {
				t.Errorf("status %q, borders %+v, want %+v", q.Status, q.Borders, tc.border)
			}
		})
	}
	if q := compareAudio(&keptAudio{format: f, pcm: louder, borders: []int{0}}, whole, 0.6); q.Status != run.QualityOK || *q.MaxDifference != 0.5 {
		t.Errorf("within tolerance: status %q, difference %v", q.Status, *q.MaxDifference)
	}
}

// A server whose streamed replies lack samples at a border, and whose complete ones do not.
func TestVerifyAudio(t *testing.T) {
	pcm := sound(4000, 21)
	s := newServer(t, func(c net.Conn, r *received) bool {
		if strings.Contains(r.body, `"stream":true`) {
			return play(wavHead+wavFile(24000, 0, pcm[:4000])+pauseMark+string(pcm[4000+2*13:]))(c, r)
		}
		return play(wavHead+wavFile(24000, 8000, pcm))(c, r)
	})
	c := chatConfig(s, 2)
	speech(&c)
	c.Client.Verify = 1
	_, sum, err := runAll(t, t.Context(), mustPlan(t, c))
	if err != nil || sum.Success != 2 || len(sum.Verified) != 1 {
		t.Fatalf("error %v, summary %+v", err, sum)
	}
	q := sum.Verified[0]
	if q.Status != run.QualityFailed || *q.Lost != 13 || *q.Repeated != 0 || !q.Borders[0].AtBorder || q.Borders[0].Sample != 2000 {
		t.Errorf("quality %+v, lost %d", q, *q.Lost)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var seeds []string
	for _, r := range s.seen {
		i := strings.Index(r.body, `"seed":`)
		seeds = append(seeds, r.body[i:i+len(`"seed":1234567`)])
	}
	if len(seeds) != 3 || seeds[0] != seeds[2] || seeds[0] == seeds[1] {
		t.Errorf("seeds %q: want that of the first request again", seeds)
	}
}
