package loadgen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
)

// The cases that public load generators get wrong, each with the value that has to be reported. All
// go over real sockets to a server that controls every byte and its time.

// script is one streamed reply, piece by piece; it stamps each piece just before it is written.
type script struct {
	pieces []string
	delay  time.Duration // between pieces; 0: as soon as the client has read the one before
	at     chan []int64
}

func newScript(pieces ...string) *script { return &script{pieces: pieces, at: make(chan []int64, 1)} }

func (s *script) serve(c net.Conn, _ *received) bool {
	write(c, chunkedSSE)
	var at []int64
	for _, p := range s.pieces {
		if s.delay > 0 {
			<-time.After(s.delay)
		} else if !taken(c) {
			break
		}
		at = append(at, run.Mono())
		write(c, httpChunk(p))
	}
	at = append(at, run.Mono())
	write(c, lastChunk)
	s.at <- at
	return true
}

// load sends one request to the handler and returns its record, its figures and the summary.
func load(t *testing.T, h handler, change func(*Config)) (*run.Request, Measures, Summary) {
	t.Helper()
	c := chatConfig(newServer(t, h), 1)
	if change != nil {
		change(&c)
	}
	p := mustPlan(t, c)
	rs, sum, err := runAll(t, t.Context(), p)
	if err != nil || len(rs) != 1 {
		t.Fatalf("%d requests, error %v", len(rs), err)
	}
	return rs[0], Measure(rs[0], p.cfg.expects()), sum
}

// between fails unless the figure lies in the time between two moments of the server.
func between(t *testing.T, name string, f Figure, zero *int64, from, to int64) {
	t.Helper()
	if f.Standing != Known || *zero+f.Value < from || *zero+f.Value >= to {
		t.Errorf("%s %+v from %d, want a time from %d to %d", name, f, *zero, from, to)
	}
}

func withTokens(s string, n int) string {
	return fmt.Sprintf(`data: {"choices":[{"delta":{"content":%q}}],"usage":{"completion_tokens":%d}}`, s, n) + "\n\n"
}

const usageChunk = `data: {"choices":[],"usage":{"completion_tokens":3}}` + "\n\n"

func thought(s string) string {
	return fmt.Sprintf(`data: {"choices":[{"delta":{"reasoning":%q}}]}`, s) + "\n\n"
}

// kernelStamped says whether every event has the kernel's time of its arrival.
func kernelStamped(r *run.Request) bool {
	return len(r.Events) > 0 && !slices.ContainsFunc(r.Events, func(e run.ReplyEvent) bool { return e.ReadLagNS == 0 })
}

func TestCaseRoleChunkThenTokens(t *testing.T) {
	var r *run.Request
	var m Measures
	var sum Summary
	var at []int64
	// With stamps of the kernel the times hold however busy this host is; the first ones come a moment
	// after the first socket has asked for them.
	for start := run.Mono(); r == nil || !kernelStamped(r); {
		if run.Mono() > start+20e9 {
			t.Fatal("no kernel stamps on loopback connections in 20 s")
		}
		s := newScript(roleChunk, content("H"), content("i"), finishChunk+doneChunk)
		s.delay = 20 * time.Millisecond
		r, m, sum = load(t, s.serve, nil)
		at = <-s.at
	}
	between(t, "TTFT", m.TTFT.Send, r.SentNS, at[1], at[2])
	if len(m.Gaps) != 1 || m.Gaps[0] < 15e6 || m.Gaps[0] > at[3]-at[1] || sum.ChunkGap.N != 1 {
		t.Errorf("gaps %v, want one of about 20 ms: at most %d ns", m.Gaps, at[3]-at[1])
	}
	between(t, "JCT", m.JCT.Send, r.SentNS, at[3], math.MaxInt64)
}

func TestCaseUsageOnlyChunk(t *testing.T) {
	_, m, sum := load(t, newScript(content("a"), content("b"), content("c"), usageChunk, doneChunk).serve, nil)
	if len(m.Gaps) != 2 || m.Coalesced != 0 || sum.ChunkGap.N != 2 || sum.ITL.N != 2 || sum.TPOT.N != 1 {
		t.Errorf("gaps %v, coalesced %d, ITL %+v; want 3 stamps and 2 gaps", m.Gaps, m.Coalesced, sum.ITL)
	}
}

