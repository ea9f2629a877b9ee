package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stageline/stageline/correlate"
)

// The report has only the tail of a request, under types that are not the truth's: each hop is
// compared with the one it is, not with the first that is free.
func TestTailOfUnnamedTypesAlignsByTime(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		lines := strings.Builder{}
		for k := range 6 {
			typ, chunk := "stream", "null"
			if k == 5 {
				typ = "complete"
			} else if chunked {
				chunk = fmt.Sprint(k)
			}
			fmt.Fprintf(&lines, `{"t":"hop","request":"r1","from":"c","to":"api","type":%q,"seq":%d,"chunk":%s,"send_ns":%d,"recv_ns":%d,"bytes":9,"transport":"unix"}`+"\n",
				typ, 10+k, chunk, 10_000_000*(k+1), 10_000_000*(k+1)+50_000)
		}
		doc := perfect()
		q := &doc.Requests[0]
		for k := 3; k < 6; k++ {
			q.Hops = append(q.Hops, correlate.Hop{From: "p4", To: "front", FromTGID: 4, ToTGID: 1, Type: "add",
				Send: seen(int64(10_000_000*(k+1) + 1000)), Recv: seen(int64(10_000_000*(k+1) + 51_000))})
		}
		m := match(doc, truthFrom(t, truthOne+lines.String()))
		found := 0
		for th, h := range m.hops {
			if th.To != "api" {
				continue
			}
			found++
			if d := *h.Send.NS - *th.Send; d != 1000 {
				t.Errorf("chunked %v: %s %d is compared with a hop %d µs away, want 1", chunked, th.Type, th.Seq, d/1000)
			}
		}
		if found != 3 || len(m.hopsInvented) != 0 {
			t.Errorf("chunked %v: %d hops paired and %d invented, want 3 and none", chunked, found, len(m.hopsInvented))
		}
	}
}
