package llamacpp_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// A save reads what is new: nothing of what is stored, and of a turn little more than the turn, where sequences share one
// buffer. What it stored is whole, also when what it counted on went meanwhile.
func TestSaveReadsWhatIsNew(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []string{"plain", "channel-major", "latent", "window", "reordered", "streams", "windows only"} {
		t.Run(kind, func(t *testing.T) {
			store := kit.OpenStore(t)
			f := kinds(kind)
			s := attach(t, store, f, func(o *llamacpp.Options) { o.BlockTokens = 16 })
			tokens := make([]kv.Token, 600)
			for i := range tokens {
				tokens[i] = kv.Token(i % 7)
			}
			save := func(n int) (read int) {
				t.Helper()
				read = -f.read
				if r, err := s.Save(ctx, kv.Tokens(tokens[:n]...), 0); err != nil || r.Tokens != n {
					t.Fatalf("%d of %d tokens are stored: %v", r.Tokens, n, err)
				}
				return read + f.read
			}
			prefill := func(from, to int) {
				t.Helper()
				if err := s.Prefill(ctx, kv.Tokens(tokens[:to]...), from, 0); err != nil {
					t.Fatal(err)
				}
			}
			prefill(0, 500)
			all := save(500)
			for _, n := range []int{500, 499, 300, 500} {
				if read := save(n); read != 0 {
					t.Errorf("%d bytes are read for %d tokens that are stored", read, n)
				}
			}
			if r, err := s.Save(ctx, kv.Prompt{}, 0); err != nil || r.Tokens != 0 {
				t.Errorf("an empty prompt: %+v %v", r, err)
			}
			prefill(500, 520)
			if turn := save(520); turn > all/4 && kind != "streams" && kind != "windows only" {
				t.Errorf("a turn of 20 tokens: %d bytes are read, the state has %d", turn, all)
			}
			for i := range 3 {
				if f.max(int32(i)) >= 0 != (i == 0) {
					t.Errorf("sequence %d has %d tokens after a save", i, f.max(int32(i))+1)
				}
			}
			prefill(520, 560)
			if r, err := s.Save(ctx, kv.Prompt{}, 0); err != nil || r.Tokens != 0 { // with captured rows
				t.Errorf("an empty prompt: %+v %v", r, err)
			}
			if _, err := s.Model().Delete(ctx, kv.Tokens(tokens[:200]...)); err != nil {
				t.Fatal(err)
			}
			save(560)
			g := kinds(kind)
			s2 := attach(t, store, g, func(o *llamacpp.Options) { o.BlockTokens = 16 })
			got, err := s2.Restore(ctx, kv.Tokens(tokens...), 0)
			if err != nil || got.Tokens != 560 {
				t.Fatalf("restored %d of 560: %v %v", got.Tokens, got.Reason, err)
			}
			for _, x := range []*llamacpp.Session{s, s2} {
				if err := x.Prefill(ctx, kv.Tokens(tokens...), 560, 0); err != nil {
					t.Fatal(err)
				}
			}
			if f.logits != g.logits {
				t.Error("logits differ")
			}
		})
	}
}

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

// Spans of one token, anywhere, keep prompts apart from where they stand, and are tokens all the same: Prefill evaluates them if it is told
// that they are marks.
func TestSpansOfOneToken(t *testing.T) {
	ctx := context.Background()
	marks := func(o *llamacpp.Options) { o.BlockTokens, o.TokenSpans = 16, true }
	for _, kind := range []string{"plain", "streams", "window", "latent"} {
		for _, at := range []int{0, 1, 30, 31, 32, 48, 60, 99} {
			store := kit.OpenStore(t)
			f := kinds(kind)
			s := attach(t, store, f, marks)
			prompt := kv.Prompt{Tokens: make([]kv.Token, 100), Spans: []kv.Span{{Start: at, Len: 1, Hash: kv.Hash{1}}}, Scope: "me", ScopeStart: 40}
			for _, to := range []int{20, 61, 100} {
				part := prompt.Prefix(to)
				if at >= to {
					part.Spans = nil
				}
				if err := s.Prefill(ctx, part, int(f.max(0))+1, 0); err != nil {
					t.Fatal(err)
				}
				if r, err := s.Save(ctx, part, 0); err != nil || r.Tokens != to {
					t.Fatal(r.Tokens, err)
				}
			}
			want := f.logits
			other := prompt
			other.Spans = []kv.Span{{Start: at, Len: 1, Hash: kv.Hash{2}}}
			plain := prompt
			plain.Spans = nil
			for name, p := range map[string]kv.Prompt{"another span": other, "no span": plain} {
				_, err := s.Save(ctx, p, 0)
				kit.WantLineage(t, name, err, at)
				s := attach(t, store, kinds(kind), kit.Small)
				n := at
				if n < kv.OpeningTokens {
					n = 0
				}
				if got, err := s.Restore(ctx, p, 0); err != nil || got.Tokens != min(n, 99) {
					t.Errorf("%s, %s at %d: restored %d: %v %v", kind, name, at, got.Tokens, got.Reason, err)
				}
			}
			g := kinds(kind)
			s = attach(t, store, g, marks)
			if got, err := s.Restore(ctx, prompt, 0); err != nil || got.Tokens != 99 {
				t.Fatalf("%s: span at %d: restored %d: %v %v", kind, at, got.Tokens, got.Reason, err)
			}
			if err := s.Prefill(ctx, prompt, 99, 0); err != nil || g.logits != want {
				t.Errorf("%s: span at %d: other logits: %v", kind, at, err)
			}
			g = kinds(kind)
			if err := attach(t, store, g, kit.Small).Prefill(ctx, prompt, 0, 0); err == nil || g.decode != 0 {
				t.Errorf("without TokenSpans: %v, %d tokens were evaluated", err, g.decode)
			}
			prompt.Spans[0] = kv.Span{Start: min(at, 98), Len: 2}
			if err := s.Prefill(ctx, prompt, 0, 1); err == nil {
				t.Error("a span of two tokens was evaluated")
			}
		}
	}
}
