package llamacpp_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

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