func TestCaseUsageInEveryChunk(t *testing.T) {
	r, m, sum := load(t, newScript(withTokens("abcd", 4), withTokens("efgh", 8), withTokens("i", 9), doneChunk).serve, nil)
	if *r.Tokens != 9 || len(m.Gaps) != 2 || sum.ChunkGap.N != 2 {
		t.Errorf("%d tokens, gaps %v; want 9 and two", *r.Tokens, m.Gaps)
	}
	// Four tokens of the second read and one of the third: each the gap's equal part.
	want := []int64{m.Gaps[0] / 4, m.Gaps[0] / 4, m.Gaps[0] / 4, m.Gaps[0] / 4, m.Gaps[1]}
	if fmt.Sprint(m.ITLs) != fmt.Sprint(want) {
		t.Errorf("times by token %v, want %v", m.ITLs, want)
	}
}

func TestCaseReasoningFirst(t *testing.T) {
	s := newScript(thought("a"), thought("b"), thought("c"), thought("d"), thought("e"), content("x"), doneChunk)
	r, m, _ := load(t, s.serve, nil)
	at := <-s.at
	between(t, "TTFT", m.TTFT.Send, r.SentNS, at[0], at[1])
	between(t, "first answer", m.Answer.Send, r.SentNS, at[5], at[6])
}

func TestCaseStopsShortOfMaxTokens(t *testing.T) {
	last := `data: {"choices":[{"delta":{"content":""},"finish_reason":"stop"}],"usage":{"completion_tokens":37}}` + "\n\n"
	r, m, sum := load(t, newScript(content("a"), content("b"), last, doneChunk).serve, func(c *Config) { c.MaxTokens = 1024 })
	if *r.Tokens != 37 || r.Finish != "stop" || m.ITLStanding.Standing != Unknown || sum.Compat.Tokens.Median != 37 {
		t.Errorf("%d tokens, finish %q, ITL %+v", *r.Tokens, r.Finish, m.ITLStanding)
	}
	if want := m.Gaps[0] / 36; m.TPOT.Value != want {
		t.Errorf("TPOT %d, want %d", m.TPOT.Value, want)
	}
}

func TestCaseOnlyDone(t *testing.T) {
	r, m, sum := load(t, newScript(doneChunk).serve, nil)
	if r.State != run.StateInvalidOutput || !strings.Contains(r.Error, "no content") || m.TTFT.Send.Standing != Failed || sum.TTFTFromSend.N != 0 {
		t.Errorf("state %q (%s), TTFT %+v", r.State, r.Error, m.TTFT)
	}
}

func TestCaseErrors(t *testing.T) {
	stated := `data: {"error":{"message":"step failed","code":500}}` + "\n\n"
	for name, h := range map[string]handler{
		"after two tokens":    newScript(withTokens("a", 1), withTokens("b", 2), stated, doneChunk).serve,
		"first":               newScript(stated, doneChunk).serve,
		"plain JSON with 200": play(jsonReply(200, `{"error":{"message":"step failed"}}`)),
	} {
		t.Run(name, func(t *testing.T) {
			r, m, sum := load(t, h, nil)
			if r.State != run.StateInvalidOutput || !strings.Contains(r.Error, "step failed") || sum.Success != 0 {
				t.Errorf("state %q (%s), %d successes", r.State, r.Error, sum.Success)
			}
			if m.JCT.Send.Standing != Failed || m.TPOT.Standing != Failed || sum.Compat != nil || sum.ChunkGap != nil {
				t.Errorf("figures of a failed request count: %+v, gaps %+v", m, sum.ChunkGap)
			}
		})
	}
}

func TestCaseTruncated(t *testing.T) {
	r, _, sum := load(t, play(eofSSE+content("a")+pauseMark+content("b")), nil)
	if r.State != run.StateInvalidOutput || !strings.Contains(r.Error, "truncated") || sum.Success != 0 {
		t.Errorf("state %q (%s)", r.State, r.Error)
	}
}

