package held

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// A sequence is a map from position to token.
func TestSequenceIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var got, other Sequence
		want, wantOther := map[int]kv.Token{}, map[int]kv.Token{}
		aRange := func() kv.Range {
			start := rapid.IntRange(-2, 40).Draw(t, "start")
			return kv.Range{Start: start, End: start + rapid.IntRange(-2, 20).Draw(t, "length")}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				from := rapid.IntRange(0, 40).Draw(t, "from")
				tokens := rapid.SliceOfN(rapid.Int32Range(-1, 3), 0, 10).Draw(t, "tokens")
				got.Set(from, tokens...)
				for i, x := range tokens {
					want[from+i] = x
				}
			},
			"remove": func(t *rapid.T) {
				r := aRange()
				got.Remove(r)
				for p := r.Start; p < r.End; p++ {
					delete(want, p)
				}
			},
			"swap": func(*rapid.T) { got, other, want, wantOther = other, got, wantOther, want },
			"copy": func(t *rapid.T) {
				r := aRange()
				got.Copy(&other, r)
				for p := r.Start; p < r.End; p++ {
					if x, ok := wantOther[p]; ok {
						want[p] = x
					}
				}
			},
			"": func(t *rapid.T) {
				end := 0
				for p := range want {
					end = max(end, p+1)
				}
				if got.End() != end {
					t.Fatalf("it ends at %d, not %d", got.End(), end)
				}
				r := aRange()
				all, some := true, false
				for p := r.Start; p < r.End; p++ {
					_, ok := want[p]
					all, some = all && ok, some || ok
				}
				if got.All(r) != all || got.Any(r) != some {
					t.Fatalf("of %v all are there: %t, some: %t, want %t, %t", r, got.All(r), got.Any(r), all, some)
				}
				tokens := make([]kv.Token, rapid.IntRange(0, 60).Draw(t, "tokens"))
				parts := -1
				for p := range tokens {
					if x, ok := want[p]; ok {
						tokens[p] = x
					}
				}
				if len(tokens) > 0 {
					p := rapid.IntRange(0, len(tokens)-1).Draw(t, "changed")
					if _, ok := want[p]; ok {
						tokens[p], parts = tokens[p]+1, p
					}
				}
				if at := got.Parts(tokens); at != parts {
					t.Fatalf("other tokens from %d on, not from %d", at, parts)
				}
			},
		})
	})
}
