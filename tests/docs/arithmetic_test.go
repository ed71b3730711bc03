package docs

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// The numbers that docs/decisions.md puts right are what their formulas give.
func TestNumbersThatAreOftenGivenWrongly(t *testing.T) {
	_, section, _ := strings.Cut(page(t, "docs/decisions.md"), "\n## Numbers that are often given wrongly\n")
	section, _, _ = strings.Cut(section, "\n## ")
	bits := func(n, p float64) float64 { return math.Ceil(-n * math.Log(p) / (math.Ln2 * math.Ln2)) }
	keys := func(m, p, k float64) float64 { return math.Floor(-m / k * math.Log(1-math.Pow(p, 1/k))) }
	const token = 2 * 32 * 32 * 128 * 2 // Llama-2-7B in f16: K and V x layers x heads x head_dim x bytes
	for _, x := range []struct {
		what, want string
	}{
		{"keys in 524,288 bits at 0.001", thousands(keys(524288, 0.001, 10))},
		{"bits of 40,000 keys at 0.001", thousands(bits(40000, 0.001))},
		{"bits of 4,096 keys at 0.01", thousands(bits(4096, 0.01))},
		{"a token", fmt.Sprintf("%d KiB", token>>10)},
		{"512 tokens", fmt.Sprintf("%d MiB", 512*token>>20)},
		{"4,096 tokens in f16", fmt.Sprintf("%d GiB", 4096*token>>30)},
		{"4,096 tokens in q8_0", thousands(4096*token*34/64/(1<<20)) + " MiB"},
	} {
		if !strings.Contains(section, x.want) {
			t.Errorf("docs/decisions.md: %s: %s is not there", x.what, x.want)
		}
	}
}

func thousands(n float64) string {
	return fmt.Sprintf("%d,%03d", int(n)/1000, int(n)%1000)
}