func TestCaseCommentsDuringPrefill(t *testing.T) {
	s := newScript(":\n\n", ": keep-alive\n\n", content("a"), doneChunk)
	r, m, _ := load(t, s.serve, nil)
	at := <-s.at
	between(t, "TTFT", m.TTFT.Send, r.SentNS, at[2], at[3])
	if kinds(r) != "comment comment content done" {
		t.Errorf("events %q", kinds(r))
	}
}

func TestCaseSeparatorsAndCuts(t *testing.T) {
	crlf := strings.ReplaceAll(content("a"), "\n", "\r\n")
	for name, tc := range map[string]struct {
		script    string
		coalesced int
	}{
		"CRLF":                    {eofSSE + crlf + pauseMark + crlf + pauseMark + doneChunk, 0},
		"CRLF cut across reads":   {eofSSE + crlf[:len(crlf)-1] + pauseMark + crlf[len(crlf)-1:] + crlf[:len(crlf)-3] + pauseMark + "\n\r\n" + pauseMark + doneChunk, 0},
		"two events in one read":  {eofSSE + pauseMark + content("a") + content("b") + pauseMark + doneChunk, 1},
		"character cut after one": {eofSSE + content("a") + pauseMark + content("中")[:strings.Index(content("中"), "中")+1] + pauseMark + content("中")[strings.Index(content("中"), "中")+1:] + pauseMark + doneChunk, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, m, _ := load(t, play(tc.script), nil)
			n := 0
			for _, e := range r.Events {
				n += count(e.Kind == "content")
			}
			if r.State != run.StateSuccess || n != 2 || m.Coalesced != tc.coalesced || len(m.Gaps) != 1-tc.coalesced {
				t.Errorf("state %q (%s), events %q, coalesced %d, gaps %v", r.State, r.Error, kinds(r), m.Coalesced, m.Gaps)
			}
			if strings.HasPrefix(name, "character") && (r.Events[1].Bytes != len("中") || r.TextChars != 2) {
				t.Errorf("%d bytes, %d characters: the text is not intact", r.Events[1].Bytes, r.TextChars)
			}
		})
	}
}

func TestCaseTenEventsInOneSegment(t *testing.T) {
	r, m, sum := load(t, play(eofSSE+pauseMark+strings.Repeat(content("a"), 10)+pauseMark+usageChunk+doneChunk), nil)
	if len(m.Gaps) != 0 || m.Coalesced != 9 || sum.Coalesced != 9 || sum.ChunkGap != nil {
		t.Errorf("events %q, gaps %v, coalesced %d", kinds(r), m.Gaps, m.Coalesced)
	}
	if m.TPOT.Standing != Unknown || len(m.ITLs) != 0 {
		t.Errorf("TPOT %+v, ITL %v of tokens that came in one read", m.TPOT, m.ITLs)
	}
}

// 40 a second at a cap of 4 and 190 ms of service, ten times as fast.
func TestCaseQueueingAtTheCap(t *testing.T) {
	c := chatConfig(newServer(t, func(c net.Conn, _ *received) bool {
		<-time.After(19 * time.Millisecond)
		write(c, okStream())
		return true
	}), 80)
	c.Rate, c.Concurrency = 400, 4
	_, sum, err := runAll(t, t.Context(), mustPlan(t, c))
	if err != nil || sum.Success != 80 {
		t.Fatalf("error %v, summary %+v", err, sum)
	}
	if send, plan := *sum.TTFTFromSend.P90, *sum.TTFTFromPlan.P90; plan < 2*send || sum.JCTFromPlan.N != 80 || sum.JCTFromSend.N != 80 {
		t.Errorf("TTFT p90 from send %.1f ms, from plan %.1f ms", send, plan)
	}
}

// 200 a second for 10 000 requests, in a tenth of the time with a tenth of the requests.
func TestCaseAchievedRate(t *testing.T) {
	c := chatConfig(newServer(t, okHandler), 1000)
	c.Rate, c.Arrival = 2000, ArrivalConstant
	_, sum, err := runAll(t, t.Context(), mustPlan(t, c))
	if err != nil || sum.SendLag.N != 1000 {
		t.Fatalf("error %v, %d lags", err, sum.SendLag.N)
	}
	// Gaps that are waited one after the other would add up to more than the largest lag; a busy host
	// that holds one send back does not.
	off := math.Abs(999 / *sum.AchievedRate - 999.0/2000)
	if bound := *sum.SendLag.Max/1e3 + 0.005*999/2000; off > bound {
		t.Errorf("achieved %.1f/s of 2000/s: off by %.4f s, the largest lag and half a per cent are %.4f s", *sum.AchievedRate, off, bound)
	}
	t.Logf("achieved %.1f/s, lag p50 %.3f p99 %.3f max %.3f ms", *sum.AchievedRate, *sum.SendLag.P50, *sum.SendLag.P99, *sum.SendLag.Max)
}

