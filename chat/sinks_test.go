package chat_test

import (
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/kv"
)

// Every view has the first four tokens, without a system prompt, too: those of the first turn, though it is hidden, or evicted; but nothing of a fact that was removed.
func TestSinksWithoutASystemPrompt(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	o := chat.Options{Ring: 40, Reserve: 8}
	c := r.conversation("a", o)
	r.turn(c, tokens(2, 20), 0, chat.BeginOptions{})
	list := see(nil, tokens(2, 20))
	first := kv.Range{Start: 0, End: 4}

	turn := r.begin(c, tokens(3, 10), chat.BeginOptions{Policy: chat.Recent(0)}) // hidden
	list = see(list, tokens(3, 10), first, kv.Range{Start: 19, End: 20})
	r.expect(turn, list)
	r.check(turn.Commit(ctx))

	turn = r.begin(c, tokens(4, 20), chat.BeginOptions{}) // evicted
	list = see(list, tokens(4, 20), first, kv.Range{Start: 20, End: 30})
	r.expect(turn, list)
	r.check(turn.Commit(ctx))
	r.again() // and loaded again
	c = r.conversation("a", o)
	turn = r.begin(c, tokens(5, 9), chat.BeginOptions{Policy: chat.Recent(0)})
	r.expect(turn, see(list, tokens(5, 9), first, kv.Range{Start: 49, End: 50}))
	r.check(turn.Abort(ctx))

	c = r.conversation("b", o)
	r.check(c.SetFact(ctx, "name", tokens(6, 6)))
	r.turn(c, tokens(7, 10), 0, chat.BeginOptions{})
	r.check(c.SetFact(ctx, "name", nil))
	turn = r.begin(c, tokens(8, 10), chat.BeginOptions{Policy: chat.Recent(0)})
	r.expect(turn, see(see(see(nil, tokens(6, 6)), tokens(7, 10), kv.Range{Start: 0, End: 6}), tokens(8, 10), kv.Range{Start: 15, End: 16}))
	r.check(turn.Abort(ctx))
	r.clean(c)
}
