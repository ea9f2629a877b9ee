package stat

import (
	"encoding/json"
	"math"
	"testing"
)

func seq(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(n - i) // unsorted on purpose: Of sorts
	}
	return v
}

func TestOfNearestRank(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		n                       int
		p50, p90, p95, p99, max float64
	}{
		{0, nan, nan, nan, nan, nan},
		{1, 1, nan, nan, nan, 1},
		{2, 1, nan, nan, nan, 2},
		{9, 5, nan, nan, nan, 9},
		{10, 5, 9, nan, nan, 10},
		{20, 10, 18, 19, nan, 20},
		{99, 50, 90, 95, nan, 99},
		{100, 50, 90, 95, 99, 100},
		{200, 100, 180, 190, 198, 200},
		{1001, 501, 901, 951, 991, 1001},
	} {
		d := Of(seq(c.n), 3)
		got := []Num{d.P50, d.P90, d.P95, d.P99, d.Max}
		for i, want := range []float64{c.p50, c.p90, c.p95, c.p99, c.max} {
			if float64(got[i]) != want && !(math.IsNaN(want) && math.IsNaN(float64(got[i]))) {
				t.Errorf("n=%d figure %d: got %v, want %v", c.n, i, got[i], want)
			}
		}
		if d.N != c.n || d.Unknown != 3 {
			t.Errorf("n=%d: counts %d/%d", c.n, d.N, d.Unknown)
		}
	}
}

func TestErrorsMissingAreInfinite(t *testing.T) {
	e := ErrorsOf(seq(99), 1)
	if e.N != 100 || e.Missing != 1 || e.P99 != 99 || !e.Max.Unbounded() {
		t.Fatalf("one missing of 100: %+v", e)
	}
	e = ErrorsOf(seq(98), 2)
	if !e.P99.Unbounded() || e.P90 != 90 {
		t.Fatalf("two missing of 100: %+v", e)
	}
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"n":100,"missing":2,"p50":50,"p90":90,"p99":null,"max":null}`; string(b) != want {
		t.Fatalf("got %s, want %s", b, want)
	}
	var back Errors
	if err := json.Unmarshal(b, &back); err != nil || back.P99.Known() || back.P50 != 50 {
		t.Fatalf("read back %+v, %v", back, err)
	}
}

func TestSupport(t *testing.T) {
	first := Support(10, 100, func(s []int) bool { return s[0] < 5 })
	if again := Support(10, 100, func(s []int) bool { return s[0] < 5 }); again != first {
		t.Fatalf("not deterministic: %v then %v", first, again)
	}
	if first < 0.3 || first > 0.7 {
		t.Fatalf("half of the items supported by %v of the resamples", first)
	}
	if Support(0, 100, func([]int) bool { return true }).Known() {
		t.Fatal("support of nothing must be unknown")
	}
	if (Coverage{}).Share().Known() || (Coverage{N: 4, Inside: 3}).Share() != 0.75 {
		t.Fatal("coverage shares")
	}
}

func TestIntervalScore(t *testing.T) {
	for _, c := range []struct{ lo, hi, truth, want float64 }{
		{10, 30, 10, 20}, {10, 30, 30, 20}, {10, 30, 20, 20},
		{10, 30, 5, 20 + 200*5}, {10, 30, 31, 20 + 200}, {10, 10, 10, 0}, {10, 10, 11, 200},
	} {
		if got := IntervalScore(c.lo, c.hi, c.truth, 0.01); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("IntervalScore(%v, %v, %v) = %v, want %v", c.lo, c.hi, c.truth, got, c.want)
		}
	}
}
