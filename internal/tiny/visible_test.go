package tiny

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Wherever the rows of a cache lie, and whichever other sequences there are in a batch, a token's logits have the same bits: they depend on
// the rows that it sees, in order of position.
func TestPlacesChangeNoBit(t *testing.T) {
	m := newModel(t, small, 3)
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 160
		seed := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range capacity {
				if !yield(i) {
					return
				}
			}
		})).Draw(t, "places")
		mixed := m.NewCache(capacity)
		type sequence struct {
			tokens []int32
			sees   *Visible
			plain  *Cache
		}
		var seqs []sequence
		for range rapid.IntRange(1, 3).Draw(t, "sequences") {
			seqs = append(seqs, sequence{drawTokens(t, 50), NewVisible(0), m.NewCache(50)})
		}
		var done int
		at := make([]int, len(seqs))
		for done < len(seqs) {
			var steps []Step
			var want [][]float32
			for range rapid.IntRange(1, 20).Draw(t, "steps") {
				i := rapid.IntRange(0, len(seqs)-1).Draw(t, "sequence")
				s := &seqs[i]
				if at[i] == len(s.tokens) {
					continue
				}
				row := seed[0]
				seed = seed[1:]
				s.sees.Set(at[i], row)
				steps = append(steps, Step{Token: s.tokens[at[i]], Pos: at[i], Row: row, Sees: s.sees, Logits: true})
				want = append(want, m.Forward(s.plain, at[i], s.tokens[at[i]:at[i]+1]))
				if at[i]++; at[i] == len(s.tokens) {
					done++
				}
			}
			for i, got := range m.Decode(mixed, steps) {
				if !slices.EqualFunc(got, want[i], sameBits) {
					t.Fatalf("step %d of %d differs", i, len(steps))
				}
			}
		}
	})
}

// A hidden position is as if its row were not there: what is seen of two caches is the same, though one has garbage where it is hidden.
func TestHiddenRowsAreNotRead(t *testing.T) {
	m := newModel(t, small, 4)
	tokens := []int32{5, 9, 1, 33, 2, 8, 60, 7}
	answer := func(spoil, hide bool) []float32 {
		c := m.NewCache(len(tokens))
		m.Forward(c, 0, tokens[:7])
		sees := NewVisible(0)
		for pos := range tokens {
			if !hide || pos < 2 || pos > 4 {
				sees.Set(pos, pos)
			}
		}
		for l := range m.Layers {
			for i := 2 * c.RowBytes; spoil && i < 5*c.RowBytes; i++ {
				c.K[l][i], c.V[l][i] = 0x7e, 0x7e
			}
		}
		return m.Decode(c, []Step{{Token: tokens[7], Pos: 7, Row: 7, Sees: sees, Logits: true}})[0]
	}
	if !slices.EqualFunc(answer(false, true), answer(true, true), sameBits) {
		t.Error("a hidden row was read")
	}
	if slices.EqualFunc(answer(false, false), answer(false, true), sameBits) {
		t.Error("hiding made no difference")
	}
}

func TestVisible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, model := NewVisible(rapid.IntRange(0, 100).Draw(t, "room")), map[int]int{}
		pos := rapid.IntRange(0, 300)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				p, row := pos.Draw(t, "pos"), rapid.IntRange(0, 1000).Draw(t, "row")
				v.Set(p, row)
				model[p] = row
			},
			"clear": func(t *rapid.T) {
				p := pos.Draw(t, "pos")
				v.Clear(p)
				delete(model, p)
			},
			"": func(t *rapid.T) {
				var want []uint32
				last, end := -1, pos.Draw(t, "end")
				for p := range 301 {
					row, shown := v.Row(p)
					if w, ok := model[p]; ok != shown || ok && w != row {
						t.Fatalf("position %d: %d %t", p, row, shown)
					} else if ok {
						last = p
						if p < end {
							want = append(want, uint32(w))
						}
					}
				}
				if got := v.before(end); !slices.Equal(got, want) || v.count(end) != len(want) {
					t.Fatalf("before %d: %v, want %v", end, got, want)
				}
				if v.End() != last+1 || v.Count() != len(model) {
					t.Fatalf("end %d, count %d, want %d, %d", v.End(), v.Count(), last+1, len(model))
				}
			},
		})
	})
}