func TestCaseNinetyGoodTenTimeouts(t *testing.T) {
	var n atomic.Int64
	c := chatConfig(newServer(t, func(c net.Conn, _ *received) bool {
		if n.Add(1)%10 == 0 {
			_, _ = c.Read(make([]byte, 1)) // until the client gives up
			return false
		}
		write(c, okStream())
		return true
	}), 100)
	c.Concurrency, c.Deadline = 20, 700*time.Millisecond
	_, sum, _ := runAll(t, t.Context(), mustPlan(t, c))
	d := sum.JCTFromSend
	if sum.States[run.StateDeadlineExceeded] != 10 || d.N != 90 || d.Missing != 10 || d.P90 == nil || d.P95 != nil || d.P99 != nil || d.Mean != nil {
		t.Errorf("states %v, JCT %+v; want p90 known, p95 and beyond unbounded", sum.States, d)
	}
	var b strings.Builder
	if err := sum.Text(&b); err != nil || !strings.Contains(b.String(), "unbounded") {
		t.Errorf("error %v, text\n%s", err, b.String())
	}
}

func TestCaseOneTokenUnderTPOT(t *testing.T) {
	slo, err := ParseSLO("tpot=50ms,ttft=10s")
	if err != nil {
		t.Fatal(err)
	}
	_, m, sum := load(t, newScript(withTokens("a", 1), finishChunk, doneChunk).serve, func(c *Config) { c.Client.SLO = slo })
	g := sum.Goodput
	if m.TPOT.Standing != NotApplicable || g.Met != 0 || g.Missed != 0 || g.NotJudged != 1 || *g.Share != 0 {
		t.Errorf("TPOT %+v, goodput %+v", m.TPOT, g)
	}
	if b := g.Bounds[0]; b.NotApplicable != 1 || b.Passed != 0 {
		t.Errorf("bound %+v", b)
	}
}

func TestCaseStopWithFiveInFlightAndThreeQueued(t *testing.T) {
	var began atomic.Int64
	inFlight := make(chan struct{})
	c := chatConfig(newServer(t, func(c net.Conn, _ *received) bool {
		write(c, chunkedSSE+httpChunk(content("a")))
		if began.Add(1) == 5 {
			close(inFlight)
		}
		_, _ = c.Read(make([]byte, 1)) // until the client closes
		return false
	}), 8)
	c.Rate, c.Concurrency = 100000, 5
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-inFlight
		cancel(errors.New("asked to stop"))
	}()
	rs, sum, _ := runAll(t, ctx, mustPlan(t, c))
	if len(rs) != 8 || countStates(rs)[run.StateClientCancelled] != 8 || sum.Sent != 5 || sum.Planned != 8 {
		t.Errorf("%d requests, states %v, summary %+v", len(rs), countStates(rs), sum)
	}
}

// sound is n frames of 16-bit mono that repeat nowhere.
func sound(n int, seed uint64) []byte {
	var b []byte
	for i := range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(mix(seed+uint64(i))))
	}
	return b
}

// wavFile is a RIFF stream with a LIST chunk of odd size before its data.
func wavFile(rate int, size uint32, pcm []byte) string {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("RIFF"), 0xFFFFFFFF)
	b = le.AppendUint32(append(b, "WAVEfmt "...), 16)
	b = le.AppendUint16(le.AppendUint16(b, 1), 1)
	b = le.AppendUint32(le.AppendUint32(b, uint32(rate)), uint32(rate)*2)
	b = le.AppendUint16(le.AppendUint16(b, 2), 16)
	b = le.AppendUint32(append(b, "LIST"...), 5)
	b = append(b, "data:\x00"...)
	b = le.AppendUint32(append(b, "data"...), size)
	return string(append(b, pcm...))
}

