package wire

import (
	"testing"

	"github.com/stageline/stageline/collector/run"
)

type count struct{ msgs, gaps int }

func (c *count) Message(*run.Message) { c.msgs++ }
func (c *count) Gap(*run.Gap)         { c.gaps++ }

// benchFeed measures Feed over traffic, a fresh Conn each time round; captured heads as recorded.
func benchFeed(b *testing.B, tr traffic, capture int) {
	f := newFeeder(b, &tr.ep)
	ks := tr.chunks(f, 0, capture)
	ids := NewIDSet()
	var out count
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for n < b.N {
		c := NewConn(&tr.ep, testRules, ids, &out)
		for _, k := range ks {
			c.Feed(tr.dir, k)
			n++
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(out.msgs)/b.Elapsed().Seconds(), "messages/s")
}

func BenchmarkFeedZMTP(b *testing.B)   { benchFeed(b, zmtpTraffic(3000, 1), 8192) }
func BenchmarkFeedHTTP(b *testing.B)   { benchFeed(b, httpTraffic(1000, 1), 4096) }
func BenchmarkFeedPickle(b *testing.B) { benchFeed(b, pickleTraffic(3000, 1), 1024) }

func BenchmarkFeedWakes(b *testing.B) {
	f := newFeeder(b, nil)
	for b.Loop() {
		f.call(run.Send, "\x00", all)
	}
}

func BenchmarkFeedOpaque(b *testing.B) {
	f := newFeeder(b, &run.Endpoint{ID: 1, Transport: run.TransportTCP, PosAbsolute: true})
	data := make([]byte, 1024)
	for i := range data {
		data[i] = byte(i*i + 77)
	}
	f.out.t = b
	for b.Loop() {
		f.call(run.Recv, string(data), 1024)
		f.out.msgs = f.out.msgs[:0]
	}
}
