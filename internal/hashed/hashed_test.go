package hashed

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"pgregory.net/rapid"
)

var ctx = context.Background()

func newStore(t *testing.T) *db.Store {
	t.Helper()
	store, err := db.Open(ctx, memdir.Dir(t), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func newRuntime(t *testing.T, store *db.Store, o Options) *Runtime {
	t.Helper()
	r, err := New(ctx, store, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Whatever is copied, cut out and decoded, a step's scores are those of the list of who saw whom.
func TestAnswersAreThoseOfTheList(t *testing.T) {
	store := newStore(t)
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{Sequences: 3, Cells: 60, Batch: 8, Window: rapid.SampledFrom([]int{0, 5}).Draw(rt, "window")}
		r := newRuntime(t, store, o)
		var list []Entry
		has := make([]map[int]int, o.Sequences) // position to index in list
		for i := range has {
			has[i] = map[int]int{}
		}
		positions := func(seq int) []int {
			var out []int
			for pos := range has[seq] {
				out = append(out, pos)
			}
			slices.Sort(out)
			return out
		}
		inUse := func() int {
			cells := map[int]bool{}
			for _, h := range has {
				for _, i := range h {
					cells[i] = true
				}
			}
			return len(cells)
		}
		seq := rapid.IntRange(0, o.Sequences-1)
		ranges := rapid.Custom(func(t *rapid.T) kv.Range {
			from := rapid.IntRange(0, 40).Draw(t, "from")
			return kv.Range{Start: from, End: from + rapid.IntRange(0, 20).Draw(t, "length")}
		})
		rt.Repeat(map[string]func(*rapid.T){
			"decode": func(t *rapid.T) {
				var steps []kv.Step
				before := len(list)
				used := inUse()
				for range rapid.IntRange(1, o.Batch).Draw(t, "steps") {
					s := seq.Draw(t, "sequence")
					have := positions(s)
					e := Entry{Token: kv.Token(rapid.IntRange(0, 63).Draw(t, "token"))}
					for _, pos := range have {
						e.Visible = append(e.Visible, kv.Range{Start: has[s][pos], End: has[s][pos] + 1})
						e.Pos = pos + 1
					}
					has[s][e.Pos] = len(list)
					list = append(list, e)
					steps = append(steps, kv.Step{Token: e.Token, Pos: e.Pos, Seq: s, Logits: true})
				}
				err := r.Decode(ctx, steps)
				if used+len(steps) > o.Cells {
					if !errors.Is(err, kv.ErrFull) {
						t.Fatalf("%d cells, %d in use, %d steps: %v", o.Cells, used, len(steps), err)
					}
					for i, s := range steps {
						if has[s.Seq][s.Pos] == before+i {
							delete(has[s.Seq], s.Pos)
						}
					}
					list = list[:before]
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				want := o.Expect(list)
				for i := range steps {
					if !slices.Equal(r.Logits(i), o.Logits(want[before+i])) {
						t.Fatalf("step %d of %v differs", i, steps)
					}
				}
			},
			"copy": func(t *rapid.T) {
				from, to, in := seq.Draw(t, "from"), seq.Draw(t, "to"), ranges.Draw(t, "range")
				for pos := range has[to] {
					if from != to && pos >= in.Start && pos < in.End {
						if err := r.Copy(from, to, in); err == nil {
							t.Fatal("a copy over rows was accepted")
						}
						return
					}
				}
				if err := r.Copy(from, to, in); err != nil {
					t.Fatal(err)
				}
				for pos, i := range has[from] {
					if pos >= in.Start && pos < in.End {
						has[to][pos] = i
					}
				}
			},
			"remove": func(t *rapid.T) {
				s, in := seq.Draw(t, "sequence"), ranges.Draw(t, "range")
				if err := r.Remove(s, in); err != nil {
					t.Fatal(err)
				}
				for pos := range has[s] {
					if pos >= in.Start && pos < in.End {
						delete(has[s], pos)
					}
				}
			},
			"": func(t *rapid.T) {
				if r.Used() != inUse() {
					t.Fatalf("%d cells in use, want %d", r.Used(), inUse())
				}
				for s := range has {
					var got []int
					for _, x := range r.Rows(s) {
						got = append(got, x.Pos)
					}
					if want := positions(s); !slices.Equal(got, want) {
						t.Fatalf("sequence %d has rows at %v, want %v", s, got, want)
					}
				}
			},
		})
	})
}

// decode appends tokens to a sequence and returns the scores after the last.
func decode(t *testing.T, r *Runtime, seq, from int, tokens []kv.Token) []float32 {
	t.Helper()
	for i := 0; i < len(tokens); i += r.Limits().Batch {
		var steps []kv.Step
		for j := i; j < min(i+r.Limits().Batch, len(tokens)); j++ {
			steps = append(steps, kv.Step{Token: tokens[j], Pos: from + j, Seq: seq, Logits: true})
		}
		if err := r.Decode(ctx, steps); err != nil {
			t.Fatal(err)
		}
		if i+len(steps) == len(tokens) {
			return slices.Clone(r.Logits(len(steps) - 1))
		}
	}
	return nil
}

func someTokens(n, seed int) []kv.Token {
	out := make([]kv.Token, n)
	for i := range out {
		out[i] = kv.Token((i*7 + seed*13 + i*i*seed) % 64)
	}
	return out
}

// Rows come back from the store as they were, by ranges, into another runtime; a span keeps two histories of the same tokens apart.
func TestRowsThroughTheStore(t *testing.T) {
	store := newStore(t)
	o := Options{RowBytes: 64}
	r := newRuntime(t, store, o)
	tokens := someTokens(100, 1)
	decode(t, r, 0, 0, tokens)
	plain := kv.Tokens(tokens...)
	for _, in := range []kv.Range{{Start: 0, End: 37}, {Start: 37, End: 40}, {Start: 40, End: 40}, {Start: 50, End: 100}} { // 40 to 50 lie in the sequence
		if err := r.Store(ctx, plain, 0, in); err != nil {
			t.Fatal(err)
		}
	}
	hidden := newRuntime(t, store, o) // saw only the first ten and the last ten of the first fifty
	if _, err := hidden.Load(ctx, plain, 0, []kv.Range{{Start: 0, End: 10}, {Start: 40, End: 50}}); err != nil {
		t.Fatal(err)
	}
	decode(t, hidden, 0, 50, tokens[50:])
	recipe := plain
	recipe.Spans = []kv.Span{{Start: 50, Len: 1, Hash: kv.HashOf("0-10 40-50")}}
	if err := hidden.Store(ctx, recipe, 0, kv.Range{Start: 50, End: 100}); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		p    kv.Prompt
		from *Runtime
	}{"plain": {plain, r}, "recipe": {recipe, hidden}} {
		fresh := newRuntime(t, store, o)
		n, err := fresh.Load(ctx, c.p, 3, []kv.Range{{Start: 0, End: 10}, {Start: 40, End: 200}})
		if err != nil || n != 100 {
			t.Fatalf("%s: %d, %v", name, n, err)
		}
		for _, x := range fresh.Rows(3) {
			want, _ := slices.BinarySearchFunc(c.from.Rows(0), x.Pos, func(s Seen, pos int) int { return s.Pos - pos })
			if x != c.from.Rows(0)[want] {
				t.Fatalf("%s: the row at position %d is another one", name, x.Pos)
			}
		}
		if fresh.Used() != 70 {
			t.Fatalf("%s: %d cells", name, fresh.Used())
		}
	}
	if slices.Equal(r.Rows(0)[50:], hidden.Rows(0)[20:]) {
		t.Fatal("what was hidden made no difference")
	}
}

// What a caller does not do is an error, and changes nothing.
func TestStrict(t *testing.T) {
	store := newStore(t)
	r := newRuntime(t, store, Options{Sequences: 2, Cells: 70, Batch: 64})
	tokens := someTokens(60, 2)
	before := decode(t, r, 0, 0, tokens)
	if err := r.Store(ctx, kv.Tokens(tokens...), 0, kv.Range{End: 60}); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	over, other := make([]kv.Step, 65), slices.Clone(tokens)
	other[30]++
	for name, do := range map[string]func() error{
		"a hole in front of a step":  func() error { return r.Decode(ctx, []kv.Step{{Pos: 61}}) },
		"a step back":                func() error { return r.Decode(ctx, []kv.Step{{Pos: 60}, {Pos: 60}}) },
		"a batch that is too long":   func() error { return r.Decode(ctx, over) },
		"an unknown token":           func() error { return r.Decode(ctx, []kv.Step{{Pos: 60, Token: 64}}) },
		"an unknown sequence":        func() error { return r.Remove(2, kv.Range{End: 5}) },
		"a load over rows":           func() error { _, err := r.Load(ctx, kv.Tokens(tokens...), 0, []kv.Range{{End: 5}}); return err },
		"a load that finds no room":  func() error { _, err := r.Load(ctx, kv.Tokens(tokens...), 1, []kv.Range{{End: 50}}); return err },
		"rows of other tokens":       func() error { return r.Store(ctx, kv.Tokens(other...), 0, kv.Range{End: 60}) },
		"rows that are not there":    func() error { return r.Store(ctx, kv.Tokens(append(tokens, 1)...), 0, kv.Range{End: 61}) },
		"a store that fails":         func() error { r.Fail(Store, 0, boom); return r.Store(ctx, kv.Tokens(tokens...), 0, kv.Range{End: 60}) },
		"a load that fails":          func() error { r.Fail(Load, 0, boom); _, err := r.Load(ctx, kv.Tokens(tokens...), 1, nil); return err },
		"a decode that fails":        func() error { r.Fail(Decode, 0, boom); return r.Decode(ctx, []kv.Step{{Pos: 60}}) },
		"more steps than free cells": func() error { return r.Decode(ctx, steps(1, 11)) },
	} {
		if err := do(); err == nil {
			t.Errorf("%s was accepted", name)
		}
		if r.Used() != 60 || len(r.Live()) != 1 || len(r.Positions(0)) != 1 {
			t.Fatalf("%s changed something: %v", name, r.Live())
		}
	}
	r.Fail(Decode, 1, boom)
	if err := r.Decode(ctx, []kv.Step{{Pos: 60}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Decode(ctx, []kv.Step{{Pos: 61}}); err != boom {
		t.Fatalf("the second decode: %v", err)
	}
	got := decode(t, r, 1, 0, tokens[:2])
	if err := r.Remove(1, kv.Range{Start: 1, End: math.MaxInt}); err != nil {
		t.Fatal(err)
	}
	if again := decode(t, r, 1, 1, tokens[1:2]); !slices.Equal(got, again) || slices.Equal(got, before) {
		t.Fatal("a row that was taken away and decoded again differs")
	}
}

func steps(seq, n int) []kv.Step {
	out := make([]kv.Step, n)
	for i := range out {
		out[i] = kv.Step{Pos: i, Seq: seq}
	}
	return out
}
