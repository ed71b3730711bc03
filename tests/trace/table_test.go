package trace

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// shares are the capacities measured, in percent of the distinct blocks.
var shares = []int{1, 3, 10, 30}

type workload struct {
	name        string
	requests    []Request
	blockTokens int
}

func (w workload) run(share int, s Simulation) Result {
	s.Capacity, s.BlockTokens = Distinct(w.requests)*share/100, w.blockTokens
	return s.Run(w.requests)
}

func mooncakeTraffic(t testing.TB) workload {
	return workload{"Mooncake", mustLoad(t), MooncakeBlockTokens}
}

func generatedTraffic(seed uint64) []workload {
	return []workload{
		{fmt.Sprintf("Chat(%d)", seed), Chat(seed, 3000), GeneratedBlockTokens},
		{fmt.Sprintf("Phone(%d)", seed), Phone(seed, 700), GeneratedBlockTokens},
	}
}

// The figures published for this trace, in hits per 1,000 blocks at 1, 3, 10 and 30 %. The counting policies of that table
// count every block of the prefix and remember the counts of evicted blocks.
var published = []struct {
	simulation Simulation
	permille   [4]float64
}{
	{Simulation{Policy: FIFO}, [4]float64{53, 126, 279, 358}},
	{Simulation{Policy: LRU}, [4]float64{53, 126, 279, 358}},
	{Simulation{Policy: LFU, TouchPath: true, Remember: true}, [4]float64{98, 147, 239, 349}},
	{Simulation{Policy: SegmentedLRU, TouchPath: true, Remember: true}, [4]float64{83, 175, 248, 349}},
	{Simulation{Policy: LFUDA, TouchPath: true, Remember: true}, [4]float64{72, 151, 290, 357}},
	{Simulation{Policy: Policy{Name: "clairvoyant"}, Clairvoyant: true}, [4]float64{246, 348, 366, 366}},
}

func TestPublishedTable(t *testing.T) {
	w := mooncakeTraffic(t)
	for _, p := range published {
		for i, share := range shares {
			got := w.run(share, p.simulation).HitRate() * 1000
			t.Logf("%-14s %2d %%: %.2f, published %.0f", p.simulation.Policy.Name, share, got, p.permille[i])
			if math.Abs(got-p.permille[i]) > 5 {
				t.Errorf("%s at %d %%: %.1f hits per 1,000 blocks, published %.0f", p.simulation.Policy.Name, share, got, p.permille[i])
			}
		}
	}
}
func line(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |" }
