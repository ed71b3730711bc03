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
