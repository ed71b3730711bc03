package replay

import (
	"context"
	"log/slog"
	"math"
	"os"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/tests/trace"
)

// known are the published hit rates of the Mooncake conversation trace under LRU, by share of the distinct blocks.
var known = map[float64]float64{0.01: 0.053, 0.03: 0.126, 0.10: 0.279, 0.30: 0.358}

// The store's LRU keeps what the simulation's keeps: the same hits, to the block, and the known rates within half a
// point. The ordinary run plays the first 1,000 requests at 3 %; DORMOUSE_REPLAY=all plays everything at all capacities.
func TestMooncakeLRU(t *testing.T) {
	requests, err := trace.Load()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("DORMOUSE_REPLAY") != "all" {
		requests = requests[:1000]
		if testing.Short() {
			requests = requests[:400]
		}
		play(t, requests, 0.03, db.LRU(), trace.LRU, 0)
		return
	}
	for _, share := range []float64{0.01, 0.03, 0.10, 0.30} {
		play(t, requests, share, db.LRU(), trace.LRU, known[share])
	}
	for _, share := range []float64{0.01, 0.03, 0.10} {
		play(t, requests, share, db.CostAware(), trace.CostAware, 0)
	}
}

func play(t *testing.T, requests []trace.Request, share float64, policy db.Policy, simulated trace.Policy, known float64) {
	t.Helper()
	capacity := int(math.Round(share * float64(trace.Distinct(requests))))
	want := trace.Simulation{Capacity: capacity, BlockTokens: trace.MooncakeBlockTokens, Policy: simulated}.Run(requests)

	start := time.Now()
	hits, evicted := playStore(t, requests, capacity, policy)
	rate := float64(hits) / float64(want.Blocks)
	t.Logf("%s, %g %% (%d blocks), %d requests: store %.2f %%, simulation %.2f %%; %d evictions, %.0f s",
		policy.Name(), 100*share, capacity, len(requests), 100*rate, 100*want.HitRate(), evicted, time.Since(start).Seconds())
	if hits != want.Hits {
		t.Errorf("%s at %g %%: the store found %d of %d blocks, the simulation %d", policy.Name(), 100*share, hits, want.Blocks, want.Hits)
	}
	if known > 0 && math.Abs(rate-known) > 0.005 {
		t.Errorf("%s at %g %%: hit rate %.4f, known is %.3f", policy.Name(), 100*share, rate, known)
	}
}

func playStore(t *testing.T, requests []trace.Request, capacity int, policy db.Policy) (hits int, evicted int64) {
	t.Helper()
	ctx := context.Background()
	s, err := db.Open(ctx, memdir.Dir(t), db.Options{
		Budget: 64 << 30, MinFree: -1, MaxBlocks: int64(capacity), HighWater: 1, LowWater: 1, Policy: policy,
		Codec: quant.Raw, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := kv.Descriptor{
		Name: "tiny", Weights: kv.HashOf("tiny"), Architecture: "test", Tokenizer: kv.HashOf("test"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		BlockTokens: trace.MooncakeBlockTokens,
	}
	d.Tensors = []kv.Tensor{{Role: kv.RoleK, DType: kv.Bytes, Width: 1}}
	m, err := s.Register(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	var p kv.Prompt
	row := make([]byte, 1<<20)
	for _, r := range requests {
		p.Tokens = p.Tokens[:0]
		for _, id := range r.Blocks {
			for range trace.MooncakeBlockTokens {
				p.Tokens = append(p.Tokens, kv.Token(id))
			}
		}
		x, err := m.Match(ctx, p, db.MatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := x.Tokens()
		if n%trace.MooncakeBlockTokens != 0 {
			t.Fatalf("matched %d tokens of whole blocks", n)
		}
		hits += n / trace.MooncakeBlockTokens
		if n < len(p.Tokens) {
			rows := kv.Rows{kv.Packed(n, len(p.Tokens)-n, row[:len(p.Tokens)-n])}
			if _, err := x.Extend(ctx, p, rows, db.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return hits, st.Evicted
}
