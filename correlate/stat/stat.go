// Package stat holds the statistics that reports print: exact quantiles with the number of values
// behind them, interval coverage, and a seeded bootstrap.
//
// Quantiles are nearest-rank: the q-quantile of n sorted values is value number ceil(q·n), so every
// printed figure is one that was measured. A quantile is only given when at least one value can lie
// beyond it, that is when n·(1−q) ≥ 1: p99 needs 100 values, p95 20, p90 10. The median and the
// maximum are given from one value on. Everything else is unknown, which is NaN here and null in
// JSON.
package stat

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
)

// Num is a figure that may be unknown (NaN) or unbounded (+Inf). Both are null in JSON, because
// JSON has neither; a count beside it says which one it is.
type Num float64

// Unknown is the figure that nobody measured.
func Unknown() Num { return Num(math.NaN()) }

// Known reports whether n is a finite figure.
func (n Num) Known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// Unbounded reports whether n stands beyond every measured value because too many were missing.
func (n Num) Unbounded() bool { return math.IsInf(float64(n), 1) }

// MarshalJSON writes null for what is not finite, and six decimals, picoseconds of a figure in
// microseconds: the digits beyond are noise of the division.
func (n Num) MarshalJSON() ([]byte, error) {
	if !n.Known() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, math.Round(float64(n)*1e6)/1e6, 'f', -1, 64), nil
}

// UnmarshalJSON reads null as unknown.
func (n *Num) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Unknown()
		return nil
	}
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*n = Num(f)
	return nil
}

// Quantile returns the nearest-rank q-quantile (0 < q ≤ 1) of sorted values, unknown when there are
// too few of them (see the package comment).
func Quantile(sorted []float64, q float64) Num {
	n := len(sorted)
	if n == 0 || q <= 0 || q > 1 {
		return Unknown()
	}
	if q > 0.5 && q < 1 && n < MinN(q) {
		return Unknown()
	}
	return Num(sorted[rank(n, q)-1])
}

// MinN is the number of values from which the q-quantile is given.
func MinN(q float64) int {
	if q <= 0.5 || q >= 1 {
		return 1
	}
	return int(math.Ceil(1/(1-q) - 1e-9))
}

// rank is ceil(q·n), kept from rounding up where q·n is whole but not exactly so in binary.
func rank(n int, q float64) int {
	return min(n, max(1, int(math.Ceil(q*float64(n)-1e-9))))
}

// Dist describes measured values. N counts the values behind the figures, Unknown those that should
// have been there and could not be determined; the figures say nothing about the latter.
type Dist struct {
	N       int `json:"n"`
	Unknown int `json:"unknown"`
	P50     Num `json:"p50"`
	P90     Num `json:"p90"`
	P95     Num `json:"p95"`
	P99     Num `json:"p99"`
	Max     Num `json:"max"`
}

// Of sorts values in place and describes them.
func Of(values []float64, unknown int) Dist {
	slices.Sort(values)
	return Dist{
		N: len(values), Unknown: unknown,
		P50: Quantile(values, 0.50), P90: Quantile(values, 0.90), P95: Quantile(values, 0.95),
		P99: Quantile(values, 0.99), Max: Quantile(values, 1),
	}
}

// Errors describes absolute errors against a truth in which nothing may be missing: a missing value
// is an infinite error. N counts all of them, Missing the infinite ones.
type Errors struct {
	N       int `json:"n"`
	Missing int `json:"missing"`
	P50     Num `json:"p50"`
	P90     Num `json:"p90"`
	P99     Num `json:"p99"`
	Max     Num `json:"max"`
}

// IntervalScore rates the interval [lo, hi] for a truth that should lie inside it with probability
// 1−alpha: its width, and 2/alpha times the distance by which it misses the truth (Gneiting and
// Raftery 2007, equation 43). Unit of its arguments; smaller is better.
func IntervalScore(lo, hi, truth, alpha float64) float64 {
	return hi - lo + 2/alpha*(max(0, lo-truth)+max(0, truth-hi))
}

// ErrorsOf sorts values in place and describes them together with missing infinite ones.
func ErrorsOf(values []float64, missing int) Errors {
	for range missing {
		values = append(values, math.Inf(1))
	}
	slices.Sort(values)
	return Errors{
		N: len(values), Missing: missing,
		P50: Quantile(values, 0.50), P90: Quantile(values, 0.90),
		P99: Quantile(values, 0.99), Max: Quantile(values, 1),
	}
}
