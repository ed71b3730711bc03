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

// rewound is a window cache as llama.cpp has it: a ring a little longer than the window, or with room for all.
func rewound(full bool) *fake {
	f := kinds("window")
	f.full, f.ring = full, 32
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
	other := append(append([]kv.Token(nil), tokens[:150]...), 9, 9, 9, 9)
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
		f.cut(0, 150)
		f.decode = 0
		kit.WantLineage(t, "Prefill", s.Prefill(ctx, kv.Tokens(other...), 150, 0), 150)
		if f.decode > 0 {
			t.Errorf("%d tokens were evaluated", f.decode)
		}

		restore() // a loop of the caller's own, who says so
		f.cut(0, 150)
		kit.WantLineage(t, "Truncate", s.Truncate(0, 150), 150)
		if err := f.Decode(other[150:], 150, 0); err != nil {
			t.Fatal(err)
		}
		kit.WantLineage(t, "Capture", s.Capture(ctx, kv.Tokens(other...), 0), 150)
		_, err := s.Save(ctx, kv.Tokens(other...), 0)
		kit.WantLineage(t, "Save", err, 150)
		kit.WantLineage(t, "Prefill behind it", s.Prefill(ctx, kv.Tokens(append(other[:154:154], 1)...), 154, 0), 150)
		if _, err := s.Save(ctx, kv.Tokens(other[:150]...), 0); err != nil {
			t.Error("what lies before:", err)
		}

		restore() // who says so afterwards
		f.cut(0, 150)
		if err := f.Decode(other[150:], 150, 0); err != nil {
			t.Fatal(err)
		}
		kit.WantLineage(t, "Truncate afterwards", s.Truncate(0, 150), 150)

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

// Whatever a caller takes back and evaluates again: what Prefill evaluates has the logits that it has in an empty cache, and what Save takes,
// too, when it is restored.
func TestRewinds(t *testing.T) {
	ctx := context.Background()
	store, chat := kit.OpenStore(t), int32(0)
	rapid.Check(t, func(t *rapid.T) {
		chat++
		full := rapid.Bool().Draw(t, "room for all")
		f := rewound(full)
		s := attach(t, store, f, nil)
		var tokens []kv.Token
		refused, taken := 0, 0
		for range rapid.IntRange(1, 8).Draw(t, "turns") {
			how := rapid.SampledFrom([]string{"prefill", "own loop", "restore", "save"}).Draw(t, "how")
			n := rapid.IntRange(0, len(tokens)).Draw(t, "cut to")
			if back := rapid.IntRange(0, 40).Draw(t, "back"); rapid.Bool().Draw(t, "a little") {
				n = max(0, len(tokens)-back)
			}
			next := append(append([]kv.Token(nil), tokens[:n]...), rapid.SliceOfN(rapid.Int32Range(0, 3), 1, 60).Draw(t, "more")...)
			next[0] = chat
			var lineage *llamacpp.LineageError
			switch how {
			case "save":
				if len(tokens) == 0 {
					continue
				}
				if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
					t.Fatalf("%v", err)
				}
				taken++
				continue
			case "restore":
				f.cut(0, 0)
				got, err := s.Restore(ctx, kv.Tokens(next...), 0)
				if err != nil {
					t.Fatalf("%v", err)
				}
				if err := s.Prefill(ctx, kv.Tokens(next...), got.Tokens, 0); err != nil {
					t.Fatalf("%v", err)
				}
			case "prefill", "own loop":
				f.cut(0, n)
				var err error
				if how == "prefill" {
					err = s.Prefill(ctx, kv.Tokens(next...), n, 0)
				} else if err = s.Truncate(0, n); err == nil {
					for at := n; at < len(next) && err == nil; at = min(len(next), at+s.BatchTokens()) {
						end := min(len(next), at+s.BatchTokens())
						if err = f.Decode(next[at:end], at, 0); err == nil {
							err = s.Capture(ctx, kv.Tokens(next[:end]...), 0)
						}
					}
				}
				if errors.As(err, &lineage) {
					refused++
					f.cut(0, 0)
					tokens = nil
					continue
				}
				if err != nil {
					t.Fatalf("%v", err)
				}
			}
			tokens = next
			if f.logits != logitsOf(t, tokens) {
				t.Fatalf("%s from %d: other logits than in an empty cache", how, n)
			}
		}
		t.Logf("%d refused, %d saved", refused, taken)
	})
}

// A state that cannot be cut and into which a failed llama_decode put a part of a batch is no state of any prompt: nothing goes on there, and nothing
// of it is stored, until the sequence is emptied.
func TestDecodeFailsHalfway(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	tokens := make([]kv.Token, 100)
	for i := range tokens {
		tokens[i] = kv.Token(i)
	}
	f := kinds("plain")
	s := attach(t, store, f, func(o *llamacpp.Options) { o.OpaqueOnly = true })
	for _, from := range []int{0, 50} {
		f.cut(0, 0)
		if from > 0 {
			if err := s.Prefill(ctx, kv.Tokens(tokens[:from]...), 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		f.failAfter = 5
		if err := s.Prefill(ctx, kv.Tokens(tokens...), from, 0); !errors.Is(err, errDecode) {
			t.Fatal(err)
		}
		part := kv.Tokens(tokens[:from+5]...)
		_, err := s.Save(ctx, part, 0)
		kit.WantLineage(t, "Save", err, from)
		kit.WantLineage(t, "Capture", s.Capture(ctx, part, 0), from)
		kit.WantLineage(t, "Prefill", s.Prefill(ctx, kv.Tokens(tokens...), from+5, 0), from)
	}
	f.cut(0, 0)
	if err := s.Prefill(ctx, kv.Tokens(tokens...), 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
		t.Error(err)
	}
}
