package loadgen

import (
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stageline/stageline/collector/run"
	"golang.org/x/sys/unix"
)

// A generator that does not get its processor says so: its lag is beyond the bound and no part of what
// the system is charged with.
func TestStarvedRunIsInvalid(t *testing.T) {
	s := newServer(t, okHandler)
	c := chatConfig(s, 40)
	c.Rate, c.MaxLag = 500, 5*time.Millisecond
	p := mustPlan(t, c)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var stop atomic.Bool
	var hogs sync.WaitGroup
	for range 2 { // each is preempted after 10 ms of the only place there is
		hogs.Go(func() {
			for !stop.Load() {
			}
		})
	}
	rs, sum, err := runAll(t, t.Context(), p)
	stop.Store(true)
	hogs.Wait()
	if err != nil || sum.Sent != 40 {
		t.Fatalf("error %v, summary %+v", err, sum)
	}
	g := sum.Generator
	if g.Valid || len(g.Because) == 0 || !strings.Contains(g.Because[0], "the bound is 5ms") || *g.Lag.P99 < 5 || g.Lag.N != 40 {
		t.Errorf("generator %+v", g)
	}
	for _, r := range rs {
		if total := *r.SentNS - *r.PlannedNS; *r.LagNS > total+offsetErrorNS {
			t.Fatalf("%s: lag %d ns of %d ns between plan and send", r.ID, *r.LagNS, total)
		}
	}
}

// Lag of a closed loop is in no figure: late sends alone do not make it invalid, places that stand
// empty because of them do.
func TestClosedLoopIsJudgedByItsPlaces(t *testing.T) {
	for name, tc := range map[string]struct {
		lagMS, flightMS int64
		bound           time.Duration
		valid           bool
		share           float64
	}{
		"short lag of short replies": {5, 20, 10 * time.Millisecond, true, 0.2},
		"long lag of long replies":   {20, 4980, 10 * time.Millisecond, true, 0.004},
		"long lag of short replies":  {20, 180, 10 * time.Millisecond, false, 0.1},
		"no bound":                   {20, 180, 0, true, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			var tally generatorTally
			for i := range int64(200) {
				sent, lag := i*1e9, tc.lagMS*1e6
				end := sent + tc.flightMS*1e6
				tally.add(&run.Request{SentNS: &sent, EndNS: &end, LagNS: &lag})
			}
			g := tally.result(&Plan{cfg: Config{Schedule: Schedule{MaxLag: tc.bound}}})
			if g.Valid != tc.valid || g.Valid != (len(g.Because) == 0) || g.IdleShare == nil || math.Abs(*g.IdleShare-tc.share) > 1e-9 {
				t.Errorf("%+v", g)
			}
			// The same lag against a plan counts by itself.
			g = tally.result(&Plan{open: true, turns: true, cfg: Config{Schedule: Schedule{MaxLag: tc.bound}}})
			if want := tc.bound == 0 || tc.lagMS <= 10; g.Valid != want || g.IdleShare != nil {
				t.Errorf("open loop: %+v", g)
			}
		})
	}
}

// What waits under the cap for a slow server is the server's time, not the generator's.
func TestLagLeavesOutTheCap(t *testing.T) {
	s := newServer(t, func(c net.Conn, _ *received) bool {
		<-time.After(10 * time.Millisecond)
		write(c, okStream())
		return true
	})
	c := chatConfig(s, 60)
	c.Rate, c.Concurrency = 1000, 2
	_, sum, err := runAll(t, t.Context(), mustPlan(t, c))
	if err != nil {
		t.Fatal(err)
	}
	g := sum.Generator
	if *sum.SendLag.P50 < 50 || *g.Lag.P50 > *sum.SendLag.P50/5 || !g.Valid || g.MaxLagMS != nil {
		t.Errorf("plan to send %v ms, of that the generator's %v ms; %+v", *sum.SendLag.P50, *g.Lag.P50, g)
	}
}

// The kernel's stamp is of the arrival, however long nobody reads.
func TestKernelStamp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := newStampedConn(nc)
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	var before, after int64
	buf := make([]byte, 10)
	// The first stamps of a host come a moment after the first socket asks for them.
	for start := run.Mono(); ; {
		before = run.Mono()
		write(peer, "event")
		after = run.Mono()
		for run.Mono() < after+5e6 {
		}
		if n, err := c.Read(buf); n != 5 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if c.arrivedNS != c.readNS {
			break
		}
		if run.Mono() > start+2e9 {
			t.Fatal("no kernel stamp on a loopback connection in 2 s")
		}
	}
	if c.arrivedNS < before-offsetErrorNS || c.arrivedNS > after+offsetErrorNS || c.readNS < after+5e6 {
		t.Errorf("written %d…%d, arrived %d, read %d", before, after, c.arrivedNS, c.readNS)
	}
	peer.Close()
	if n, err := c.Read(buf); n != 0 || err == nil {
		t.Errorf("after the end: %d bytes, %v", n, err)
	}
}

