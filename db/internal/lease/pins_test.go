package lease

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// Nothing comes to rest on a block that is leaving, and no block leaves that something else rests on.
func TestPins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewPins()
		pinned, leaving := map[kv.Key]int{}, map[kv.Key]int{}
		key := rapid.Custom(func(t *rapid.T) kv.Key { return kv.Key{byte(rapid.IntRange(1, 4).Draw(t, "key"))} })
		t.Repeat(map[string]func(*rapid.T){
			"pin": func(t *rapid.T) {
				keys := rapid.SliceOfN(key, 1, 2).Draw(t, "keys")
				want := true
				for _, k := range keys {
					want = want && leaving[k] == 0
				}
				if got := p.Pin(keys...); got != want {
					t.Fatalf("pinned %v: %t", keys, got)
				}
				for _, k := range keys {
					if want {
						pinned[k]++
					}
				}
			},
			"unpin": func(t *rapid.T) {
				if k := key.Draw(t, "key"); pinned[k] > 0 {
					p.Unpin(k)
					pinned[k]--
				}
			},
			"leave": func(t *rapid.T) {
				k := key.Draw(t, "key")
				own := rapid.IntRange(0, 2).Draw(t, "own")
				want := pinned[k] <= own
				if got := p.Leave(k, own); got != want || p.Pinned(k, own) == want {
					t.Fatalf("%v leaves: %t", k, got)
				}
				if want {
					leaving[k]++
				}
			},
			"end": func(t *rapid.T) {
				if k := key.Draw(t, "key"); leaving[k] > 0 {
					p.End([]kv.Key{k})
					leaving[k]--
				}
			},
			"": func(t *rapid.T) {
				for _, m := range []map[kv.Key]int{pinned, leaving} {
					for k, n := range m {
						if n == 0 {
							delete(m, k)
						}
					}
				}
				if a, b := p.Counts(); a != len(pinned) || b != len(leaving) {
					t.Fatalf("%d pinned, %d leaving, expected %d and %d", a, b, len(pinned), len(leaving))
				}
			},
		})
	})
}
