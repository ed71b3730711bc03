package llamacpp_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// A store with bytes that have rotted restores less, or nothing, but nothing wrong; the context goes on as if the rest had
// never been stored.
func TestDamagedStore(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, 2))
	shorter := 0
	for _, opaque := range []bool{false, true} {
		for _, kind := range []string{"plain", "window", "channel-major"} {
			for range 4 {
				dir := memdir.Dir(t)
				store := kit.OpenStoreAt(t, dir, db.Options{Codec: quant.Raw})
				f := kinds(kind)
				s := attach(t, store, f, func(o *llamacpp.Options) { o.BlockTokens, o.OpaqueOnly = 16, opaque })
				tokens := make([]kv.Token, 130)
				for i := range tokens {
					tokens[i] = kv.Token(i % 11)
				}
				prompt := kv.Tokens(tokens...)
				for n := 40; n <= 130; n += 30 { // Opaque has several states to fall back to
					if err := s.Prefill(ctx, prompt.Prefix(n), len(f.seqs[0]), 0); err != nil {
						t.Fatal(err)
					}
					if _, err := s.Save(ctx, prompt, 0); err != nil {
						t.Fatal(err)
					}
				}
				want := f.logits
				for range 3 {
					kit.Flip(t, dir, rng)
				}
				g := kinds(kind)
				s2 := attach(t, store, g, func(o *llamacpp.Options) { o.BlockTokens, o.OpaqueOnly = 16, opaque })
				got, err := s2.Restore(ctx, prompt, 0)
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				if got.Tokens < 129 && !opaque {
					shorter++
				}
				if err := s2.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
					t.Fatal(err)
				}
				if g.logits != want {
					t.Errorf("%s: restored %d tokens (%v): logits differ", kind, got.Tokens, got.Reason)
				}
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if shorter == 0 {
		t.Error("no damage was ever met: the test shows nothing")
	}
}
