package llamacpp

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// A canary comes back as it was stored, fits into a note however many layers there are, and rubbish is none.
func TestCanaryNote(t *testing.T) {
	values := make([]float32, 300)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)))
	}
	for _, planes := range []int{1, 36, 60, 252, 5000} {
		c := canary{tokens: []int32{100, 101}, position: 1000, noise: noise{0.25, 0.125}, settings: []string{"n_ctx 512", "long " + strings.Repeat("x", 4096)}}
		c.portrait = portrait{stride: 1 + (planes-1)/(maxPortraitBytes/8) | 1}
		for i := 0; i < planes; i += c.portrait.stride {
			c.portrait.planes = append(c.portrait.planes, project(uint64(i), values, min(maxProjections, maxPortraitBytes/(4*(1+(planes-1)/c.portrait.stride))-1)))
		}
		b := c.encode()
		if len(b) > db.MaxNoteBytes {
			t.Fatalf("%d planes take %d bytes", planes, len(b))
		}
		got, ok := decodeCanary(b)
		if d := c.against(got); !ok || d.times != 0 || !slices.Equal(got.tokens, c.tokens) || got.position != c.position || got.noise != c.noise || got.settings[0] != "n_ctx 512" {
			t.Errorf("%d planes came back as %+v, %v", planes, d, ok)
		}
		for n := range b {
			if n < 200 || n == len(b)-1 {
				if _, ok := decodeCanary(b[:n]); ok {
					t.Errorf("%d of %d bytes are a canary", n, len(b))
				}
			}
		}
	}
	if d := (portrait{}).against(portraitOf(state.Format{}, bytes.Repeat([]byte{0xff}, 64), nil), noise{}); !math.IsInf(d.times, 1) {
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
	made := func(off float64, n noise, settings ...string) canary {
		c := canary{noise: n, settings: settings, portrait: portrait{stride: 1}}
		for i, kind := range []planeKind{keys, values, keys, values, memory} {
			x := rows(0)
			if i >= 2 { // behind the first layer
				x = rows(off)
			}
			p := project(uint64(i), x, maxProjections)
			p.kind = kind
			c.portrait.planes = append(c.portrait.planes, p)
		}
		return c
	}
	const batch, other = "n_batch 32", "n_batch 1"
	for _, x := range []struct {
		what    string
		noise   noise
		now     canary
		refused bool
	}{
		{"the same", noise{}, made(0, noise{}, batch), false},
		{"a little else", noise{}, made(0.02, noise{}, batch), false},
		{"a quarter else", noise{}, made(0.25, noise{}, batch), true},
		{"a quarter else, with another setting", noise{}, made(0.25, noise{}, other), false},
		{"half else, with another setting", noise{}, made(0.5, noise{}, other), true},
		{"a quarter else, where rounding does a seventh", noise{0.14, 0.14}, made(0.25, noise{}, batch), false},
	} {
		if d := made(0, x.noise, batch).against(x.now); d.times > 1 != x.refused {
			t.Errorf("%s: differs by %.2g of its length, %.2g times what is allowed in %s", x.what, d.worst, d.times, d.plane)
		}
	}
}
