package chat

import (
	"testing"

	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// Rows that go out of view while a turn is answered anew are stored with its Commit: the conversation is loaded afterwards, and not written anew.
func TestRowsAreStoredAfterInstead(t *testing.T) {
	x := openHouse(t, memdir.Dir(t), hashed.Options{BlockTokens: 16, Sequences: 8, Cells: 1 << 12})
	defer x.close()
	c, err := x.h.Open(ctx, "c", Options{System: []kv.Token{0, 0, 0, 26}, Facts: 40, Ring: 29, Reserve: 8})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	turn := func(message []kv.Token, instead TurnID) *Turn {
		t.Helper()
		turn, err := c.Begin(ctx, message, BeginOptions{Reserve: 2, Policy: Recent(0), Instead: instead})
		must(err)
		return turn
	}
	must(c.SetFact(ctx, "a", []kv.Token{1, 0, 0, 16}))
	must(c.SetFact(ctx, "b", []kv.Token{0, 0, 1, 1, 1, 15}))
	first := turn([]kv.Token{39, 36, 48, 30}, 0)
	must(first.Commit(ctx))
	must(c.SetFact(ctx, "b", []kv.Token{7, 46, 3, 2, 36, 0, 11, 59})) // the older one goes out of view; before the turn there are fewer rows than are found again
	must(turn([]kv.Token{2, 2, 51}, 0).Abort(ctx))
	must(turn([]kv.Token{1, 8, 0, 1, 40, 37, 24, 17}, first.ID()).Commit(ctx))
	if c.stored != len(c.log.tokens) {
		t.Errorf("%d of %d rows are stored: %v", c.stored, len(c.log.tokens), c.stats.StoreError)
	}
	must(x.h.Trim(ctx, 1<<12))
	turn([]kv.Token{1}, 0)
	if c.stats.Rewrites > 0 {
		t.Error("the log was written anew")
	}
}
