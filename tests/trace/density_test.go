package trace

import (
	"flag"
	"fmt"
	"strings"
	"testing"
)

const q8, q4r = 34. / 32, (34./32 + 36./64) / 2

// codecs are what rows take of f16's bytes, record headers left out: keys and values are as many.
var codecs = []struct {
	name  string
	bytes float64 // a value
}{
	{"f16", 2},
	{"q8_0", q8},
	{"q4r: keys q8_0, values 4.5 bits", q4r},
	// If blocks became q4r with age. LRU finds a block wherever in its order it lies, so only the mean counts.
	{"q8_0, the colder half q4r", 2 / (1/q8 + 1/q4r)},
}

// runBytes is run where the capacity is a share of the bytes that all distinct blocks take in f16.
func (w workload) runBytes(share int, bytes float64, s Simulation) Result {
	s.Capacity, s.BlockTokens = int(float64(Distinct(w.requests)*share)/100*2/bytes), w.blockTokens
	return s.Run(w.requests)
}

// At equal bytes a denser codec is worth more than any policy: LRU over q8_0 finds more than every policy over f16, and over q4r more
// than over q8_0, where a store is small.
func TestDensityBeatsPolicies(t *testing.T) {
	traffic := []workload{mooncakeTraffic(t)}
	if !testing.Short() {
		traffic = append(traffic, syntheticTraffic(t), chatTraffic(heldOut[0]), phoneTraffic(heldOut[0]))
	}
	for _, w := range traffic {
		for _, share := range []int{1, 3} {
			var hits [3]float64
			for i, c := range codecs[:3] {
				hits[i] = w.runBytes(share, c.bytes, Simulation{Policy: LRU}).HitRate()
			}
			if hits[1] <= hits[0] || hits[2] <= hits[1] {
				t.Errorf("%s at %d %%: hit rates %.4f", w.name, share, hits)
			}
			for _, p := range []Policy{LFU, LFUDA, CostAware} {
				if other := w.run(share, Simulation{Policy: p}).HitRate(); other >= hits[1] {
					t.Errorf("%s at %d %%: %s over f16 hits %.4f, LRU over q8_0 %.4f", w.name, share, p.Name, other, hits[1])
				}
			}
		}
	}
}

// TestDensityTable prints the table of hits per byte in docs/eviction.md, if it is asked for by name: -run DensityTable -v.
func TestDensityTable(t *testing.T) {
	if run := flag.Lookup("test.run"); !testing.Verbose() || run == nil || !strings.Contains(run.Value.String(), "DensityTable") {
		t.Skip("SKIPPED: prints a table: ask for it with -run DensityTable -v")
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\n| traffic | rows | bytes a value | 1 %% | 3 %% | 10 %% | 30 %% |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, ws := range [][]workload{{mooncakeTraffic(t)}, {syntheticTraffic(t)}, heldOutTraffic(chatTraffic), heldOutTraffic(phoneTraffic)} {
		name := strings.TrimSuffix(ws[0].name, fmt.Sprintf("(%d)", heldOut[0]))
		var base [4]float64
		for _, c := range codecs {
			fmt.Fprintf(&out, "| %s | %s | %.3f |", name, c.name, c.bytes)
			for i, share := range shares {
				hits := 0.0
				for _, w := range ws {
					hits += 100 * w.runBytes(share, c.bytes, Simulation{Policy: LRU}).HitRate() / float64(len(ws))
				}
				if base[i] == 0 {
					base[i] = hits
				}
				if c.bytes == 2 {
					fmt.Fprintf(&out, " %.2f |", hits)
				} else {
					fmt.Fprintf(&out, " %.2f (%.2fx) |", hits, hits/base[i])
				}
			}
			fmt.Fprintln(&out)
		}
	}
	t.Log(out.String())
}
