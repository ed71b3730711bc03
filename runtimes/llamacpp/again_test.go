package llamacpp_test

import (
	"context"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// The same tokens, evaluated again behind a restore by a caller who does not say so, lack a part of their window, too: whatever was saved since, and whatever
// is stored. What is evaluated again where all of its window is there can be saved.
func TestTheSameTokensBehindARestore(t *testing.T) {
	ctx := context.Background()
	tokens := make([]kv.Token, 400)
	for i := range tokens {
		tokens[i] = kv.Token(i % 7)
	}
	whole := func(o *llamacpp.Options) { o.OpaqueOnly = true }
	refused := func(kept func(*llamacpp.Options), full bool, stored, saved, back int) {
		t.Helper()
		store := kit.OpenStore(t)
		kit.EvaluateAndSave(t, attach(t, store, rewound(full), kept), kv.Tokens(tokens[:stored]...), 0, 0)
		f := rewound(full)
		s := attach(t, store, f, kept)
		got, err := s.Restore(ctx, kv.Tokens(tokens[:201]...), 0)
		if err != nil || got.Tokens != 200 {
			t.Fatal(got, err)
		}
		if saved > 200 {
			if err := f.Decode(tokens[200:saved], 200, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Save(ctx, kv.Tokens(tokens[:saved]...), 0); err != nil {
				t.Fatal(err)
			}
		}
		f.cut(0, back)
		if err := f.Decode(tokens[back:], back, 0); err != nil {
			t.Fatal(err)
		}
		_, err = s.Save(ctx, kv.Tokens(tokens...), 0)
		kit.WantLineage(t, "Save", err, back)
		kit.WantLineage(t, "Capture", s.Capture(ctx, kv.Tokens(tokens...), 0), back)
		kit.WantLineage(t, "Prefill", s.Prefill(ctx, kv.Tokens(append(tokens[:400:400], 1)...), 400, 0), back)
		if _, err := s.Save(ctx, kv.Tokens(tokens[:back]...), 0); s.Mode() == llamacpp.Rows && err != nil {
			t.Error("what lies before:", err)
		}
	}
	rows := kit.Small
	for _, full := range []bool{false, true} {
		for _, back := range []int{199, 190, 180} {
			refused(rows, full, 200, 200, back)
			refused(rows, full, 200, 205, back)
			refused(rows, full, 200, 350, back) // a save reads the last rows only
			refused(rows, full, 300, 200, back) // or none of these
			if back < 199 {                     // such a state has one row more than its next token sees
				refused(whole, full, 200, 200, back)
				refused(whole, full, 200, 205, back)
			}
		}
		for _, kept := range []func(*llamacpp.Options){rows, whole} {
			f := rewound(full)
			s := attach(t, kit.OpenStore(t), f, kept)
			kit.EvaluateAndSave(t, s, kv.Tokens(tokens[:200]...), 0, 0)
			f.cut(0, 190)
			if err := f.Decode(tokens[190:220], 190, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Save(ctx, kv.Tokens(tokens[:220]...), 0); err != nil {
				t.Error("evaluated again where all of the window was there:", err)
			}
		}
	}
}
