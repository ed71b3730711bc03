package db

import (
	"testing"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/kv"
)

// A ref that is set anew, on another block or with another priority, takes its priority along.
func TestRefTakesItsPriorityAlong(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p, q := kv.Tokens(tokens(1, 32)...), kv.Tokens(tokens(2, 32)...)
	put(t, m, p)
	put(t, m, q)
	set := func(name string, p kv.Prompt, priority uint8) {
		t.Helper()
		if err := m.SetRef(ctx, name, p, RefOptions{Priority: priority}); err != nil {
			t.Fatal(err)
		}
	}
	classes := func(ofP, ofQ uint64) {
		t.Helper()
		for _, x := range []struct {
			p    kv.Prompt
			want uint64
		}{{p, ofP}, {q, ofQ}} {
			e := entryOf(t, s, m, x.p, 1)
			if got := e.Rank >> catalog.RankBits; got != x.want || s.eng.Catalog.Class(e.Key) != x.want {
				t.Errorf("class %d in the index, %d of the refs, expected %d", got, s.eng.Catalog.Class(e.Key), x.want)
			}
		}
	}
	set("a", p, 2)
	classes(2, 0)
	set("a", q, 0)
	classes(0, 0)
	set("a", q, 3)
	set("b", q, 1)
	classes(0, 3)
	set("a", p, 3)
	classes(3, 1)
}
