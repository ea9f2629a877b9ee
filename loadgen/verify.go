package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/stageline/stageline/collector/run"
)

const (
	maxVerify    = 64 // replies kept in memory for the comparison
	maxKeptAudio = 64 << 20

	// alignFrames frames must agree for two places to be the same sound.
	alignFrames = 64
	// alignSeconds is how far a lost or repeated stretch is looked for.
	alignSeconds = 2
)

// keptReplies holds the sound of the replies that are compared with the complete output after the
// load: the same request, not streamed, with the same seed. Asking during the load would disturb it.
type keptReplies struct {
	list []*keptReply
}

type keptReply struct {
	it    Item
	audio keptAudio
	req   *run.Request
}

// prepare chooses the replies beforehand: the first measured ones.
func (k *keptReplies) prepare(cfg *Config) {
	k.list = make([]*keptReply, cfg.Client.Verify)
	for i := range k.list {
		k.list[i] = &keptReply{}
	}
}

// want returns the place for the sound of a request, nil for one that is not compared. Different
// requests have different places, so that workers need no lock.
func (k *keptReplies) want(p *Plan, it *Item, req *run.Request) *keptAudio {
	i := it.N - p.cfg.Warmup - 1
	if i < 0 || i >= len(k.list) {
		return nil
	}
	*k.list[i] = keptReply{it: *it, req: req}
	return &k.list[i].audio
}

// verifyAudio asks for the complete outputs one after the other and compares. What was found wrong is
// a failure of quality, not of the request that is long over.
func (x *executor) verifyAudio(ctx context.Context, sum *Summary) {
	for _, k := range x.kept.list {
		if ctx.Err() != nil {
			return
		}
		if k.req == nil || !done(k.req) || k.req.Audio == nil {
			continue
		}
		q := x.compare(ctx, k)
		q.RunID, q.RequestID, q.Check, q.Audio, q.Chunks = k.req.RunID, k.req.ID, "audio-complete", k.req.Audio, len(k.audio.borders)
		sum.Verified = append(sum.Verified, *q)
	}
}

func (x *executor) compare(ctx context.Context, k *keptReply) *run.Quality {
	unknown := func(format string, args ...any) *run.Quality {
		return &run.Quality{Status: run.QualityUnknown, Why: []string{fmt.Sprintf(format, args...)}}
	}
	if k.audio.over {
		return unknown("the reply is longer than %d MiB: not kept", maxKeptAudio>>20)
	}
	plan, err := x.plan.complete()
	if err != nil {
		return unknown("%v", err)
	}
	again := &executor{plan: plan, pool: x.pool, results: make(chan *run.Request, 1)}
	w := again.newWorker()
	it := k.it
	it.ID += "-complete"
	s := newShot(again, &it)
	s.req.PlannedNS = nil
	s.keep = &keptAudio{}
	if e := w.prepare(ctx, s); e != nil {
		w.complete(ctx, s, e)
	}
	switch {
	case !done(s.req):
		return unknown("the complete output did not come: %s: %s", s.req.State, s.req.Error)
	case s.req.Audio == nil || s.req.Audio.Samples == nil || k.req.Audio.Samples == nil:
		return unknown("samples cannot be counted: the coding is not known")
	case s.keep.over:
		return unknown("the complete output is longer than %d MiB: not kept", maxKeptAudio>>20)
	case s.keep.format != k.audio.format:
		return &run.Quality{Status: run.QualityFailed, Why: []string{fmt.Sprintf("streamed as %v, complete as %v", k.audio.format, s.keep.format)}}
	}
	return compareAudio(&k.audio, s.keep.pcm, x.plan.cfg.Client.Tolerance)
}

// complete is the plan with replies that are not streamed and with a client that only reads.
func (p *Plan) complete() (*Plan, error) {
	q := *p
	q.cfg.Stream = false
	q.cfg.Client.ReadRate, q.cfg.Client.Pause, q.cfg.Client.Cancel, q.cfg.Client.Retries = 0, Pause{}, Cancel{}, 0
	if q.cfg.Template != "" {
		return nil, fmt.Errorf("a request body of the user's own cannot be asked for again as a complete output")
	}
	var err error
	if q.body, err = newBody(&q.cfg); err != nil {
		return nil, err
	}
	q.head, err = newRequestHead(&q.cfg, q.url, q.body.contentType)
	return &q, err
}

