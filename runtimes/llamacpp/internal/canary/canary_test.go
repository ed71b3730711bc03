package canary

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/internal/portrait"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// A canary comes back as it was stored, fits into a note however many layers there are, and rubbish is none.
func TestCanaryNote(t *testing.T) {
	values := make([]float32, 300)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)))
	}
	for _, planes := range []int{1, 36, 60, 252, 5000} {
		c := Canary{Tokens: []int32{100, 101}, Position: 1000, Noise: portrait.Noise{Most: 0.25, Mean: 0.125}, Settings: []string{"n_ctx 512", "long " + strings.Repeat("x", 4096)}}
		c.Portrait = portrait.From(slices.Repeat([]portrait.Rows{{Values: values}}, planes))
		b := c.Encode()
		if len(b) > db.MaxNoteBytes {
			t.Fatalf("%d planes take %d bytes", planes, len(b))
		}
		got, ok := Decode(b)
		if d := c.Against(got); !ok || d.Times != 0 || !slices.Equal(got.Tokens, c.Tokens) || got.Position != c.Position || got.Noise != c.Noise || got.Settings[0] != "n_ctx 512" {
			t.Errorf("%d planes came back as %+v, %v", planes, d, ok)
		}
		for n := range b {
			if n < 200 || n == len(b)-1 {
				if _, ok := Decode(b[:n]); ok {
					t.Errorf("%d of %d bytes are a canary", n, len(b))
				}
			}
		}
	}
	if d := (portrait.Portrait{}).Against(portrait.Of(state.Format{}, bytes.Repeat([]byte{0xff}, 64), nil), portrait.Noise{}); !math.IsInf(d.Times, 1) {
		t.Error(d)
	}
}

// Where nothing showed what rounding does, a context with the same settings computes the same rows, or it is another model: a forgotten
// adapter of queries moved the rows of a hybrid by a quarter. With other settings, other kernels may be at work.
func TestCanaryWithoutRounding(t *testing.T) {
	rows := func(off float64) []float32 {
		out := make([]float32, 4096)
		for i := range out {
			out[i] = float32(math.Sin(float64(i)) + off*math.Cos(float64(i)))
		}
		return out
	}
	made := func(off float64, n portrait.Noise, settings ...string) Canary {
		var all []portrait.Rows
		for i, kind := range []portrait.Kind{portrait.Keys, portrait.Values, portrait.Keys, portrait.Values, portrait.Memory} {
			x := rows(0)
			if i >= 2 { // behind the first layer
				x = rows(off)
			}
			all = append(all, portrait.Rows{Kind: kind, Values: x})
		}
		return Canary{Noise: n, Settings: settings, Portrait: portrait.From(all)}
	}
	const batch, other = "n_batch 32", "n_batch 1"
	for _, x := range []struct {
		what    string
		noise   portrait.Noise
		now     Canary
		refused bool
	}{
		{"the same", portrait.Noise{}, made(0, portrait.Noise{}, batch), false},
		{"a little else", portrait.Noise{}, made(0.02, portrait.Noise{}, batch), false},
		{"a quarter else", portrait.Noise{}, made(0.25, portrait.Noise{}, batch), true},
		{"a quarter else, with another setting", portrait.Noise{}, made(0.25, portrait.Noise{}, other), false},
		{"half else, with another setting", portrait.Noise{}, made(0.5, portrait.Noise{}, other), true},
		{"a quarter else, where rounding does a seventh", portrait.Noise{Most: 0.14, Mean: 0.14}, made(0.25, portrait.Noise{}, batch), false},
	} {
		if d := made(0, x.noise, batch).Against(x.now); d.Times > 1 != x.refused {
			t.Errorf("%s: differs by %.2g of its length, %.2g times what is allowed in %s", x.what, d.Worst, d.Times, d.Plane)
		}
	}
}
