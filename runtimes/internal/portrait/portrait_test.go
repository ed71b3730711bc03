package portrait

import (
	"math"
	"testing"
)

func rows(planes int, off float64) []Rows {
	out := make([]Rows, planes)
	for i := range out {
		out[i] = Rows{Name: "a plane", Kind: Keys + Kind(i%2), Values: make([]float32, 512)}
		for j := range out[i].Values {
			out[i].Values[j] = float32(math.Sin(float64(i*j)) + off*math.Cos(float64(j)))
		}
	}
	return out
}

// A portrait comes back as it was written, whatever the number of planes, and tells other rows from its own.
func TestPortrait(t *testing.T) {
	for _, planes := range []int{1, 2, 60, 5000} {
		was := From(rows(planes, 0))
		b := was.Append(nil)
		if len(b) > MaxBytes+64 {
			t.Errorf("%d planes take %d bytes", planes, len(b))
		}
		got, ok := Decode(b)
		if d := got.Against(was, Noise{}); !ok || d.Times != 0 {
			t.Errorf("%d planes came back %.2g times off, %v", planes, d.Times, ok)
		}
		if d := got.Against(From(rows(planes, 0.8)), Noise{}); d.Times <= 1 {
			t.Errorf("of %d planes, other rows are %.2g times off", planes, d.Times)
		}
		if _, ok := Decode(b[:len(b)-1]); ok {
			t.Errorf("a part of %d planes is a portrait", planes)
		}
	}
}

// That of nothing is no portrait, and is like none.
func TestPortraitOfNothing(t *testing.T) {
	p := From(nil)
	if _, ok := Decode(p.Append(nil)); ok {
		t.Error("it can be read")
	}
	if d := p.Against(p, Noise{}); !math.IsInf(d.Times, 1) {
		t.Errorf("it is %g times off itself", d.Times)
	}
}
