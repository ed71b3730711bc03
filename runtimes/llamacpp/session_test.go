package llamacpp_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/piecesize"
)

// Whatever was saved before, a prompt that is restored and evaluated from there gives the logits of one that was
// evaluated from its start, to the bit, and what it shares with a saved prompt is not evaluated again.
func TestRestoredIsAsIfEvaluated(t *testing.T) {
	ctx := context.Background()
	for _, kind := range kindNames {
		t.Run(kind, func(t *testing.T) {
			store := kit.OpenStore(t)
			rapid.Check(t, func(t *rapid.T) {
				block := rapid.SampledFrom([]int{0, 16, 32}).Draw(t, "block")
				change := func(o *llamacpp.Options) { o.BlockTokens = block }
				tokens := rapid.SliceOfN(rapid.Int32Range(0, 2), 17, 200).Draw(t, "tokens")
				tokens[0] = rapid.Int32().Draw(t, "first token") // a prompt of its own in the shared store
				sequence := rapid.IntRange(0, 2).Draw(t, "sequence")

				f := kinds(kind)
				s := attach(t, store, f, change)
				if s.Mode() != llamacpp.Rows {
					t.Fatalf("mode %v: %s", s.Mode(), s.Why())
				}
				saved := kv.Tokens(tokens...)
				if err := s.Prefill(ctx, saved, 0, sequence); err != nil {
					t.Fatalf("prefill: %v", err)
				}
				if _, err := s.Save(ctx, saved, sequence); err != nil {
					t.Fatalf("save: %v", err)
				}

				// another prompt that shares the first tokens, in another context and sequence
				shared := rapid.IntRange(0, len(tokens)).Draw(t, "shared")
				other := append(append([]kv.Token(nil), tokens[:shared]...), rapid.SliceOfN(rapid.Int32Range(3, 5), 1, 90).Draw(t, "rest")...)
				prompt := kv.Tokens(other...)
				g := kinds(kind)
				s2 := attach(t, store, g, change)
				defer piecesize.Set(rapid.SampledFrom([]int{1, 300, 1000, 4 << 20}).Draw(t, "piece"))()
				sequence = rapid.IntRange(0, 2).Draw(t, "other sequence")
				got, err := s2.Restore(ctx, prompt, sequence)
				if err != nil {
					t.Fatalf("restore: %v", err)
				}
				want := min(shared, len(other)-1)
				if want < kv.OpeningTokens {
					want = 0
				}
				if got.Tokens != want {
					t.Fatalf("restored %d tokens, shared are %d of %d: %v", got.Tokens, shared, len(other), got.Reason)
				}
				if err := s2.Prefill(ctx, prompt, got.Tokens, sequence); err != nil {
					t.Fatalf("prefill: %v", err)
				}
				if got.Tokens > 0 && kind == "streams" { // has what was put off done
					g.decode--
				}
				if g.decode != len(other)-got.Tokens {
					t.Fatalf("%d tokens were evaluated, %d of %d were restored", g.decode, got.Tokens, len(other))
				}
				plain := kinds(kind)
				plain.library()
				if err := plain.Decode(other, 0, sequence); err != nil {
					t.Fatalf("%v", err)
				}
				if g.logits != plain.logits {
					t.Fatalf("logits differ after a restore of %d of %d tokens", got.Tokens, len(other))
				}
				if _, err := s2.Save(ctx, prompt, sequence); err != nil {
					t.Fatalf("save: %v", err)
				}
				// and once more, from what a restored sequence saved
				h := kinds(kind)
				s3 := attach(t, store, h, change)
				again, err := s3.Restore(ctx, prompt, 0)
				if err != nil || again.Tokens != max(0, len(other)-1) && len(other) > kv.OpeningTokens {
					t.Fatalf("restored %d of %d tokens: %v %v", again.Tokens, len(other), again.Reason, err)
				}
				if err := s3.Prefill(ctx, prompt, again.Tokens, 0); err != nil {
					t.Fatalf("prefill: %v", err)
				}
				if h.logits != plain.logits {
					t.Fatalf("logits differ after the second restore")
				}
			})
		})
	}
}

// The test above can fail: a context that got other rows gives other logits.
func TestFakeNoticesWrongRows(t *testing.T) {
	one, two := kinds("plain"), kinds("plain")
	one.library()
	two.library()
	for _, f := range []*fake{one, two} {
		if err := f.Decode([]kv.Token{1, 2, 3}, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	two.seqs[0][1].v[2][5] ^= 1
	for _, f := range []*fake{one, two} {
		if err := f.Decode([]kv.Token{4}, 3, 0); err != nil {
			t.Fatal(err)
		}
	}
	if one.logits == two.logits {
		t.Error("a changed bit of one row changes nothing")
	}
}

// Flash attention on and off are one model.
func TestLayoutsOfVShareRows(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	on, off := kinds("plain"), kinds("channel-major")
	s, s2 := attach(t, store, on, nil), attach(t, store, off, nil)
	if s.Model().Fingerprint() != s2.Model().Fingerprint() {
		d, e := s.Model().Descriptor(), s2.Model().Descriptor()
		t.Fatalf("fingerprints differ: %v", d.Diff(&e))
	}
	prompt := kv.Tokens(make([]kv.Token, 100)...)
	kit.EvaluateAndSave(t, s, prompt, 0, 0)
	got, err := s2.Restore(ctx, prompt, 0)
	if err != nil || got.Tokens != 99 {
		t.Fatalf("restored %d: %v %v", got.Tokens, got.Reason, err)
	}
	if err := s2.Prefill(ctx, prompt, 99, 0); err != nil {
		t.Fatal(err)
	}
	if on.logits != off.logits {
		t.Error("logits differ")
	}
}

func TestAlign(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	f := kinds("window")
	s := attach(t, store, f, func(o *llamacpp.Options) { o.Align = 24 })
	tokens := make([]kv.Token, 100)
	kit.EvaluateAndSave(t, s, kv.Tokens(tokens...), 0, 0)
	logits := f.logits
	for n, want := range map[int]int{100: 96, 97: 96, 96: 72, 60: 48, 20: 0} {
		delete(f.seqs, 0)
		got, err := s.Restore(ctx, kv.Tokens(tokens[:n]...), 0)
		if err != nil || got.Tokens != want {
			t.Errorf("prompt of %d: restored %d, want %d: %v", n, got.Tokens, want, err)
		}
		if err := s.Prefill(ctx, kv.Tokens(tokens...), got.Tokens, 0); err != nil {
			t.Fatal(err)
		}
		if f.logits != logits {
			t.Errorf("prompt of %d, restored %d: logits differ", n, got.Tokens)
		}
	}
}
