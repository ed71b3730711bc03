package llamacpp_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
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

// Without a look at the window during the prefill, only the end is restorable, and no position is restored wrongly.
func TestWindowNotCaptured(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	f := kinds("window")
	s := attach(t, store, f, nil)
	tokens := make([]kv.Token, 150)
	for i := range tokens {
		tokens[i] = kv.Token(i % 7)
	}
	prompt := kv.Tokens(tokens...)
	if err := f.Decode(tokens, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(ctx, prompt, 0); err != nil {
		t.Fatal(err)
	}
	for shared, want := range map[int]int{150: 149, 149: 149, 148: 0, 100: 0} {
		g := kinds("window")
		s2 := attach(t, store, g, nil)
		other := append(append([]kv.Token(nil), tokens[:shared]...), 9)
		if shared == 150 {
			other = tokens
		}
		got, err := s2.Restore(ctx, kv.Tokens(other...), 0)
		if err != nil || got.Tokens != want {
			t.Fatalf("shared %d: restored %d, want %d: %v %v", shared, got.Tokens, want, got.Reason, err)
		}
		if want == 0 && got.Reason.Code != db.WindowMissing {
			t.Errorf("shared %d: reason %v", shared, got.Reason)
		}
	}
}

// Rows that were captured of one prompt are never stored for another.
func TestCapturesBelongToTheirPrompt(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	f := kinds("window")
	s := attach(t, store, f, nil)
	run := func(s *llamacpp.Session, f *fake, tokens []kv.Token) {
		t.Helper()
		delete(f.seqs, 0)
		if err := s.Prefill(ctx, kv.Tokens(tokens...), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	one, two := make([]kv.Token, 120), make([]kv.Token, 120)
	two[0] = 1
	run(s, f, one)
	run(s, f, two)
	if _, err := s.Save(ctx, kv.Tokens(two...), 0); err != nil {
		t.Fatal(err)
	}
	want := f.logits
	for _, n := range []int{40, 64, 119} {
		g := kinds("window")
		s2 := attach(t, store, g, nil)
		got, err := s2.Restore(ctx, kv.Tokens(two[:n+1]...), 0)
		if err != nil || got.Tokens != n {
			t.Fatalf("restored %d of %d: %v %v", got.Tokens, n, got.Reason, err)
		}
		if err := s2.Prefill(ctx, kv.Tokens(two...), n, 0); err != nil {
			t.Fatal(err)
		}
		if g.logits != want {
			t.Errorf("restored at %d: logits differ", n)
		}
	}
}

// A small bound on captured rows costs saves, not positions.
func TestCaptureBound(t *testing.T) {
	ctx := context.Background()
	for _, capture := range []int{0, 50} {
		store := kit.OpenStore(t)
		f := kinds("window")
		s := attach(t, store, f, func(o *llamacpp.Options) { o.CaptureBytes, o.CaptureTokens = 1, capture })
		tokens := make([]kv.Token, 150)
		kit.EvaluateAndSave(t, s, kv.Tokens(tokens...), 0, 0)
		want := f.logits
		for n := 16; n < 150; n += 9 {
			g := kinds("window")
			s2 := attach(t, store, g, nil)
			got, err := s2.Restore(ctx, kv.Tokens(tokens[:n+1]...), 0)
			if err != nil || capture == 0 && got.Tokens == 0 {
				t.Fatalf("restored %d of %d: %v %v", got.Tokens, n, got.Reason, err)
			}
			if err := s2.Prefill(ctx, kv.Tokens(tokens...), got.Tokens, 0); err != nil {
				t.Fatal(err)
			}
			if g.logits != want {
				t.Errorf("restored at %d: logits differ", got.Tokens)
			}
		}
	}
}

// The bound is that of all sequences together, and of the states on the way of a prompt.
func TestCaptureBoundOfAll(t *testing.T) {
	ctx := context.Background()
	tokens := [2]kv.Prompt{kv.Tokens(make([]kv.Token, 300)...), kv.Tokens(append([]kv.Token{1}, make([]kv.Token, 299)...)...)}
	for name, x := range map[string]struct {
		bytes int64
		want  [2]bool // what is stored without a Save
	}{"room for both": {1 << 20, [2]bool{}}, "room for one": {300 * (8 + 4) * 2 * 2 * 3 / 2, [2]bool{}}, "room for none": {1000, [2]bool{true, true}}} {
		store := kit.OpenStore(t)
		s := attach(t, store, kinds("window"), func(o *llamacpp.Options) { o.CaptureBytes, o.BlockTokens = x.bytes, 16 })
		var got [2]bool
		for i, p := range tokens {
			if err := s.Prefill(ctx, p, 0, i); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range tokens {
			n, _, err := s.Model().Probe(ctx, p, db.MatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got[i] = n > 0
		}
		if got != x.want {
			t.Errorf("%s: stored %v, want %v", name, got, x.want)
		}
	}
	for bytes, want := range map[int64]bool{1 << 20: true, 1000: false} {
		store := kit.OpenStore(t)
		s := attach(t, store, kinds("plain"), func(o *llamacpp.Options) { o.OpaqueOnly, o.CaptureBytes = true, bytes })
		kit.EvaluateAndSave(t, s, tokens[0], 0, 0)
		n, _, err := s.Model().Probe(ctx, tokens[0].Prefix(299), db.MatchOptions{})
		if err != nil || n > 0 != want {
			t.Errorf("%d bytes: a state at %d tokens: %v", bytes, n, err)
		}
	}
}

// A sequence that is idle, and holds nearly all that may be held, does not have others saved batch by batch. It is not saved itself: what its owner did
// with it meanwhile nobody knows.
func TestIdleSequenceAtTheBound(t *testing.T) {
	ctx := context.Background()
	idle, busy := kv.Tokens(make([]kv.Token, 995)...), kv.Tokens(append([]kv.Token{1}, make([]kv.Token, 799)...)...)
	refill := make([]kv.Token, 900)
	for i := range refill {
		refill[i] = kv.Token(7 + i)
	}
	read := map[string]int{}
	for _, sequence1 := range []string{"empty", "idle", "refilled"} {
		store, f := kit.OpenStore(t), kinds("window")
		s := attach(t, store, f, func(o *llamacpp.Options) { o.CaptureBytes = 1000 * (8 + 4) * 2 * 2 })
		if sequence1 != "empty" {
			if err := s.Prefill(ctx, idle, 0, 1); err != nil {
				t.Fatal(err)
			}
		}
		if sequence1 == "refilled" { // by a loop of one's own, before Reset
			f.cut(1, 0)
			if err := f.Decode(refill, 0, 1); err != nil {
				t.Fatal(err)
			}
		}
		f.read = 0
		if err := s.Prefill(ctx, busy, 0, 0); err != nil {
			t.Fatal(err)
		}
		read[sequence1] = f.read
		if n, _, err := s.Model().Probe(ctx, idle, db.MatchOptions{}); err != nil || n > 0 {
			t.Errorf("%s: %d tokens of the other sequence are stored, which nobody saved: %v", sequence1, n, err)
		}
		if sequence1 != "idle" {
			continue
		}
		if _, err := s.Save(ctx, idle, 1); err != nil {
			t.Fatal(err)
		}
		g := kinds("window")
		if got, err := attach(t, store, g, nil).Restore(ctx, idle, 0); err != nil || got.Tokens != 994 {
			t.Errorf("restored %d of the idle sequence: %v %v", got.Tokens, got.Reason, err)
		}
	}
	if read["idle"] > 3*read["empty"] {
		t.Errorf("%d bytes were read beside an idle sequence, %d without one", read["idle"], read["empty"])
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

// A session tells the store once a turn what it asked for, found, loaded, reused and evaluated, however many calls of Prefill that took; what
// was restored and not used is told as such.
func TestTurnsAreObserved(t *testing.T) {
	ctx := context.Background()
	var seen []db.Observation
	store := kit.OpenStoreAt(t, t.TempDir(), db.Options{Codec: quant.Raw, Observer: func(o db.Observation) { seen = append(seen, o) }})
	defer store.Close()
	f := kinds("plain")
	s := attach(t, store, f, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	told := func(what string, want ...db.Observation) {
		t.Helper()
		for i := range seen {
			if seen[i].Model != s.Model().Fingerprint() {
				t.Errorf("%s: of model %v", what, seen[i].Model)
			}
			if got := seen[i]; (got.Prefilled > 0) != (got.Prefill > 0) || (got.Reason.Code != db.NoReason) != (got.Load+got.Lookup > 0) {
				t.Errorf("%s: %+v: times without figures, or the other way round", what, got)
			}
			seen[i].Model, seen[i].Lookup, seen[i].Load, seen[i].Prefill, seen[i].Reason = kv.Fingerprint{}, 0, 0, 0, db.Reason{}
		}
		if !slices.Equal(seen, want) {
			t.Errorf("%s: told %+v, expected %+v", what, seen, want)
		}
		seen = nil
	}
	clear := func(sequence int) { delete(f.seqs, int32(sequence)); must(s.Reset(sequence)) }
	prompt := kv.Tokens(slices.Repeat([]kv.Token{1, 2, 3}, 40)...) // 120

	_, err := s.Restore(ctx, prompt, 0) // nothing is there
	must(err)
	must(s.Prefill(ctx, prompt.Prefix(119), 0, 0))
	must(s.Prefill(ctx, prompt, 119, 0))
	_, err = s.Save(ctx, prompt, 0)
	must(err)
	told("before the end of the turn")
	s.Observe(0, 7, time.Second)
	told("the first turn", db.Observation{Asked: 120, Prefilled: 120, Decoded: 7, Decode: time.Second})

	longer := kv.Tokens(append(slices.Clone(prompt.Tokens), 5, 5, 5, 5)...)
	must(f.Decode([]kv.Token{5, 5}, 120, 0)) // the caller's: an answer of two tokens
	must(s.Prefill(ctx, longer, 122, 0))
	clear(0)
	told("a turn in the runtime's memory", db.Observation{Asked: 124, Reused: 122, Prefilled: 2})

	_, err = s.Restore(ctx, longer, 1)
	must(err)
	must(s.Prefill(ctx, longer, 120, 1))
	must(f.Decode([]kv.Token{6, 6, 6}, 124, 1))
	more := kv.Tokens(append(slices.Clone(longer.Tokens), 6, 6, 6, 9)...)
	must(s.Prefill(ctx, more, 127, 1)) // nobody said that the turn had ended
	told("a restored turn", db.Observation{Asked: 124, Found: 120, Loaded: 120, Reused: 120, Prefilled: 4, Decoded: 3})
	clear(1)
	told("the next", db.Observation{Asked: 128, Reused: 127, Prefilled: 1})

	_, err = s.Restore(ctx, longer, 2)
	must(err)
	clear(2) // the user turned to another conversation
	told("restored in vain", db.Observation{Asked: 124, Found: 120, Loaded: 120, Unused: 120})

	_, err = s.Restore(ctx, longer, 2)
	must(err)
	must(f.Decode(longer.Tokens[120:], 120, 2)) // evaluated without the session
	s.Observe(2, 1, 0)
	told("evaluated by the caller", db.Observation{Asked: 124, Found: 120, Loaded: 120, Reused: 120, Decoded: 1})
	clear(2)
	told("a sequence without a turn")

	st, err := store.Stats()
	must(err)
	if n := st.Turns; n.Observed != 6 || n.Asked != 120+124+124+128+124+124 || n.Loaded != 3*120 || n.Unused != 120 || n.Decoded != 11 {
		t.Errorf("counted: %+v", n)
	}
}
