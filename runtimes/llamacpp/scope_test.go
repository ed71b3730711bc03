package llamacpp_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// What is saved in pieces, some of which end before the scope begins, is restored at all the places at which it is without a scope; another user gets
// the system prompt, and nothing of what follows.
func TestScopedPromptSavedInPieces(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []string{"plain", "streams", "window", "latent"} {
		tokens := make([]kv.Token, 150)
		for i := range tokens {
			tokens[i] = kv.Token(i * 7 % 61)
		}
		const shared = 86
		restorable := func(p, of kv.Prompt) (at []int) {
			store := kit.OpenStore(t)
			f := kinds(kind)
			s := attach(t, store, f, kit.Small)
			for _, to := range []int{27, 56, 75, 86, 110, 150} {
				if err := s.Prefill(ctx, p.Prefix(to), int(f.max(0))+1, 0); err != nil {
					t.Fatal(err)
				}
				if r, err := s.Save(ctx, p.Prefix(to), 0); err != nil || r.Tokens != to {
					t.Fatal(kind, r.Tokens, err)
				}
			}
			for n := 17; n <= 150; n++ {
				s := attach(t, store, kinds(kind), kit.Small)
				got, err := s.Restore(ctx, of.Prefix(n), 0)
				if err != nil {
					t.Fatal(err)
				}
				at = append(at, got.Tokens)
			}
			return at
		}
		free := kv.Tokens(tokens...)
		mine := kv.Prompt{Tokens: tokens, Scope: "me", ScopeStart: shared}
		yours := kv.Prompt{Tokens: tokens, Scope: "you", ScopeStart: shared}
		want, got, other := restorable(free, free), restorable(mine, mine), restorable(mine, yours)
		for i := range want {
			if got[i] < want[i] {
				t.Errorf("%s: of %d tokens %d are restored in a scope, %d without", kind, 17+i, got[i], want[i])
			}
			if least := min(want[i], shared); other[i] > shared || 17+i <= shared && other[i] < least {
				t.Errorf("%s: of %d tokens %d are restored for another user, of whom %d are shared", kind, 17+i, other[i], least)
			}
		}
	}
}

// Nothing is evaluated for a prompt whose scope cannot begin, and nothing of it is stored.
func TestScopeThatCannotBeginIsRefused(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []string{"plain", "window"} {
		store := kit.OpenStore(t)
		for _, p := range []kv.Prompt{
			{Tokens: make([]kv.Token, 50), Scope: "me", ScopeStart: 51},
			{Tokens: make([]kv.Token, 50), ScopeStart: 20},
		} {
			f := kinds(kind)
			s := attach(t, store, f, kit.Small)
			_, save := s.Save(ctx, p, 0)
			_, restore := s.Restore(ctx, p, 0)
			for what, err := range map[string]error{
				"prefill": s.Prefill(ctx, p, 0, 0), "of a prefix": s.Prefill(ctx, p.Prefix(30), 0, 0), "capture": s.Capture(ctx, p, 0), "restore": restore,
			} {
				if !errors.Is(err, kv.ErrPrompt) {
					t.Errorf("%s: %s: %v", kind, what, err)
				}
			}
			if save == nil || !errors.Is(save, llamacpp.ErrPositions) && !errors.Is(save, kv.ErrPrompt) {
				t.Errorf("%s: save: %v", kind, save)
			}
			if n := f.max(0) + 1; n != 0 {
				t.Errorf("%s: %d tokens were evaluated", kind, n)
			}
			if err := s.Prefill(ctx, kv.Tokens(p.Tokens...), 0, 0); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Save(ctx, p, 0); !errors.Is(err, kv.ErrPrompt) {
				t.Errorf("%s: save of what was evaluated: %d tokens, %v", kind, r.Tokens, err)
			}
		}
		if st, err := store.Stats(); err != nil || st.Blocks != 0 {
			t.Error(fmt.Sprint(kind, ": ", st.Blocks, " blocks are stored, ", err))
		}
	}
}