func (f pcmFormat) String() string {
	return fmt.Sprintf("%d Hz, %d channels, %d bits", f.rate, f.channels, f.bits)
}

// aligner walks through the streamed sound and the complete one side by side.
type aligner struct {
	got, want []byte
	f         pcmFormat
	frame     int
	tolerance float64
	q         *run.Quality
	borders   []int

	lost, repeated, differing int64
	most                      float64
}

// compareAudio finds what was lost, repeated or changed in the streamed sound. tolerance is a share
// of full scale by which a sample may differ.
func compareAudio(streamed *keptAudio, complete []byte, tolerance float64) *run.Quality {
	a := &aligner{
		got: streamed.pcm, want: complete, f: streamed.format, frame: streamed.format.frame(), tolerance: tolerance,
		borders: streamed.borders, q: &run.Quality{Status: run.QualityOK, Tolerance: &tolerance},
	}
	n := int64(len(complete) / a.frame)
	a.q.CompleteSamples = &n
	a.walk()
	q := a.q
	q.Lost, q.Repeated, q.Differing, q.MaxDifference = &a.lost, &a.repeated, &a.differing, &a.most
	if a.lost+a.repeated+a.differing > 0 {
		q.Status = run.QualityFailed
		q.Why = append(q.Why, fmt.Sprintf("%d samples lost, %d repeated, %d differ by more than %g of full scale (n %d)", a.lost, a.repeated, a.differing, tolerance, n))
	}
	return q
}

func (a *aligner) walk() {
	g, w, size := 0, 0, a.frame
	for g+size <= len(a.got) && w+size <= len(a.want) {
		if a.same(g, w) {
			g, w = g+size, w+size
			continue
		}
		if skip := a.find(a.want, w, a.got, g); skip > 0 {
			a.note(g, int64(skip/size), 0)
			w += skip
			continue
		}
		if skip := a.find(a.got, g, a.want, w); skip > 0 {
			a.note(g, 0, int64(skip/size))
			g += skip
			continue
		}
		a.differing++
		g, w = g+size, w+size
	}
	if rest := (len(a.want) - w) / size; rest > 0 {
		a.note(g, int64(rest), 0)
	}
	if rest := (len(a.got) - g) / size; rest > 0 {
		a.note(g, 0, int64(rest))
	}
}

// same compares one frame and keeps the largest difference that was tolerated or not.
func (a *aligner) same(g, w int) bool {
	x, y := a.got[g:g+a.frame], a.want[w:w+a.frame]
	if bytes.Equal(x, y) {
		return true
	}
	sample, worst := a.f.bits/8, 0.0
	for i := 0; i+sample <= a.frame; i += sample {
		worst = max(worst, math.Abs(sampleValue(x[i:i+sample], a.f.float)-sampleValue(y[i:i+sample], a.f.float)))
	}
	if worst <= a.tolerance {
		a.most = max(a.most, worst)
		return true
	}
	return false
}

// find looks ahead in long for the place where it goes on as short does, and returns how far that is;
// 0 when there is none.
func (a *aligner) find(long []byte, i int, short []byte, j int) int {
	probe := short[j:min(j+alignFrames*a.frame, len(short))]
	if len(probe) < alignFrames*a.frame {
		return 0
	}
	reach := min(len(long), i+alignSeconds*a.f.rate*a.frame+len(probe))
	for from := i + 1; from < reach; {
		k := bytes.Index(long[from:reach], probe)
		if k < 0 {
			return 0
		}
		if at := from + k; (at-i)%a.frame == 0 {
			return at - i
		}
		from += k + 1
	}
	return 0
}

// note records a lost or repeated stretch at byte g of the streamed sound.
func (a *aligner) note(g int, lost, repeated int64) {
	a.lost, a.repeated = a.lost+lost, a.repeated+repeated
	b := run.AudioBorder{Sample: int64(g / a.frame), Lost: lost, Repeated: repeated}
	for i, at := range a.borders {
		if at > g {
			break
		}
		b.Chunk, b.AtBorder = i+1, at == g
	}
	if len(a.q.Borders) < maxBorders {
		a.q.Borders = append(a.q.Borders, b)
	}
}

// maxBorders bounds the list; the sums count all.
const maxBorders = 1000
