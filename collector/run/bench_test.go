package run

import (
	"os"
	"testing"
)

// benchDir is a closed run with an io, an offcpu and a message record in turn.
func benchDir(b *testing.B, n int) string {
	b.Helper()
	io, msg := sampleIO(), sampleMessage()
	var all []any
	for k := range n / 3 {
		at := int64(k) * 1000
		i, m := *io, *msg
		i.EnterNS, i.ExitNS, i.Pos = i.EnterNS+at, i.ExitNS+at, i.Pos+uint64(k)*412
		m.FirstEnterNS, m.FirstExitNS, m.LastEnterNS, m.LastExitNS = i.EnterNS, i.ExitNS, i.EnterNS, i.ExitNS
		m.Pos, m.End = i.Pos, i.Pos+412
		o := OffCPU{OutNS: i.EnterNS - 700, WakeNS: i.EnterNS - 90, InNS: i.EnterNS - 50, TGID: 41234, TID: 41260, State: OffSleep, WakerTGID: 40000, WakerTID: 40000 + uint32(k%5), Call: 232}
		all = append(all, i, o, m)
	}
	return closedRun(b, all, segmentBytes)
}

func benchReplay(b *testing.B, dir string) {
	r := mustOpen(b, dir)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Replay(nowhere{}); err != nil {
			b.Fatal(err)
		}
	}
	perRecord(b, r.Stats.Records)
}

func perRecord(b *testing.B, n uint64) {
	all := float64(n) * float64(b.N)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/all, "ns/record")
	b.ReportMetric(all/b.Elapsed().Seconds(), "records/s")
}

const benchRecords = 300_000

func BenchmarkReplaySpool(b *testing.B) { benchReplay(b, benchDir(b, benchRecords)) }

func BenchmarkReplayTables(b *testing.B) {
	dir := benchDir(b, benchRecords)
	if _, err := Seal(dir); err != nil {
		b.Fatal(err)
	}
	benchReplay(b, dir)
}

// From the spool to stored tables that were read back and compared.
func BenchmarkSeal(b *testing.B) {
	dir := benchDir(b, benchRecords)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		copied := copyRun(b, dir)
		b.StartTimer()
		if _, err := Seal(copied); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		os.RemoveAll(copied)
		b.StartTimer()
	}
	perRecord(b, benchRecords)
}
