package lease

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// Nothing comes to rest on a block that is leaving, and no block leaves that something else rests on. What rests on a block that is removed
// rests on its parent afterwards.
func TestPins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewPins()
		pins := make([]Pin, 5)
		at, leaving := make([]byte, len(pins)), map[byte]int{} // blocks 1 to 4, each the parent of the next
		for i := range pins {
			pins[i].sees = i%2 == 0
		}
		block := rapid.ByteRange(1, 4)
		index := rapid.IntRange(0, len(pins)-1)
		resting := func(b byte, own int) (n int) {
			for i, x := range at {
				if x == b && i != own {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"pin": func(t *rapid.T) {
				i, b := index.Draw(t, "pin"), block.Draw(t, "block")
				want := leaving[b] == 0
				if got := p.Pin(&pins[i], kv.Key{b}); got != want {
					t.Fatalf("pinned %d: %t", b, got)
				}
				if want {
					at[i] = b
				}
			},
			"unpin": func(t *rapid.T) {
				i := index.Draw(t, "pin")
				p.Unpin(&pins[i])
				at[i] = 0
			},
			"leave": func(t *rapid.T) {
				b, own := block.Draw(t, "block"), index.Draw(t, "own")
				want := resting(b, own) == 0
				if got := p.Leave(kv.Key{b}, &pins[own]); got != want || p.Pinned(kv.Key{b}, &pins[own]) == want {
					t.Fatalf("%d leaves: %t", b, got)
				}
				if want {
					leaving[b]++
				}
			},
			"end": func(t *rapid.T) {
				if b := block.Draw(t, "block"); leaving[b] > 0 {
					p.End([]kv.Key{{b}})
					leaving[b]--
				}
			},
			"removed": func(t *rapid.T) {
				b := block.Draw(t, "block")
				want := false
				for i := range at {
					if at[i] == b {
						at[i]--
						want = want || pins[i].sees
					}
				}
				if seen := p.Seen(kv.Key{b}); seen != want {
					t.Fatalf("%d is seen: %t", b, seen)
				}
				if seen := p.Removed(kv.Key{b}, kv.Key{b - 1}); seen != want {
					t.Fatalf("%d was seen: %t", b, seen)
				}
			},
			"": func(t *rapid.T) {
				pinned, out := map[byte]bool{}, 0
				for b := byte(1); b <= 4; b++ {
					if leaving[b] > 0 {
						out++
					}
					if got, want := p.Pinned(kv.Key{b}), resting(b, -1) > 0; got != want {
						t.Fatalf("%d is pinned: %t", b, got)
					} else if want {
						pinned[b] = true
					}
				}
				if a, b := p.Counts(); a != len(pinned) || b != out {
					t.Fatalf("%d pinned, %d leaving, expected %d and %d", a, b, len(pinned), out)
				}
			},
		})
	})
}