// A stamp from before a step of the time of day, or from the future, is not used.
func TestKernelStampThatCannotBe(t *testing.T) {
	now := run.Mono()
	off := measureOffset()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &ts); err != nil {
		t.Fatal(err)
	}
	if got := monoOfReal(ts.Nano(), run.Mono()); got < now || got > run.Mono() {
		t.Errorf("now is %d, not between %d and %d", got, now, run.Mono())
	}
	if got := monoOfReal(now+off+1e9, now); got != 0 {
		t.Errorf("a second from now is %d", got)
	}
	realOffset.ns.Store(off + 3600e9) // as measured before the clock was set
	if got := monoOfReal(now+off, now); got != 0 {
		t.Errorf("across a step of an hour: %d", got)
	}
	if got := monoOfReal(now+off, now); got < now-offsetErrorNS || got > now {
		t.Errorf("after it: %d, want %d", got, now)
	}
	if monoOfReal(0, now) != 0 {
		t.Error("no stamp became one")
	}
}

func TestAdaptSpin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	spin, within := int64(maxSpinNS), 0
	for i := range 20000 {
		late := int64(r.ExpFloat64() * 30_000)
		if i >= 10000 && late <= spin {
			within++
		}
		spin = adaptSpin(spin, late)
	}
	if within < 8000 || within > 9700 {
		t.Errorf("%d of 10000 wake-ups were within the spin, want about nine of ten", within)
	}
	for range 100 {
		spin = adaptSpin(spin, 1e9)
	}
	if spin != maxSpinNS {
		t.Errorf("spin %d after very late wake-ups", spin)
	}
	for range 1000 {
		spin = adaptSpin(spin, 0)
	}
	if spin != minSpinNS {
		t.Errorf("spin %d after exact wake-ups", spin)
	}
}

// A long series gives the percentiles of the exact one to 1/1024, and the same mean, n and maximum.
func TestSeriesOfManyValues(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var s series
	var all []float64
	for range 3 * exactValues {
		v := int64(math.Exp(r.NormFloat64()*3 + 12))
		s.add(v)
		all = append(all, float64(v)/1e6)
	}
	s.missing = len(all) / 50 // 2 %: p99 is unbounded
	slices.Sort(all)
	d := s.dist()
	if d.N != len(all) || d.P99 != nil || d.Max != nil || s.max != int64(math.Round(all[len(all)-1]*1e6)) || s.ns != nil {
		t.Errorf("n %d, p99 %v, max %d", d.N, d.P99, s.max)
	}
	for q, got := range map[float64]*float64{.5: d.P50, .9: d.P90, .95: d.P95} {
		want := all[int(math.Ceil(q*float64(d.N+d.Missing)))-1]
		if math.Abs(*got/want-1) > 1.0/1024 {
			t.Errorf("q %v: %v, want %v", q, *got, want)
		}
	}
	for _, v := range []int64{0, 1, 2047, 2048, 2049, 1 << 40, math.MaxInt64} {
		if m := bucketValue(bucketOf(v)); math.Abs(float64(m-v)) > float64(v)/1024 {
			t.Errorf("%d stands for %d", m, v)
		}
	}
}

// Spinning takes no more than its share of the time, however late wake-ups are.
func TestSpinShare(t *testing.T) {
	p := &pacer{lateNS: maxSpinNS, gapNS: spinShare * maxSpinNS}
	for at := int64(1e9); at < 2e9; at += 200_000 {
		p.met(at)
	}
	if got := p.spinNS(); got > 210_000/spinShare || got < 200_000/spinShare/2 {
		t.Errorf("spin %d ns before deadlines 200 µs apart", got)
	}
	for at := int64(3e9); at < 5e9; at += 20_000_000 {
		p.met(at)
	}
	if got := p.spinNS(); got < maxSpinNS*9/10 {
		t.Errorf("spin %d ns before deadlines 20 ms apart, wake-ups are late by %d", got, maxSpinNS)
	}
}
