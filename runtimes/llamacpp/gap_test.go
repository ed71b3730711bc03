package llamacpp_test

import (
	"context"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"pgregory.net/rapid"
)

// Whatever is evaluated without a look at the window in between, and whenever it is saved: what Prefill evaluated is
// restorable at every position.
func TestWhatPrefillSawIsRestorable(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []string{"window", "windows only"} {
		t.Run(kind, func(t *testing.T) {
			store, chat := kit.OpenStore(t), int32(0)
			rapid.Check(t, func(t *rapid.T) {
				chat++ // a prompt of its own in the shared store
				f := kinds(kind)
				s := attach(t, store, f, nil)
				var tokens []kv.Token
				seen := map[int]bool{}
				for range rapid.IntRange(1, 5).Draw(t, "steps") {
					from := len(tokens)
					if from == 0 {
						tokens, from = []kv.Token{chat}, 0
					}
					tokens = append(tokens, rapid.SliceOfN(rapid.Int32Range(0, 9), 1, 120).Draw(t, "tokens")...)
					if rapid.Bool().Draw(t, "by Prefill") {
						if err := s.Prefill(ctx, kv.Tokens(tokens...), from, 0); err != nil {
							t.Fatalf("%v", err)
						}
						for p := from + 1; p <= len(tokens); p++ {
							seen[p] = true
						}
					} else if err := f.Decode(tokens[from:], from, 0); err != nil {
						t.Fatalf("%v", err)
					}
					if rapid.Bool().Draw(t, "saved") {
						if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
							t.Fatalf("%v", err)
						}
					}
				}
				if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
					t.Fatalf("%v", err)
				}
				g := kinds(kind)
				s2 := attach(t, store, g, nil)
				for p := range seen {
					if p < kv.OpeningTokens {
						continue
					}
					delete(g.seqs, 0)
					prompt := append(append([]kv.Token(nil), tokens[:p]...), 77)
					got, err := s2.Restore(ctx, kv.Tokens(prompt...), 0)
					if err != nil || got.Tokens != p {
						t.Fatalf("restored %d, Prefill saw %d of %d: %v %v", got.Tokens, p, len(tokens), got.Reason, err)
					}
				}
			})
		})
	}
}
