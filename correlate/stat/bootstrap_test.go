package stat

import "testing"

func TestMedianOf(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		at     Num
		wide   bool // the interval is known
	}{
		{"nothing", nil, Unknown(), false},
		{"one", []float64{3}, 3, false},
		{"even", []float64{4, 1, 3, 2}, 2.5, false},
		{"enough", []float64{1.02, 0.98, 1.00, 0.97, 1.03}, 1.00, true},
		{"all equal", []float64{2, 2, 2, 2, 2, 2}, 2, true},
	} {
		i := MedianOf(c.values, 1000, 0.95)
		if i.N != len(c.values) || i.At.Known() != c.at.Known() || c.at.Known() && i.At != c.at {
			t.Errorf("%s: %+v, want a median of %v", c.name, i, c.at)
		}
		if i.Lo.Known() != c.wide || i.Hi.Known() != c.wide {
			t.Errorf("%s: interval %+v", c.name, i)
		}
		if c.wide && (i.Lo > i.At || i.Hi < i.At || float64(i.Lo) < 0.97 || i != MedianOf(c.values, 1000, 0.95)) {
			t.Errorf("%s: interval %+v does not hold the median, or leaves the data, or changes", c.name, i)
		}
	}
	// 95 of 100 resampled medians of ten values around 10 lie well inside their range.
	i := MedianOf([]float64{1, 9, 10, 10, 10, 10, 10, 10, 11, 30}, 2000, 0.95)
	if i.Lo < 9 || i.Hi > 11 || !i.Holds(10) || i.Holds(12) || i.Holds(8) {
		t.Errorf("outliers move the interval: %+v", i)
	}
}
