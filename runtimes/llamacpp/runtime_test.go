package llamacpp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/conformance"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/piecesize"
)

// runtimeOf is a Runtime in a new context of that kind.
func runtimeOf(t kit.Fataler, store *db.Store, kind string) (*llamacpp.Runtime, *llamacpp.Session, *fake) {
	f := kinds(kind)
	f.full, f.sequences, f.contextLen = true, 9, 300
	s := attach(t, store, f, kit.Small)
	r, err := s.Runtime(llamacpp.RuntimeOptions{Decode: f.DecodeSteps, Logits: f.Logits})
	if err != nil {
		t.Fatalf("%v", err)
	}
	if m := r.Limits().Missing; m != "" {
		t.Fatalf("%s: %s", kind, m)
	}
	return r, s, f
}

// To the last bit, whatever the layout of states is, and in pieces of few rows.
func TestConformance(t *testing.T) {
	for _, kind := range kindNames {
		if kind == "streams" || kind == "windows only" { // refused; and there what lies before the window is not seen at all
			continue
		}
		for name, bytes := range map[string]int{"": 4 << 20, ", small pieces": 300} {
			t.Run(kind+name, func(t *testing.T) {
				defer piecesize.Set(bytes)()
				store := kit.OpenStore(t)
				conformance.Run(t, conformance.Kit{Vocabulary: 64, New: func(t testing.TB) chat.Runtime {
					r, _, _ := runtimeOf(t, store, kind)
					return r
				}})
			})
		}
	}
}

