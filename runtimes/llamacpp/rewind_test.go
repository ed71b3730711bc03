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

// rewound is a window cache as llama.cpp has it: a ring a little longer than the window, or with room for all. Rows that lack something differ a little.
func rewound(full bool) *fake {
	f := kinds("window")
	f.full, f.ring, f.alike = full, 32, true
	return f
}

// logitsOf are those behind tokens that were never restored and never taken back.
func logitsOf(t kit.Fataler, tokens []kv.Token) uint64 {
	f := rewound(false)
	f.library()
	if err := f.Decode(tokens, 0, 0); err != nil {
		t.Fatalf("%v", err)
	}
	return f.logits
}

// Only the window before the end of a restored prefix is there. What is evaluated further back would see a part of its window: it is
// refused, by Prefill before it is evaluated, and by Save and Capture if the caller evaluated it.
func TestBackBehindARestore(t *testing.T) {
	ctx := context.Background()
	tokens := make([]kv.Token, 200)
	for i := range tokens {
		tokens[i] = kv.Token(i % 7)
	}
	other := append(append([]kv.Token(nil), tokens[:185]...), 9, 9, 9, 9)
	for _, full := range []bool{false, true} {
		store := kit.OpenStore(t)
		kit.EvaluateAndSave(t, attach(t, store, rewound(full), nil), kv.Tokens(tokens...), 0, 0)
		f := rewound(full)
		s := attach(t, store, f, nil)
		restore := func() {
			t.Helper()
			f.cut(0, 0)
			if got, err := s.Restore(ctx, kv.Tokens(tokens...), 0); err != nil || got.Tokens != 199 {
				t.Fatal(got, err)
			}
		}
		restore()
		f.cut(0, 185)
		f.decode = 0
		kit.WantLineage(t, "Prefill", s.Prefill(ctx, kv.Tokens(other...), 185, 0), 185)
		if f.decode > 0 {
			t.Errorf("%d tokens were evaluated", f.decode)
		}

		restore() // a loop of the caller's own, who says so
		f.cut(0, 185)
		kit.WantLineage(t, "Truncate", s.Truncate(0, 185), 185)
		if err := f.Decode(other[185:], 185, 0); err != nil {
			t.Fatal(err)
		}
		kit.WantLineage(t, "Capture", s.Capture(ctx, kv.Tokens(other...), 0), 185)
		_, err := s.Save(ctx, kv.Tokens(other...), 0)
		kit.WantLineage(t, "Save", err, 185)
		kit.WantLineage(t, "Prefill behind it", s.Prefill(ctx, kv.Tokens(append(other[:189:189], 1)...), 189, 0), 185)
		if _, err := s.Save(ctx, kv.Tokens(other[:185]...), 0); err != nil {
			t.Error("what lies before:", err)
		}

		restore() // who has saved what lies before in between, as the error says
		f.cut(0, 180)
		if _, err := s.Save(ctx, kv.Tokens(tokens[:180]...), 0); err != nil {
			t.Error(err)
		}
		if err := f.Decode([]kv.Token{9, 9, 9}, 180, 0); err != nil {
			t.Fatal(err)
		}
		_, err = s.Save(ctx, kv.Tokens(append(tokens[:180:180], 9, 9, 9)...), 0)
		kit.WantLineage(t, "Save, not told", err, 180)

		restore() // who says so afterwards
		f.cut(0, 185)
		if err := f.Decode(other[185:], 185, 0); err != nil {
			t.Fatal(err)
		}
		kit.WantLineage(t, "Truncate afterwards", s.Truncate(0, 185), 185)

		restore() // and who does not go back, or starts again
		if err := s.Prefill(ctx, kv.Tokens(tokens...), 199, 0); err != nil {
			t.Error(err)
		}
		f.cut(0, 0)
		if err := s.Prefill(ctx, kv.Tokens(other...), 0, 0); err != nil {
			t.Error(err)
		}
		if f.logits != logitsOf(t, other) {
			t.Error("other logits")
		}
	}
}

