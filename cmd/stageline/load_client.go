package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/loadgen"
	"golang.org/x/sys/unix"
)

// clientFlags adds the flags of how the client behaves and what it reads; the returned function
// completes a configuration once fs is parsed.
func clientFlags(fs *pflag.FlagSet) func(*loadgen.Config) error {
	var k loadgen.Client
	var images, audios, videos []string
	var ca, pause, cancel, pcm, slo, zero, reply string
	fs.StringVar(&k.Method, "method", "POST", "HTTP method")
	fs.StringVar(&k.HTTP, "http", "1.1", "HTTP version: 1.1 or 2 (one stream a connection)")
	fs.StringVar(&ca, "ca", "", "file of PEM certificates to trust")
	fs.BoolVar(&k.Insecure, "insecure", false, "do not verify the server's certificate")
	fs.StringArrayVar(&images, "image", nil, "image file that goes with each request; several are used in turn")
	fs.StringArrayVar(&audios, "audio", nil, "audio file that goes with each request, or is uploaded for transcription")
	fs.StringArrayVar(&videos, "video", nil, "video file that goes with each request")
	fs.StringSliceVar(&k.Modalities, "modalities", nil, "modalities of a chat reply, such as text,audio")
	fs.StringSliceVar(&k.Lacks, "lacks", nil, "modalities the model lacks (image, video, audio-in, audio-out): requests that use one are not applicable")
	fs.IntVar(&k.ReadRate, "read-rate", 0, "bytes per second that a slow client reads of each reply; 0: as they come")
	fs.StringVar(&pause, "pause", "", "stop reading each reply once: events=N,for=DURATION or bytes=N,for=DURATION")
	fs.StringVar(&cancel, "cancel", "", "abandon requests: sent, events=N or after=DURATION, and ,share=FRACTION of them")
	fs.IntVar(&k.Retries, "retries", 0, "further attempts after a refusal or a transport error, each recorded")
	fs.StringVar(&pcm, "pcm", "", "coding of audio without a header: RATE[,CHANNELS[,BITS]]")
	fs.IntVar(&k.Playable, "playable-samples", 1, "samples per channel that a player needs to begin (TTFA)")
	fs.IntVar(&k.Verify, "verify-audio", 0, "compare so many streamed replies with the complete output of the same seed, after the load")
	fs.Float64Var(&k.Tolerance, "audio-tolerance", 0, "share of full scale by which a compared sample may differ")
	fs.StringVar(&reply, "reply", "", "how replies are read: chat, text, speech, transcription, ollama or any (default: by the path)")
	fs.StringVar(&k.Rule.Framing, "reply-framing", "", "of --reply any: sse, ndjson, json or raw (default: by the content type)")
	fs.StringVar(&k.Rule.Content, "reply-content", "", "of --reply any: dotted path of the text in each event, as in choices.0.text")
	fs.StringVar(&k.Rule.Audio, "reply-audio", "", "of --reply any: dotted path of base64 audio")
	fs.StringVar(&k.Rule.End, "reply-end", "", "of --reply any: PATH or PATH=VALUE that marks the last event")
	fs.StringVar(&k.Rule.Tokens, "reply-tokens", "", "of --reply any: dotted path of the number of tokens so far")
	fs.StringVar(&k.Rule.Error, "reply-error", "", "of --reply any: dotted path of an error")
	fs.StringVar(&slo, "slo", "", "bounds for goodput: ttft, answer, ttfa, jct, tpot, gap, stall (durations), rtf, underruns, as in ttft=500ms,tpot=50ms")
	fs.StringVar(&zero, "slo-from", "plan", "where the SLO's times count from: plan (where there is one) or send")
	return func(c *loadgen.Config) error {
		var err error
		if k.Playable < 1 { // to the client, 0 is a number that was not given
			return fmt.Errorf("--playable-samples %d: want at least 1", k.Playable)
		}
		if ca != "" {
			if k.CA, err = os.ReadFile(ca); err != nil {
				return fmt.Errorf("read certificates: %w", err)
			}
		}
		for _, f := range []struct {
			names []string
			into  *[]loadgen.Media
		}{{images, &k.Images}, {audios, &k.Audios}, {videos, &k.Videos}} {
			if *f.into, err = readMedia(f.names); err != nil {
				return err
			}
		}
		if k.Pause, err = loadgen.ParsePause(pause); err != nil {
			return err
		}
		if k.Cancel, err = loadgen.ParseCancel(cancel); err != nil {
			return err
		}
		if k.PCM, err = loadgen.ParsePCM(pcm); err != nil {
			return err
		}
		if k.SLO, err = loadgen.ParseSLO(slo); err != nil {
			return err
		}
		if zero != "plan" && zero != "send" {
			return fmt.Errorf("--slo-from %.20q: want plan or send", zero)
		}
		k.SLO.FromSend = zero == "send"
		c.Reply, c.Client = loadgen.Reply(reply), k
		return nil
	}
}

func readMedia(names []string) ([]loadgen.Media, error) {
	var out []loadgen.Media
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			return nil, fmt.Errorf("read media: %w", err)
		}
		out = append(out, loadgen.Media{Name: filepath.Base(n), Data: b})
	}
	return out, nil
}

// progressEvery is short enough to see that the load moves and long enough not to disturb it.
const progressEvery = time.Second

// progress counts the requests of a load as they end.
type progress struct {
	done, ok, over atomic.Int64
}

func (p *progress) add(r *run.Request) {
	if r.Retried {
		return
	}
	p.done.Add(1)
	switch r.State {
	case run.StateSuccess:
		p.ok.Add(1)
	case run.StateNotApplicable, run.StateClientCancelled:
		p.over.Add(1)
	}
}

// start shows the counts on w, if it is a terminal, until the returned function is called.
func (p *progress) start(ctx context.Context, w io.Writer, planned int) (stop func()) {
	f, ok := w.(*os.File)
	if !ok {
		return func() {}
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return func() {}
	}
	shown, cancel := context.WithCancel(ctx)
	cleared := make(chan struct{})
	go func() {
		defer close(cleared)
		p.show(shown, w, planned)
	}()
	return func() {
		cancel()
		<-cleared
	}
}

// show writes one line again and again until ctx ends, and then clears it.
func (p *progress) show(ctx context.Context, w io.Writer, planned int) {
	t := time.NewTicker(progressEvery)
	defer t.Stop()
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			fmt.Fprint(w, "\r\x1b[K")
			return
		case <-t.C:
			fmt.Fprintf(w, "\r\x1b[K%s", p.line(planned, time.Since(began)))
		}
	}
}

func (p *progress) line(planned int, since time.Duration) string {
	n, ok, over := p.done.Load(), p.ok.Load(), p.over.Load()
	of := ""
	if planned > 0 {
		of = fmt.Sprintf(" of %d (%.0f %%)", planned, float64(n)/float64(planned)*100)
	}
	return fmt.Sprintf("%.0f s: %d%s done, %d succeeded, %d failed, %.1f/s", since.Seconds(), n, of, ok, n-ok-over, float64(n)/max(since.Seconds(), 1e-9))
}