// More steps than a batch has are as one call, with the logits of any of them; if one part of them fails, nothing has changed.
func TestDecodeInParts(t *testing.T) {
	ctx, store := context.Background(), kit.OpenStore(t)
	for _, kind := range []string{"plain", "window"} {
		var steps []kv.Step
		for i := range 45 {
			steps = append(steps, kv.Step{Token: 1, Pos: i, Logits: i%2 == 0}, kv.Step{Token: 2, Pos: 3000 + i, Seq: 1, Logits: i%3 == 0})
		}
		one, _, _ := runtimeOf(t, store, kind)
		var want [][]float32
		for _, step := range steps {
			if err := one.Decode(ctx, []kv.Step{step}); err != nil {
				t.Fatal(err)
			}
			want = append(want, slices.Clone(one.Logits(0)))
		}
		r, _, f := runtimeOf(t, store, kind)
		for part := range 4 { // the last one of 3 does not fail
			calls, decode := 0, f.DecodeSteps
			f.instead = func(steps []kv.Step) error {
				if calls++; calls > part {
					return kv.ErrFull
				}
				return decode(steps)
			}
			if err := r.Decode(ctx, steps); part < 3 && !errors.Is(err, kv.ErrFull) || len(f.seqs) != 0 && err != nil {
				t.Fatalf("%s: part %d fails: %v, %d sequences have rows", kind, part, err, len(f.seqs))
			}
			for seq := range 2 {
				if err := r.Remove(seq, kv.Range{End: 4000}); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.instead = nil
		if err := r.Decode(ctx, steps); err != nil {
			t.Fatal(err)
		}
		for i := range steps {
			if got := r.Logits(i); !slices.Equal(got, want[i]) {
				t.Errorf("%s: step %d has other logits", kind, i)
			}
		}
	}
}

// All sequences are the Runtime's: what else would change them is refused, before and afterwards.
func TestRuntimeOwnsSequences(t *testing.T) {
	ctx, store := context.Background(), kit.OpenStore(t)
	f := kinds("plain")
	s := attach(t, store, f, nil)
	o := llamacpp.RuntimeOptions{Decode: f.DecodeSteps, Logits: f.Logits}
	for _, o := range []llamacpp.RuntimeOptions{{}, {Decode: f.DecodeSteps}, {Logits: f.Logits}} {
		if _, err := s.Runtime(o); !errors.Is(err, llamacpp.ErrNeedDecode) {
			t.Error(err)
		}
	}
	prompt := kv.Tokens(make([]kv.Token, 40)...)
	if err := s.Prefill(ctx, prompt, 0, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Runtime(o); !errors.Is(err, llamacpp.ErrNotEmpty) {
		t.Error(err)
	}
	clear(f.seqs)
	r, err := s.Runtime(o)
	if err != nil || r.Limits().Sequences != 2 {
		t.Fatal(err, r.Limits())
	}
	_, again := s.Runtime(o)
	_, saved := s.Save(ctx, prompt, 0)
	_, restored := s.Restore(ctx, prompt, 0)
	for name, err := range map[string]error{
		"a second one": again, "save": saved, "restore": restored, "prefill": s.Prefill(ctx, prompt, 0, 0), "capture": s.Capture(ctx, prompt, 0),
		"reset": s.Reset(0), "truncate": s.Truncate(0, 0),
		"the sequence for rows": r.Copy(0, 2, kv.Range{End: 1}), "below 0": r.Remove(-1, kv.Range{End: 1}),
	} {
		if !errors.Is(err, llamacpp.ErrSequence) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Decode(ctx, []kv.Step{{Token: 1}, {Token: 2, Pos: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Recheck(ctx); err != nil || f.max(0) != 1 || f.max(2) != -1 {
		t.Errorf("sequence 0 ends at %d, 2 at %d: %v", f.max(0), f.max(2), err)
	}
	delete(f.seqs[0], 1) // beside the Runtime
	if err := r.Decode(ctx, []kv.Step{{Token: 3, Pos: 2}}); !errors.Is(err, llamacpp.ErrState) {
		t.Error(err)
	}
	var none context.Context
	_, loaded := r.Load(none, prompt, 0, nil)
	for name, err := range map[string]error{"decode": r.Decode(none, nil), "load": loaded, "store": r.Store(none, prompt, 0, kv.Range{})} {
		if err == nil {
			t.Errorf("%s without a context", name)
		}
	}
}

// Rows of other tokens, or of other adapters, than the prompt's are not stored under its keys.
func TestStoreOfOtherTokens(t *testing.T) {
	ctx, store := context.Background(), kit.OpenStore(t)
	r, _, _ := runtimeOf(t, store, "window")
	tokens := make([]kv.Token, 60)
	for i := range tokens {
		tokens[i] = kv.Token(i)
	}
	var steps []kv.Step
	for i, token := range tokens {
		steps = append(steps, kv.Step{Token: token, Pos: i})
	}
	if err := r.Decode(ctx, steps); err != nil {
		t.Fatal(err)
	}
	if err := r.Store(ctx, kv.Tokens(tokens...), 0, kv.Range{Start: 0, End: 30}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 29, 30, 59} {
		other := slices.Clone(tokens)
		other[at]++
		kit.WantLineage(t, "another token", r.Store(ctx, kv.Tokens(other...), 0, kv.Range{Start: 30, End: 60}), at)
	}
	adapted := kv.Prompt{Tokens: tokens, Adapters: []kv.Adapter{{Hash: kv.Hash{1}, Scale: 1}}}
	_, loaded := r.Load(ctx, adapted, 1, []kv.Range{{End: 30}})
	for _, err := range []error{loaded, r.Store(ctx, adapted, 0, kv.Range{Start: 30, End: 60})} {
		if !errors.Is(err, llamacpp.ErrIdentity) {
			t.Errorf("adapters that are not set: %v", err)
		}
	}
	// What was hidden from a token says the prompt; the rows before it need not be there any more.
	if err := r.Remove(0, kv.Range{Start: 4, End: 30}); err != nil {
		t.Fatal(err)
	}
	var missing *db.NotStoredError
	if err := r.Store(ctx, kv.Prompt{Tokens: tokens, Spans: []kv.Span{{Start: 20, Len: 1}}}, 0, kv.Range{Start: 30, End: 60}); !errors.As(err, &missing) {
		t.Errorf("rows before are nowhere: %v", err)
	}
	spanned := kv.Prompt{Tokens: tokens, Spans: []kv.Span{{Start: 30, Len: 1}, {Start: 50, Len: 9}}}
	for _, end := range []int{51, 58, 61} {
		if err := r.Store(ctx, spanned, 0, kv.Range{Start: 30, End: end}); !errors.Is(err, llamacpp.ErrPositions) {
			t.Errorf("to %d: %v", end, err)
		}
	}
	if err := r.Store(ctx, spanned, 0, kv.Range{Start: 30, End: 60}); err != nil {
		t.Error(err)
	}
}

// Damage shortens what a load gives: what it says is there, to the bit, and nothing else.
func TestLoadOfDamaged(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, 2))
	short := 0
	for _, kind := range []string{"plain", "window"} {
		for range 12 {
			store := kit.OpenStore(t)
			r, _, f := runtimeOf(t, store, kind)
			tokens := make([]kv.Token, 120)
			var steps []kv.Step
			for i := range tokens {
				tokens[i] = kv.Token(rng.IntN(64))
				steps = append(steps, kv.Step{Token: tokens[i], Pos: i})
			}
			if err := errors.Join(r.Decode(ctx, steps), r.Store(ctx, kv.Tokens(tokens...), 0, kv.Range{End: 120})); err != nil {
				t.Fatal(err)
			}
			undo := piecesize.Set(300)
			kit.Flip(t, store.Dir(), rng)
			s, _, g := runtimeOf(t, store, kind)
			ranges := []kv.Range{{Start: 70, End: 120}, {Start: 0, End: 40}}
			n, err := s.Load(ctx, kv.Tokens(tokens...), 1, ranges)
			undo()
			if err != nil {
				t.Fatal(err)
			}
			if n < 120 {
				short++
			}
			for p := range int32(120) {
				c, want := g.seqs[1][p], p < 40 || p >= 70
				if want = want && int(p) < n; (c != nil) != want {
					t.Fatalf("%s: %d tokens are said, position %d is there: %t", kind, n, p, c != nil)
				}
				for l := range f.layers {
					if c != nil && (!slices.Equal(c.k[l], f.seqs[0][p].k[l]) || !slices.Equal(c.v[l], f.seqs[0][p].v[l])) {
						t.Fatalf("%s: position %d has another row in layer %d", kind, p, l)
					}
				}
			}
		}
	}
	if short == 0 {
		t.Error("no damage was ever met: the test shows nothing")
	}
}
