package llamacpp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/piecesize"
)

// saved is a store with a prompt of n tokens of that kind, and the logits behind it.
func saved(t *testing.T, dir, kind string, n int) (*db.Store, kv.Prompt, uint64) {
	t.Helper()
	store := kit.OpenStoreAt(t, dir, db.Options{Codec: quant.Raw})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	tokens := make([]kv.Token, n)
	for i := range tokens {
		tokens[i] = kv.Token(i % 11)
	}
	f := kinds(kind)
	s := attach(t, store, f, kit.Small)
	prompt := kv.Tokens(tokens...)
	kit.EvaluateAndSave(t, s, prompt, 0, 0)
	return store, prompt, f.logits
}

// A restore needs no more memory than a piece where sequences share a buffer and one is free, and never touches one that is not.
func TestRestoreInPieces(t *testing.T) {
	ctx := context.Background()
	for _, kind := range kindNames {
		t.Run(kind, func(t *testing.T) {
			store, prompt, logits := saved(t, memdir.Dir(t), kind, 300)
			const piece = 2000
			defer piecesize.Set(piece)()
			for busy := range 3 { // other sequences that hold something
				g := kinds(kind)
				s := attach(t, store, g, kit.Small)
				for i := range busy {
					if err := g.Decode([]kv.Token{7, 8}, 0, i); err != nil {
						t.Fatal(err)
					}
				}
				g.largest, g.decode = 0, 0
				got, err := s.Restore(ctx, prompt, 2)
				if err != nil || got.Tokens != 299 {
					t.Fatalf("restored %d tokens: %v %v", got.Tokens, got.Reason, err)
				}
				if pieces := kind != "streams" && busy < 2; pieces != (g.largest < 2*piece) {
					t.Errorf("%d other sequences: the largest piece has %d bytes", busy, g.largest)
				}
				for i := range 2 {
					if want := 2; i < busy && len(g.seqs[int32(i)]) != want || i >= busy && len(g.seqs[int32(i)]) > 0 {
						t.Errorf("%d other sequences: sequence %d has %d tokens", busy, i, len(g.seqs[int32(i)]))
					}
				}
				if err := s.Prefill(ctx, prompt, 299, 2); err != nil {
					t.Fatal(err)
				}
				if g.logits != logits {
					t.Errorf("%d other sequences: logits differ", busy)
				}
			}
		})
	}
}

// A restore that fails on the way leaves nothing: it is cancelled, or llama.cpp takes no more.
func TestRestoreStopsHalfway(t *testing.T) {
	for _, kind := range []string{"plain", "window"} {
		store, prompt, _ := saved(t, memdir.Dir(t), kind, 300)
		defer piecesize.Set(2000)()
		for at := range 6 {
			for _, cancelled := range []bool{true, false} {
				g := kinds(kind)
				s := attach(t, store, g, kit.Small)
				ctx, cancel := context.WithCancel(context.Background())
				g.sets = 0
				g.onSet = func(n int) {
					if n == at {
						if cancelled {
							cancel()
						} else {
							g.refuseSet = true
						}
					}
				}
				got, err := s.Restore(ctx, prompt, 1)
				switch {
				case at == 0 && (err != nil || got.Tokens != 299):
					t.Errorf("restored %d: %v", got.Tokens, err)
				case at > 0 && (err == nil || got.Tokens != 0):
					t.Errorf("piece %d, cancelled %t: restored %d tokens", at, cancelled, got.Tokens)
				case at > 0 && len(g.seqs) > 0:
					t.Errorf("piece %d, cancelled %t: sequences hold %v", at, cancelled, g.seqs)
				case at > 0 && cancelled && !errors.Is(err, context.Canceled), at > 0 && !cancelled && !errors.Is(err, llamacpp.ErrState):
					t.Errorf("piece %d, cancelled %t: %v", at, cancelled, err)
				}
				cancel()
			}
		}
	}
}

// Damage that shows only in a later piece: what is left is restored, from its beginning, and nothing else is.
func TestDamageInLaterPieces(t *testing.T) {
	defer piecesize.Set(1500)()
	rng := rand.New(rand.NewPCG(3, 4))
	shorter := 0
	for _, kind := range []string{"plain", "window", "channel-major"} {
		for range 8 {
			dir := memdir.Dir(t)
			store, prompt, logits := saved(t, dir, kind, 300)
			kit.Flip(t, dir, rng)
			g := kinds(kind)
			s := attach(t, store, g, kit.Small)
			got, err := s.Restore(context.Background(), prompt, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(g.seqs[1]) != got.Tokens || len(g.seqs[0])+len(g.seqs[2]) > 0 {
				t.Fatalf("%s: %d tokens are said, the sequences hold %d, %d, %d", kind, got.Tokens, len(g.seqs[0]), len(g.seqs[1]), len(g.seqs[2]))
			}
			if got.Tokens > 0 && got.Tokens < 299 {
				shorter++
			}
			if err := s.Prefill(context.Background(), prompt, got.Tokens, 1); err != nil {
				t.Fatal(err)
			}
			if g.logits != logits {
				t.Errorf("%s: restored %d tokens (%v): logits differ", kind, got.Tokens, got.Reason)
			}
		}
	}
	if shorter == 0 {
		t.Error("no damage was ever met: the test shows nothing")
	}
}

// Other sequences of a shared buffer have most of the cells: what is left is used, but for the one that a token needs.
func TestLittleRoom(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []string{"plain", "window", "channel-major"} {
		store, prompt, logits := saved(t, memdir.Dir(t), kind, 200)
		for _, piece := range []int{1000, 4 << 20} {
			defer piecesize.Set(piece)()
			for _, free := range []int{0, 1, 16, 17, 100, 199, 200, 250} {
				g := kinds(kind)
				g.contextLen = 300
				s := attach(t, store, g, kit.Small)
				if other := make([]kv.Token, 300-free); len(other) > 0 {
					if err := g.Decode(other, 0, 1); err != nil {
						t.Fatal(err)
					}
				}
				got, err := s.Restore(ctx, prompt, 0)
				want := min(199, free-1)
				if want < kv.OpeningTokens {
					want = 0
				}
				if err != nil || got.Tokens != want {
					t.Fatalf("%s, %d cells free: restored %d tokens, want %d: %v %v", kind, free, got.Tokens, want, got.Reason, err)
				}
				if want < 198 && got.Reason.Code != db.MemoryShort {
					t.Errorf("%d cells free: reason %v", free, got.Reason)
				}
				if len(g.seqs[1]) != 300-free || len(g.seqs[2]) > 0 {
					t.Errorf("%d cells free: the other sequences hold %d and %d", free, len(g.seqs[1]), len(g.seqs[2]))
				}
				if got.Tokens < 199 || free < 200 {
					continue
				}
				g.contextLen = 4096
				if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
					t.Fatal(err)
				}
				if g.logits != logits {
					t.Errorf("%d cells free: logits differ", free)
				}
			}
		}
	}
}
