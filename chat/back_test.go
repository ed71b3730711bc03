package chat

import (
	"reflect"
	"testing"

	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// What a conversation says of itself is the same after it was opened again.
func TestSaysTheSameAfterwards(t *testing.T) {
	x := openHouse(t, memdir.Dir(t), hashed.Options{BlockTokens: 16, Sequences: 8, Cells: 1 << 12})
	defer x.close()
	o := Options{System: []kv.Token{1, 2, 3}, Ring: 60, Reserve: 8}
	c, err := x.h.Open(ctx, "c", o)
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range [][]kv.Token{{4, 5}, {6}} {
		turn, err := c.Begin(ctx, message, BeginOptions{Meta: []byte("meta")})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range turn.Generate(ctx, Greedy, func(kv.Token) bool { return true }) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := turn.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	turns, view := c.Turns(), c.View()
	x.again()
	o.System = nil // it is kept
	if c, err = x.h.Open(ctx, "c", o); err != nil {
		t.Fatal(err)
	}
	if got := c.System(); !reflect.DeepEqual(got, []kv.Token{1, 2, 3}) {
		t.Errorf("system prompt %v", got)
	}
	after := c.Turns()
	for i := range turns {
		if !after[i].At.Equal(turns[i].At) {
			t.Errorf("turn %d was at %v, and now at %v", turns[i].ID, turns[i].At, after[i].At)
		}
		turns[i].At = after[i].At // in another zone
	}
	if !reflect.DeepEqual(after, turns) || !reflect.DeepEqual(c.View(), view) {
		t.Errorf("turns\n%+v\nwere\n%+v\nview\n%+v\nwas\n%+v", after, turns, c.View(), view)
	}
}

// What branches decode is counted with the time that it took.
func TestBranchesAreCounted(t *testing.T) {
	x := openHouse(t, memdir.Dir(t), hashed.Options{BlockTokens: 16, Sequences: 8, Cells: 1 << 12})
	defer x.close()
	c, err := x.h.Open(ctx, "c", Options{Ring: 60, Reserve: 8})
	if err != nil {
		t.Fatal(err)
	}
	turn, err := c.Begin(ctx, []kv.Token{1}, BeginOptions{})
	if err != nil {
		t.Fatal(err)
	}
	branches, err := turn.Fork(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := turn.Advance(ctx, branches, [][]kv.Token{{2}, {3, 4}}); err != nil {
		t.Fatal(err)
	}
	s, all := turn.Stats(), c.Stats()
	if s.Decoded != 3 || s.Decode <= 0 || all.Decoded != 3 || all.Decode < s.Decode {
		t.Errorf("the turn: %d tokens in %v; the conversation: %d in %v", s.Decoded, s.Decode, all.Decoded, all.Decode)
	}
}
