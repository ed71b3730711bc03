package llamacpp_test

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// shift is llama_memory_seq_rm of [from, to), llama_memory_seq_add of all behind it and what a decode makes of K then.
func (f *fake) shift(seq, from, to int32) {
	last := f.max(seq)
	for p := from; p <= last; p++ {
		c := f.seqs[seq][p]
		delete(f.seqs[seq], p)
		if p < to {
			continue
		}
		for l, k := range c.k {
			for i := range len(k) / 2 { // of latents, the first half carries the position
				k[i] ^= byte(to-from) ^ byte(l+1)
			}
		}
		f.seqs[seq][p-(to-from)] = c
	}
}

// cut is llama_memory_seq_rm of everything from n on.
func (f *fake) cut(seq int32, n int) {
	for p := range f.seqs[seq] {
		if p >= int32(n) {
			delete(f.seqs[seq], p)
		}
	}
}

// A shifted cache is never saved: not for the tokens that it kept, not for those that it had, and not behind what was
// evaluated since. What lies before the shift can be saved. A cache that was emptied and filled again is as good as new.
func TestShiftIsNeverSaved(t *testing.T) {
	ctx := context.Background()
	store, chat := kit.OpenStore(t), int32(100)
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"plain", "channel-major", "latent", "window", "reordered", "streams"}).Draw(t, "kind")
		seen := rapid.SampledFrom([]string{"evaluated", "saved", "restored"}).Draw(t, "seen")
		tokens := rapid.SliceOfN(rapid.Int32Range(0, 5), 60, 120).Draw(t, "tokens")
		chat++
		tokens[0] = chat // a prompt of its own in the shared store
		prompt := kv.Tokens(tokens...)
		f := kinds(kind)
		s := attach(t, store, f, nil)
		if seen != "evaluated" {
			if err := s.Prefill(ctx, prompt, 0, 0); err != nil {
				t.Fatalf("%v", err)
			}
			if _, err := s.Save(ctx, prompt, 0); err != nil {
				t.Fatalf("%v", err)
			}
		}
		from := 0
		if seen == "restored" {
			f = kinds(kind)
			s = attach(t, store, f, nil)
			got, err := s.Restore(ctx, prompt, 0)
			if err != nil || got.Tokens != len(tokens)-1 {
				t.Fatalf("restored %d of %d: %v", got.Tokens, len(tokens), err)
			}
			from = got.Tokens
		}
		if seen != "saved" {
			if err := s.Prefill(ctx, prompt, from, 0); err != nil {
				t.Fatalf("%v", err)
			}
		}
		k := rapid.IntRange(0, len(tokens)-20).Draw(t, "kept")
		to := rapid.IntRange(k+1, len(tokens)-10).Draw(t, "removed up to")
		if tokens[k] == tokens[to] { // the kept tokens would contradict what is known only somewhere behind k
			t.Skip()
		}
		f.shift(0, int32(k), int32(to))
		kept := kit.Without(tokens, k, to)
		_, err := s.Save(ctx, kv.Tokens(kept...), 0)
		kit.WantLineage(t, "at once", err, k)
		more := rapid.SliceOfN(rapid.Int32Range(0, 5), 1, 80).Draw(t, "more")
		kept = append(kept, more...)
		if rapid.Bool().Draw(t, "evaluated by Prefill") {
			if err := s.Prefill(ctx, kv.Tokens(kept...), len(kept)-len(more), 0); err != nil {
				t.Fatalf("evaluation behind a shift: %v", err)
			}
		} else if err := f.Decode(more, len(kept)-len(more), 0); err != nil {
			t.Fatalf("%v", err)
		}
		_, err = s.Save(ctx, kv.Tokens(kept...), 0)
		kit.WantLineage(t, "after a decode", err, k)
		kit.WantLineage(t, "capture", s.Capture(ctx, kv.Tokens(kept...), 0), k)
		if k > 0 && kind != "window" {
			if _, err := s.Save(ctx, kv.Tokens(kept[:k]...), 0); err != nil {
				t.Fatalf("what lies before the shift: %v", err)
			}
		}
		if seen == "saved" { // the prompt as it was is a lie as well, but stored: the cache is not looked at
			read := f.read
			if _, err := s.Save(ctx, prompt, 0); !errors.Is(err, llamacpp.ErrLineage) && (err != nil || f.read > read) {
				t.Fatalf("the prompt as it was: %d bytes read, %v", f.read-read, err)
			}
		}

		delete(f.seqs, 0)
		if err := f.Decode(kept, 0, 0); err != nil {
			t.Fatalf("%v", err)
		}
		if err := s.Reset(0); err != nil {
			t.Fatalf("%v", err)
		}
		if _, err := s.Save(ctx, kv.Tokens(kept...), 0); err != nil {
			t.Fatalf("after Reset: %v", err)
		}
	})
}

// Tokens that repeat themselves look the same after a shift: the rows do not.
func TestShiftOfRepeatedTokens(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	for _, restored := range []bool{false, true} {
		f := kinds("plain")
		s := attach(t, store, f, nil)
		tokens := make([]kv.Token, 100)
		for i := range tokens {
			tokens[i] = kv.Token(i % 10)
		}
		if !restored {
			kit.EvaluateAndSave(t, s, kv.Tokens(tokens...), 0, 0)
		} else if got, err := s.Restore(ctx, kv.Tokens(tokens...), 0); err != nil || got.Tokens != 99 {
			t.Fatal(got, err)
		}
		f.shift(0, 30, 50)
		n := int(f.max(0)) + 1
		more := append(append([]kv.Token(nil), tokens...), 5, 6, 7)
		if err := f.Decode(more[n:], n, 0); err != nil {
			t.Fatal(err)
		}
		_, err := s.Save(ctx, kv.Tokens(more...), 0)
		var l *llamacpp.LineageError
		if !errors.As(err, &l) || l.From < 30 || l.From > 100-32 { // what is stored before is not looked at
			t.Errorf("restored: %v: %v", restored, err)
		}
	}
}

