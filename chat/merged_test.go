package chat_test

import (
	"context"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/internal/hashed"
)

// The log of a conversation whose facts were merged does not grow without end where turns of others leave no time between turns.
func TestLogIsBoundedAfterMerge(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	r.begin(r.conversation("other", chat.Options{Facts: 40, Ring: 60, Reserve: 10}), tokens(1, 3), chat.BeginOptions{})
	c := r.conversation("a", chat.Options{Facts: 40, Ring: 60, Reserve: 10, Log: 200, Merge: func(_ context.Context, facts []chat.Fact, room int) ([]chat.Fact, error) {
		return facts[len(facts)-1:], nil
	}})
	for i := range 40 {
		if i < 5 {
			r.check(c.SetFact(ctx, string(rune('a'+i)), tokens(i, 15)))
		}
		r.turn(c, tokens(i, 10), 5, chat.BeginOptions{})
		if p := c.View(); p[len(p)-1].End > 200+60+40+60 {
			t.Fatalf("turn %d: a log of %d tokens, and Log is 200; %d rewrites", i, p[len(p)-1].End, c.Stats().Rewrites)
		}
	}
	r.clean(c)
}
