package tiny

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestHalfRoundTrip(t *testing.T) {
	for bits := range 1 << 16 {
		v := fromHalf[bits]
		if v != v { // a NaN stays one, its payload may change
			if back := fromHalf[toHalf(v)]; back == back {
				t.Errorf("%#04x is NaN, came back as %v", bits, back)
			}
			continue
		}
		if back := toHalf(v); back != uint16(bits) {
			t.Errorf("%#04x is %v, came back as %#04x", bits, v, back)
		}
	}
}

// Between two neighbours the nearer one is taken, and the even one halfway.
func TestHalfRoundsToNearestEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := uint16(rapid.IntRange(0, 0x7bfe).Draw(t, "low")) // finite, and so is low+1
		a, b := float64(fromHalf[low]), float64(fromHalf[low+1])
		share := rapid.OneOf(rapid.Just(0.5), rapid.Float64Range(0, 1)).Draw(t, "share")
		v := float32(a + share*(b-a))
		want := low
		switch below, above := float64(v)-a, b-float64(v); {
		case below > above, below == above && low&1 == 1:
			want = low + 1
		}
		if got := toHalf(v); got != want {
			t.Fatalf("%v lies between %#04x and %#04x: got %#04x, want %#04x", v, low, low+1, got, want)
		}
		if got := toHalf(-v); got != want|0x8000 {
			t.Fatalf("%v: got %#04x, want %#04x", -v, got, want|0x8000)
		}
	})
	for _, v := range []float32{65520, 1e9, float32(math.Inf(1))} {
		if got := toHalf(v); got != 0x7c00 {
			t.Errorf("%v: got %#04x, want infinity", v, got)
		}
	}
	if got := toHalf(65519); got != 0x7bff {
		t.Errorf("65519: got %#04x, want the largest f16", got)
	}
}
