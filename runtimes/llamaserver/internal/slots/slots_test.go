package slots

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// What was sent before its tokens are known is of a key all the same: that key neither waits for it nor loses it, all others do.
func TestComingPromptHasAKey(t *testing.T) {
	sl := &Slot{Prompt: kv.Prompt{Scope: "alice"}, Unsaved: true, Working: true, coming: true}
	for key, may := range map[string]bool{"alice": true, "bob": false} {
		for _, tokens := range [][]int32{nil, {1, 2, 3}} {
			if got := mayReuse(sl, kv.Prompt{Tokens: tokens, Scope: key}); got != may {
				t.Errorf("%s, with %d tokens: %v", key, len(tokens), got)
			}
		}
	}
	sl.forget()
	if mayReuse(sl, kv.Prompt{Scope: "alice"}) {
		t.Error("a slot of which nothing is known may be reused")
	}
}

// Of the slots that one counts which shares most, and of another scope nothing but what all share.
func TestNearestSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prompt := func() kv.Prompt {
			p := kv.Prompt{Tokens: rapid.SliceOfN(rapid.Int32Range(1, 2), 0, 12).Draw(t, "tokens"), Scope: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "scope")}
			p.ScopeStart = rapid.IntRange(0, 6).Draw(t, "start")
			if rapid.Bool().Draw(t, "adapted") {
				p.Adapters = []kv.Adapter{{Scale: 1}}
			}
			return p
		}
		s := New(Server{})
		for range rapid.IntRange(0, 4).Draw(t, "slots") {
			s.list = append(s.list, &Slot{Prompt: prompt()})
		}
		p := prompt()
		got := s.Nearest(p, 5)
		common, parts := 0, false
		for _, sl := range s.list {
			if !slices.Equal(sl.Prompt.Adapters, p.Adapters) {
				continue
			}
			q := sl.Prompt.Tokens
			if sl.Prompt.Scope != p.Scope {
				q = q[:min(open(p), open(sl.Prompt))]
			}
			n := 0
			for n < len(q) && n < len(p.Tokens) && q[n] == p.Tokens[n] {
				n++
			}
			goesOn := n < min(len(q), len(p.Tokens))
			if n > common {
				common, parts = n, false
			}
			parts = parts || n == common && goesOn
		}
		if got.Common != common || (got.Theirs != nil) != parts || parts && got.Theirs[0] == p.Tokens[common] {
			t.Fatalf("%+v, expected %d, %v", got, common, parts)
		}
	})
}