// The same of a model whose states are not cut: a state is of use only if it has the whole window before the token that comes next.
func TestOpaqueBackBehindARestore(t *testing.T) {
	ctx := context.Background()
	opaque := func(o *llamacpp.Options) { o.OpaqueOnly = true }
	tokens := make([]kv.Token, 200)
	for i := range tokens {
		tokens[i] = kv.Token(i % 7)
	}
	for _, full := range []bool{false, true} {
		store := kit.OpenStore(t)
		kit.EvaluateAndSave(t, attach(t, store, rewound(full), opaque), kv.Tokens(tokens...), 0, 0)
		f := rewound(full)
		s := attach(t, store, f, opaque)
		got, err := s.Restore(ctx, kv.Tokens(tokens...), 0)
		if err != nil || got.Tokens < 190 {
			t.Fatal(got, err)
		}
		other := append(append([]kv.Token(nil), tokens[:186]...), 9, 9, 9, 9)
		f.cut(0, 186)
		f.decode = 0
		kit.WantLineage(t, "Prefill", s.Prefill(ctx, kv.Tokens(other...), 186, 0), 186)
		if f.decode > 0 {
			t.Errorf("%d tokens were evaluated", f.decode)
		}
		_, err = s.Save(ctx, kv.Tokens(tokens[:186]...), 0)
		kit.WantLineage(t, "Save where it was cut", err, 186)
		f.cut(0, 180)
		kit.WantLineage(t, "Prefill further back", s.Prefill(ctx, kv.Tokens(append(tokens[:180:180], 9)...), 180, 0), 180)
		if err := f.Decode([]kv.Token{9, 9, 9}, 180, 0); err != nil {
			t.Fatal(err)
		}
		_, err = s.Save(ctx, kv.Tokens(append(tokens[:180:180], 9, 9, 9)...), 0)
		kit.WantLineage(t, "Save behind what the caller evaluated", err, 180)

		f.cut(0, 27) // no row of the window is left
		if err := s.Truncate(0, 0); err != nil {
			t.Error(err)
		}
		if err := f.Decode(tokens[27:30], 27, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Capture(ctx, kv.Tokens(tokens[:30]...), 0); err != nil {
			t.Error(err)
		}
		_, err = s.Save(ctx, kv.Tokens(tokens[:30]...), 0)
		kit.WantLineage(t, "Save behind rows that are not there", err, 30)
		f.cut(0, 0)
		if err := s.Prefill(ctx, kv.Tokens(other...), 0, 0); err != nil {
			t.Error(err)
		}
		if f.logits != logitsOf(t, other) {
			t.Error("other logits")
		}
	}
}

// Whatever a caller takes back and evaluates again, what Prefill evaluates has the logits that it has in an empty cache; and what Save takes has
// them when it is restored, also if the caller goes on in spite of an error.
func TestRewinds(t *testing.T) {
	ctx := context.Background()
	store, chat := kit.OpenStore(t), int32(0)
	rapid.Check(t, func(t *rapid.T) {
		chat++
		full, whole := rapid.Bool().Draw(t, "room for all"), rapid.Bool().Draw(t, "whole states")
		f := rewound(full)
		kept := func(o *llamacpp.Options) { o.OpaqueOnly = whole }
		s := attach(t, store, f, kept)
		var tokens []kv.Token
		wrong := false // what the sequence holds, since the caller went on in spite of an error
		save := func(tokens []kv.Token) {
			if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil && !wrong {
				t.Fatalf("%v", err)
			}
			g := rewound(full)
			more := append(append([]kv.Token(nil), tokens...), 9)
			got, err := attach(t, store, g, kept).Restore(ctx, kv.Tokens(more...), 0)
			if err != nil {
				t.Fatalf("%v", err)
			}
			if err := g.Decode(more[got.Tokens:], got.Tokens, 0); err != nil {
				t.Fatalf("%v", err)
			}
			if g.logits != logitsOf(t, more) {
				t.Fatalf("what was saved of %d tokens gives other logits", len(tokens))
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "turns") {
			how := rapid.SampledFrom([]string{"prefill", "own loop", "own loop, whatever it is told", "the same tokens, not told", "restore", "save"}).Draw(t, "how")
			n := rapid.IntRange(0, len(tokens)).Draw(t, "cut to")
			if back := rapid.IntRange(0, 40).Draw(t, "back"); rapid.Bool().Draw(t, "a little") {
				n = max(0, len(tokens)-back)
			}
			next := append(append([]kv.Token(nil), tokens[:n]...), rapid.SliceOfN(rapid.Int32Range(0, 3), 1, 60).Draw(t, "more")...)
			next[0] = chat
			if how == "save" {
				if len(tokens) > 0 {
					save(tokens)
				}
				continue
			}
			if how == "restore" {
				f.cut(0, 0)
				got, err := s.Restore(ctx, kv.Tokens(next...), 0)
				if err != nil {
					t.Fatalf("%v", err)
				}
				if err := s.Prefill(ctx, kv.Tokens(next...), got.Tokens, 0); err != nil {
					t.Fatalf("%v", err)
				}
				tokens, wrong = next, false
				continue
			}
			if how == "the same tokens, not told" && !full { // rows of the ring may go that nobody looked at
				continue
			}
			f.cut(0, n)
			if n == 0 {
				wrong = false
			}
			if how == "the same tokens, not told" {
				if err := f.Decode(tokens[n:], n, 0); err != nil {
					t.Fatalf("%v", err)
				}
				wrong = wrong || n > 0 // it may be
				continue
			}
			if n > 0 && rapid.Bool().Draw(t, "saved there") {
				was := wrong
				wrong = true // there may be no row of the window
				save(tokens[:n])
				wrong = was
			}
			var err error
			if how == "prefill" {
				err = s.Prefill(ctx, kv.Tokens(next...), n, 0)
			} else {
				err = s.Truncate(0, n)
				for at := n; at < len(next) && (err == nil || how != "own loop"); at = min(len(next), at+s.BatchTokens()) {
					end := min(len(next), at+s.BatchTokens())
					if err := f.Decode(next[at:end], at, 0); err != nil {
						t.Fatalf("%v", err)
					}
					err = errors.Join(err, s.Capture(ctx, kv.Tokens(next[:end]...), 0))
				}
			}
			tokens = next
			switch {
			case err == nil && !wrong:
				if f.logits != logitsOf(t, tokens) {
					t.Fatalf("%s from %d: other logits than in an empty cache", how, n)
				}
			case err != nil && !errors.Is(err, llamacpp.ErrLineage) && !errors.Is(err, llamacpp.ErrPositions):
				t.Fatalf("%v", err)
			case err != nil && how == "own loop, whatever it is told":
				wrong = true
			case err != nil:
				f.cut(0, 0)
				delete(f.seqs, 0)
				tokens, wrong = nil, false
			}
		}
		if len(tokens) > 0 {
			save(tokens)
		}
	})
}

// Where no row of a window layer is left, llama.cpp calls a sequence empty that has rows of other layers, and takes tokens at any position.
func TestBackBehindAllWindows(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	tokens := make([]kv.Token, 200)
	for i := range tokens {
		tokens[i] = kv.Token(i % 7)
	}
	kit.EvaluateAndSave(t, attach(t, store, rewound(true), nil), kv.Tokens(tokens...), 0, 0)
	other := append(append([]kv.Token(nil), tokens[:100]...), 9, 9, 9, 9)
	for _, told := range []bool{true, false} {
		f := rewound(true)
		s := attach(t, store, f, nil)
		if got, err := s.Restore(ctx, kv.Tokens(tokens...), 0); err != nil || got.Tokens != 199 {
			t.Fatal(got, err)
		}
		f.cut(0, 100)
		if told {
			kit.WantLineage(t, "Truncate", s.Truncate(0, 100), 0)
		}
		if err := f.Decode(other[100:], 100, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Save(ctx, kv.Tokens(other...), 0); !errors.Is(err, llamacpp.ErrLineage) && !errors.Is(err, llamacpp.ErrPositions) {
			t.Errorf("told %v: %v", told, err)
		}
		// And what it has does not get into another prompt, nor into what the model is known by.
		f.cut(0, 100)
		if err := s.Recheck(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Prefill(ctx, kv.Tokens(other...), 0, 0); err != nil {
			t.Error(err)
		}
		if f.logits != logitsOf(t, other) {
			t.Error("other logits")
		}
	}
}
