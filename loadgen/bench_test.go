package loadgen

import (
	"net"
	"slices"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// BenchmarkEventStamp measures the client's own error: the time from just before a server in this
// process writes an event to the client's stamp of it, at 1000 events/s on one stream. It includes
// the loopback and both wake-ups, so it is an upper bound.
func BenchmarkEventStamp(b *testing.B) {
	const gapNS = 1_000_000
	n := max(b.N, 200)
	wrote := make(chan []int64, 1)
	s := newServer(b, func(c net.Conn, _ *received) bool {
		at := make([]int64, n)
		write(c, chunkedSSE)
		ev := httpChunk(content("token"))
		p, end := newPacer()
		start := run.Mono() + gapNS
		for i := range at {
			p.waitUntil(b.Context(), start+int64(i)*gapNS)
			at[i] = run.Mono()
			write(c, ev)
		}
		end()
		wrote <- at
		write(c, httpChunk(finishChunk+doneChunk)+lastChunk)
		return true
	})
	b.ResetTimer()
	rs, _, err := runAll(b, b.Context(), mustPlan(b, chatConfig(s, 1)))
	if err != nil || rs[0].State != run.StateSuccess {
		b.Fatalf("error %v, state %q %q", err, rs[0].State, rs[0].Error)
	}
	at := <-wrote
	errNS := make([]int64, n)
	for i := range errNS {
		errNS[i] = rs[0].Events[i].MonoNS - at[i]
	}
	slices.Sort(errNS)
	b.ReportMetric(float64(errNS[n/2])/1e3, "p50-µs")
	b.ReportMetric(float64(errNS[n*99/100])/1e3, "p99-µs")
	b.ReportMetric(float64(errNS[n-1])/1e3, "max-µs")
}
