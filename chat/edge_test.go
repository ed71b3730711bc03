package chat_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/kv"
)

// What makes no sense is refused before anything is changed, and what came too late says so.
func TestRefused(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	for name, o := range map[string]chat.Options{
		"facts below zero":                {Facts: -1},
		"a ring below zero":               {Ring: -4},
		"a reserve below zero":            {Reserve: -1},
		"a reserve as large as the ring":  {Ring: 8, Reserve: 8},
		"a ring without end":              {Ring: math.MaxInt},
		"facts without end":               {Facts: math.MaxInt},
		"a system prompt above the facts": {System: tokens(1, 9), Facts: 8},
		"a token that no model has":       {System: []kv.Token{-1}},
		"a token that this model has not": {System: []kv.Token{64}},
	} {
		if _, err := r.h.Open(ctx, "a", o); !errors.Is(err, chat.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, id := range []string{"", strings.Repeat("x", 1<<10)} {
		if _, err := r.h.Open(ctx, id, chat.Options{}); !errors.Is(err, chat.ErrOptions) {
			t.Errorf("a name of %d bytes: %v", len(id), err)
		}
	}
	c := r.conversation("a", chat.Options{Facts: 20, Ring: 40})
	_, err := r.h.Open(ctx, "a", chat.Options{})
	r.want(err, chat.ErrOpen)
	r.want(r.h.Delete(ctx, "a"), chat.ErrOpen)
	for name, b := range map[string]struct {
		message []kv.Token
		o       chat.BeginOptions
	}{
		"an empty message":                {},
		"a reserve below zero":            {tokens(1, 3), chat.BeginOptions{Reserve: -4}},
		"a token that this model has not": {message: []kv.Token{1, 64}},
		"a token below zero":              {message: []kv.Token{-1}},
		"more of the caller's than fits":  {tokens(1, 3), chat.BeginOptions{Meta: make([]byte, chat.MaxMeta+1)}},
		"an embedding as long as a book":  {tokens(1, 3), chat.BeginOptions{Embedding: make([]float32, 1<<20)}},
		"a span outside of the message":   {tokens(1, 3), chat.BeginOptions{Spans: []kv.Span{{Start: 2, Len: 2}}}},
	} {
		if _, err := c.Begin(ctx, b.message, b.o); !errors.Is(err, chat.ErrOptions) && !errors.Is(err, kv.ErrPrompt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var long *chat.TooLongError
	for _, o := range []chat.BeginOptions{{Reserve: 38}, {Reserve: math.MaxInt}} {
		if _, err := c.Begin(ctx, tokens(1, 3), o); !errors.As(err, &long) || long.Have != 40 || long.Need < 41 {
			t.Errorf("a turn of 3 and %d tokens: %v", o.Reserve, err)
		}
	}
	r.want(c.SetFact(ctx, "a", []kv.Token{64}), chat.ErrOptions)
	r.want(c.SetFact(ctx, "a", tokens(1, 21)), chat.ErrFactsFull)
	r.want(c.SetFact(ctx, strings.Repeat("x", chat.MaxMeta+1), tokens(1, 2)), chat.ErrOptions)
	r.want(c.SetSystem(ctx, []kv.Token{64}), chat.ErrOptions)
	r.want(c.SetMeta(ctx, make([]byte, chat.MaxMeta+1)), chat.ErrOptions)
	r.want(c.Rewind(ctx, 1), chat.ErrNoTurn)
	r.want(c.Forget(ctx, 1), chat.ErrNoTurn)

	turn := r.begin(c, tokens(1, 3), chat.BeginOptions{Reserve: 4})
	_, err = c.Begin(ctx, tokens(1, 3), chat.BeginOptions{})
	r.want(err, chat.ErrTurnOpen)
	r.want(c.SetSystem(ctx, nil), chat.ErrTurnOpen)
	r.want(c.Rewind(ctx, turn.ID()), chat.ErrTurnOpen)
	r.want(c.Forget(ctx, turn.ID()), chat.ErrTurnOpen)
	r.want(turn.Append(ctx, tokens(1, 5)), chat.ErrTurnFull)
	r.want(turn.Append(ctx, []kv.Token{64}), chat.ErrOptions)
	_, err = turn.Fork(ctx, 0)
	r.want(err, chat.ErrOptions)
	bs, err := turn.Fork(ctx, 2)
	r.check(err)
	r.want(turn.Commit(ctx), chat.ErrBranch)
	r.want(turn.Append(ctx, tokens(1, 1)), chat.ErrBranch)
	r.want(turn.Advance(ctx, bs, nil), chat.ErrOptions)
	r.want(turn.Advance(ctx, []*chat.Branch{bs[0], bs[0]}, make([][]kv.Token, 2)), chat.ErrOptions)
	r.want(turn.Advance(ctx, bs[:1], [][]kv.Token{tokens(1, 5)}), chat.ErrTurnFull)
	r.want(turn.Advance(ctx, bs[:1], [][]kv.Token{{-1}}), chat.ErrOptions)
	r.check(bs[0].Drop())
	r.check(bs[0].Drop())
	r.want(turn.Advance(ctx, bs[:1], [][]kv.Token{{1}}), chat.ErrBranch)
	r.check(bs[1].Promote(ctx))
	r.want(bs[1].Promote(ctx), chat.ErrBranch)
	r.check(turn.Append(ctx, tokens(1, 4)))
	for _, err := range turn.Generate(ctx, chat.Greedy, nil) {
		r.want(err, chat.ErrTurnFull)
	}
	_, err = turn.Verify(ctx, tokens(1, 3), chat.Greedy)
	r.want(err, chat.ErrTurnFull)
	r.check(turn.Commit(ctx))
	r.want(turn.Commit(ctx), chat.ErrTurnEnded)
	r.want(turn.Abort(ctx), chat.ErrTurnEnded)
	_, err = turn.Logits(ctx)
	r.want(err, chat.ErrTurnEnded)
	r.clean(c)

	last := r.begin(c, tokens(2, 3), chat.BeginOptions{})
	r.check(c.Close())
	r.check(c.Close())
	r.want(last.Commit(ctx), chat.ErrTurnEnded)
	r.want(c.SetFact(ctx, "a", nil), chat.ErrClosed)
	_, err = c.Begin(ctx, tokens(1, 3), chat.BeginOptions{})
	r.want(err, chat.ErrClosed)
	if len(c.Turns()) != 1 || len(c.Facts()) != 0 {
		t.Errorf("a closed conversation lists %v, %v", c.Turns(), c.Facts())
	}
	r.check(r.h.Close())
	r.check(r.h.Close())
	_, err = r.h.Open(ctx, "a", chat.Options{})
	r.want(err, chat.ErrClosed)
	r.want(r.h.Delete(ctx, "a"), chat.ErrClosed)
	r.want(r.h.Warm(ctx, "w", tokens(1, 20)), chat.ErrClosed)
	r.want(r.h.Trim(ctx, 1), chat.ErrClosed)
	r.want(r.h.Tidy(ctx), chat.ErrClosed)
}

// A runtime on which no conversation can be held is refused, with what is missing.
func TestUnsupported(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	for _, o := range []hashed.Options{{Missing: "rows that can be cut"}, {Sequences: 2}, {Batch: -1}} {
		rt, err := hashed.New(ctx, r.store, o)
		r.check(err)
		_, err = chat.NewHost(r.store, rt.Model(), rt)
		r.want(err, kv.ErrUnsupported)
		if !strings.Contains(err.Error(), o.Missing) {
			t.Errorf("%v does not say what is missing", err)
		}
	}
}

// A sampler that goes wrong costs its token, and not the conversation.
func TestSamplerGoesWrong(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	c := r.conversation("a", chat.Options{Facts: 20, Ring: 40})
	turn := r.begin(c, tokens(1, 3), chat.BeginOptions{})
	for _, token := range []kv.Token{-1, 64} {
		wrong := func([]float32) kv.Token { return token }
		for _, err := range turn.Generate(ctx, wrong, nil) {
			r.want(err, chat.ErrOptions)
		}
		_, err := turn.Verify(ctx, []kv.Token{1, 2}, wrong)
		r.want(err, chat.ErrOptions)
		_, err = turn.Verify(ctx, nil, wrong)
		r.want(err, chat.ErrOptions)
		_, err = turn.Verify(ctx, []kv.Token{token}, chat.Greedy) // a draft is a guess
		r.want(err, chat.ErrOptions)
	}
	r.answer(turn, 2)
	r.check(turn.Commit(ctx))
	r.turn(c, tokens(2, 3), 2, chat.BeginOptions{})
	r.clean(c)
}

// A context that is done changes nothing: what is repeated is done once.
func TestDoneContext(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	done, cancel := context.WithCancel(ctx)
	cancel()
	c := r.conversation("a", chat.Options{Facts: 20, Ring: 40})
	_, err := c.Begin(done, tokens(1, 3), chat.BeginOptions{})
	r.want(err, context.Canceled)
	turn := r.begin(c, tokens(1, 3), chat.BeginOptions{Reserve: 20})
	r.want(turn.Append(done, tokens(2, 2)), context.Canceled)
	r.check(turn.Append(ctx, tokens(2, 2)))
	for _, err := range turn.Generate(done, chat.Greedy, nil) {
		r.want(err, context.Canceled)
	}
	_, err = turn.Verify(done, tokens(3, 2), chat.Greedy)
	r.want(err, context.Canceled)
	bs, err := turn.Fork(ctx, 1)
	r.check(err)
	next := [][]kv.Token{tokens(4, 3)}
	r.want(turn.Advance(done, bs, next), context.Canceled)
	r.check(turn.Advance(ctx, bs, next))
	r.want(bs[0].Promote(done), context.Canceled)
	r.check(bs[0].Promote(ctx))
	if got, want := turn.Tokens(), slices.Concat(tokens(1, 3), tokens(2, 2), tokens(4, 3)); !slices.Equal(got, want) {
		t.Fatalf("the turn has %v, want %v", got, want)
	}
	r.want(turn.Commit(done), context.Canceled)
	r.check(turn.Commit(ctx))
	r.want(c.SetFact(done, "a", tokens(1, 3)), context.Canceled)
	r.want(c.SetMeta(done, []byte("x")), context.Canceled)
	r.want(c.Rewind(done, 1), context.Canceled)
	r.want(c.SetSystem(done, tokens(1, 5)), context.Canceled)
	r.want(c.Forget(done, 1), context.Canceled)
	r.want(r.h.Warm(done, "w", tokens(1, 20)), context.Canceled)
	r.want(r.h.Trim(done, 1<<20), context.Canceled)
	if len(c.Facts()) > 0 || c.Meta() != nil || c.Stats().Turns != 1 {
		t.Errorf("facts %v, meta %q, %+v", c.Facts(), c.Meta(), c.Stats())
	}
}

// What a caller gives and gets is the caller's: changing it changes no conversation.
func TestMemoryIsTheCallers(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	system, fact, message := tokens(1, 5), tokens(2, 4), tokens(3, 6)
	c := r.conversation("a", chat.Options{System: system, Facts: 20, Ring: 40, Merge: func(_ context.Context, fs []chat.Fact, _ int) ([]chat.Fact, error) {
		for _, f := range fs {
			clear(f.Tokens)
		}
		return nil, errTest
	}})
	r.check(c.SetFact(ctx, "a", fact))
	r.check(c.SetMeta(ctx, []byte("meta")))
	for _, s := range [][]kv.Token{system, fact, c.Facts()[0].Tokens} {
		clear(s)
	}
	clear(c.Meta())
	r.want(c.SetFact(ctx, "b", tokens(4, 20)), errTest)
	for i, err := range r.h.List(ctx) {
		r.check(err)
		clear(i.Meta)
	}
	embedding := []float32{1, 2}
	turn := r.begin(c, message, chat.BeginOptions{Meta: []byte("m"), Embedding: embedding})
	clear(message)
	clear(embedding)
	clear(turn.Tokens())
	r.check(turn.Commit(ctx))
	x := c.Turns()[0]
	clear(x.Message)
	clear(x.Embedding)
	clear(x.Meta)
	x = c.Turns()[0]
	if string(c.Meta()) != "meta" || !slices.Equal(c.Facts()[0].Tokens, tokens(2, 4)) || !slices.Equal(x.Message, tokens(3, 6)) ||
		string(x.Meta) != "m" || !slices.Equal(x.Embedding, []float32{1, 2}) {
		t.Errorf("%q, %v, %+v", c.Meta(), c.Facts(), x)
	}
	r.check(c.Forget(ctx, 1)) // lays the log out anew
	list := see(see(see(nil, tokens(1, 5)), tokens(2, 4), kv.Range{End: 5}), tokens(5, 3), kv.Range{End: 9})
	turn = r.begin(c, tokens(5, 3), chat.BeginOptions{})
	r.expect(turn, list)
}

// Drafts by the tokens that there are.
func TestLookup(t *testing.T) {
	text := []kv.Token{1, 2, 3, 4, 1, 2, 5, 1, 2}
	for _, x := range []struct {
		n, limit int
		want     []kv.Token
	}{{2, 3, []kv.Token{5, 1, 2}}, {2, 1, []kv.Token{5}}, {3, 4, nil}, {1, 99, []kv.Token{5, 1, 2}}, {0, 4, nil}, {-1, 4, nil}, {2, 0, nil}, {2, -5, nil}, {9, 1, nil}, {99, 1, nil}} {
		if got := chat.Lookup(text, x.n, x.limit); !slices.Equal(got, x.want) {
			t.Errorf("by %d tokens, at most %d: %v, want %v", x.n, x.limit, got, x.want)
		}
	}
}

// A store that is damaged where a session lies says so, and another tokenizer is refused; the file stays.
func TestOtherTokenizer(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	c := r.conversation("a", chat.Options{})
	r.turn(c, tokens(1, 3), 3, chat.BeginOptions{})
	r.again(func(o *hashed.Options) { o.Tokenizer = "other" })
	for range 2 {
		_, err := r.h.Open(ctx, "a", chat.Options{})
		r.want(err, chat.ErrTokenizer)
	}
	for i, err := range r.h.List(ctx) {
		if r.check(err); i.ID != "a" || i.Open || i.Bytes == 0 || i.Created.IsZero() {
			t.Errorf("%+v", i)
		}
	}
	r.again(func(o *hashed.Options) { o.Tokenizer = "" })
	if c = r.conversation("a", chat.Options{}); len(c.Turns()) != 1 {
		t.Errorf("%v", c.Turns())
	}
	var open error
	h2, err := chat.NewHost(r.store, r.rt.Model(), r.rt)
	r.check(err)
	_, open = h2.Open(ctx, "a", chat.Options{})
	r.want(open, db.ErrSessionOpen)
	r.check(h2.Close())
}
