package logits

import (
	"math"
	"testing"
)

// The divergence is what its definition gives where that is known.
func TestDivergence(t *testing.T) {
	logs := func(p ...float64) (out []float32) {
		for _, x := range p {
			out = append(out, float32(math.Log(x))+1000) // a constant changes nothing, and must not overflow
		}
		return out
	}
	want := 0.5*math.Log(0.5/0.25) + 0.5*math.Log(0.5/0.75)
	if got := Divergence(logs(0.5, 0.5), logs(0.25, 0.75)); math.Abs(got-want) > 1e-3 {
		t.Errorf("divergence %g, expected %g", got, want)
	}
	if got := Divergence(logs(0.2, 0.8), logs(0.2, 0.8)); got != 0 {
		t.Errorf("divergence of equals is %g", got)
	}
}

func TestCompare(t *testing.T) {
	want := [][]float32{{0, 4, 2}, {1, 0, 0}}
	if l := Compare(want, want); l.SameBits != 2 || l.SameTop != 2 || l.MeanKL != 0 || l.Spread != 0 {
		t.Errorf("equals: %v", l)
	}
	if l := Compare(want, [][]float32{{0, 4, 3}, {0, 1, 0}}); l.SameBits != 0 || l.SameTop != 1 || l.Spread != 1 || l.WorstKL < l.MeanKL {
		t.Errorf("others: %v", l)
	}
	if d := Difference([]float32{0, 1}, []float32{0, float32(math.NaN())}); !math.IsInf(d, 1) {
		t.Errorf("a logit that is not a number differs by %g", d)
	}
}