func speech(c *Config) { c.URL += "/v1/audio/speech" }

const wavHead = "HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nConnection: close\r\n\r\n"

func TestCaseWAVWithListAndUnknownSize(t *testing.T) {
	file := wavFile(24000, 0xFFFFFFFF, sound(12000, 1))
	head := strings.Index(file, "data\xff") + 8
	r, m, sum := load(t, play(wavHead+file[:20]+pauseMark+file[20:head]+pauseMark+file[head:]), speech)
	a := r.Audio
	if r.State != run.StateSuccess || *a.Samples != 12000 || a.Declared != nil || *a.SampleRate != 24000 || r.Quality.Status != run.QualityOK {
		t.Fatalf("state %q (%s), audio %+v, quality %+v", r.State, r.Error, a, r.Quality)
	}
	if *a.FirstPlayableNS != *r.FirstNS || *a.FirstPlayableNS == *r.FirstByteNS || m.TTFT.Send.Standing != NotApplicable {
		t.Errorf("first byte %d, first content %d, playable %d: headers do not count", *r.FirstByteNS, *r.FirstNS, *a.FirstPlayableNS)
	}
	// Half a second of sound.
	if want := float64(m.JCT.Send.Value) / 1e9 / 0.5; math.Abs(*sum.RTFFromSend.P50-want) > 1e-5 || *a.SilenceRatio != 0 {
		t.Errorf("RTF %v, want %v; silence %v", *sum.RTFFromSend.P50, want, *a.SilenceRatio)
	}
}

func TestCaseSpeechThatIsNone(t *testing.T) {
	for name, script := range map[string]string{
		"JSON body":   jsonReply(200, `{"detail":"voice is loading"}`),
		"0 bytes":     wavHead,
		"header only": wavHead + wavFile(24000, 0, nil),
	} {
		t.Run(name, func(t *testing.T) {
			r, m, sum := load(t, play(script), speech)
			if r.State != run.StateInvalidOutput || m.RTF.Send.Standing != Failed || sum.RTFFromSend.N != 0 || sum.TTFAFromSend.N != 0 {
				t.Errorf("state %q (%s), RTF %+v", r.State, r.Error, m.RTF)
			}
		})
	}
}

func TestCaseRateFromTheHeader(t *testing.T) {
	r, m, _ := load(t, play(wavHead+wavFile(44100, 88200, sound(44100, 1))), speech)
	if r.State != run.StateSuccess || *r.Audio.SampleRate != 44100 || r.Audio.RateFrom != "header" || *r.Audio.Declared != 44100 {
		t.Fatalf("state %q (%s), audio %+v", r.State, r.Error, r.Audio)
	}
	if want := m.JCT.Send.Value / 1000; m.RTF.Send.Value < want-1 || m.RTF.Send.Value > want+1 { // one second of sound; millionths
		t.Errorf("RTF %d millionths, want %d", m.RTF.Send.Value, want)
	}
}

func TestCaseOllamaWithoutPromptCount(t *testing.T) {
	lines := "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n" +
		`{"model":"m","response":"he","done":false}` + "\n" + pauseMark + `{"response":"llo","done":false}` + "\n" + pauseMark +
		`{"response":"","done":true,"done_reason":"stop","total_duration":900000000,"eval_count":2,"eval_duration":400000000}` + "\n"
	r, m, sum := load(t, play(lines), func(c *Config) { c.URL += "/api/generate" })
	if r.State != run.StateSuccess || r.PromptTokens != nil || *r.Tokens != 2 || r.TokensFrom != "eval_count" || r.Engine.PromptEvalNS != nil {
		t.Fatalf("state %q (%s), prompt tokens %v, tokens %v, engine %+v", r.State, r.Error, r.PromptTokens, r.Tokens, r.Engine)
	}
	if len(m.Gaps) != 1 || sum.Compat.TTFT != nil || sum.Compat.TokPerSec.Median != 5 {
		t.Errorf("gaps %v, M1 %+v, M2 %+v; want 5 tokens/s and an unknown M2", m.Gaps, sum.Compat.TokPerSec, sum.Compat.TTFT)
	}
}