// A prompt that is not that of the sequence is refused from where it parts.
func TestWrongPrompt(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []string{"plain", "window"} {
		f := kinds(kind)
		s := attach(t, kit.OpenStore(t), f, nil)
		tokens := make([]kv.Token, 100)
		if err := s.Prefill(ctx, kv.Tokens(tokens...), 0, 0); err != nil {
			t.Fatal(err)
		}
		wrong := append([]kv.Token(nil), tokens...)
		wrong[41] = 7
		_, err := s.Save(ctx, kv.Tokens(wrong...), 0)
		kit.WantLineage(t, kind, err, 41)
		adapted := kv.Tokens(tokens...)
		adapted.Adapters = []kv.Adapter{{Hash: kv.Hash{1}, Scale: 1}}
		_, err = s.Save(ctx, adapted, 0)
		kit.WantLineage(t, kind+" with an adapter", err, 0)
		image := kv.Tokens(tokens...)
		image.Spans = []kv.Span{{Start: 12, Len: 4, Hash: kv.Hash{1}}}
		_, err = s.Save(ctx, image, 0)
		kit.WantLineage(t, kind+" with an image", err, 12)
		scoped := kv.Tokens(tokens...)
		scoped.Scope, scoped.ScopeStart = "me", 50
		for _, p := range []kv.Prompt{kv.Tokens(tokens...), scoped, kv.Tokens(wrong[:41]...)} {
			if _, err := s.Save(ctx, p, 0); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
}

// Honest edits are saved: through Prefill without a word, in a loop of the caller's own after Truncate.
func TestEdits(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []string{"plain", "channel-major", "latent"} {
		t.Run(kind, func(t *testing.T) {
			store, chat := kit.OpenStore(t), int32(0)
			rapid.Check(t, func(t *rapid.T) {
				chat++ // prompts of its own in the shared store
				f := kinds(kind)
				s := attach(t, store, f, nil)
				var tokens []kv.Token
				for range rapid.IntRange(1, 6).Draw(t, "edits") {
					n := rapid.IntRange(0, len(tokens)).Draw(t, "cut to")
					f.cut(0, n)
					tokens = append(append([]kv.Token(nil), tokens[:n]...), rapid.SliceOfN(rapid.Int32Range(0, 3), 1, 60).Draw(t, "more")...)
					tokens[0] = chat
					if rapid.Bool().Draw(t, "by Prefill") {
						if err := s.Prefill(ctx, kv.Tokens(tokens...), n, 0); err != nil {
							t.Fatalf("%v", err)
						}
					} else {
						if err := s.Truncate(0, n); err != nil {
							t.Fatalf("%v", err)
						}
						if err := f.Decode(tokens[n:], n, 0); err != nil {
							t.Fatalf("%v", err)
						}
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
				more := append(append([]kv.Token(nil), tokens...), 9)
				got, err := s2.Restore(ctx, kv.Tokens(more...), 0)
				if err != nil || got.Tokens != len(tokens) && len(tokens) >= kv.OpeningTokens {
					t.Fatalf("restored %d of %d: %v", got.Tokens, len(tokens), err)
				}
				if err := s2.Prefill(ctx, kv.Tokens(more...), got.Tokens, 0); err != nil {
					t.Fatalf("%v", err)
				}
				if err := f.Decode([]kv.Token{9}, len(tokens), 0); err != nil {
					t.Fatalf("%v", err)
				}
				if f.logits != g.logits {
					t.Fatalf("logits differ after a restore of %d tokens", got.Tokens)
				}
			})
		})
	}
	s := attach(t, kit.OpenStore(t), kinds("plain"), nil)
	for _, err := range []error{s.Reset(3), s.Reset(-1), s.Truncate(3, 0)} {
		if !errors.Is(err, llamacpp.ErrSequence) {
			t.Error(err)
		}
	}
}

// A prompt that was cut and evaluated again, without a word, to the same tokens is what it was; to others it is refused.
func TestUntoldEdits(t *testing.T) {
	ctx := context.Background()
	f := kinds("plain")
	s := attach(t, kit.OpenStore(t), f, nil)
	tokens := make([]kv.Token, 100)
	kit.EvaluateAndSave(t, s, kv.Tokens(tokens...), 0, 0)
	f.cut(0, 50)
	if err := f.Decode(tokens[50:], 50, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
		t.Error(err)
	}
	f.cut(0, 50)
	other := append([]kv.Token(nil), tokens...)
	other[60] = 5
	if err := f.Decode(other[50:], 50, 0); err != nil {
		t.Fatal(err)
	}
	_, err := s.Save(ctx, kv.Tokens(other...), 0)
	kit.WantLineage(t, "other tokens", err, 60)
	if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
		t.Errorf("the tokens as they were, which are stored: %v", err)
	}
	if err := s.Truncate(0, 50); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(ctx, kv.Tokens(other...), 0); err != nil {
		t.Error(err)
	}
}
