package chat

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// narrow is a house with a conversation, in which nothing runs in the background.
type narrow struct {
	*house
	c    *Conversation
	opts Options
	seed int
}

func newNarrow(t *testing.T, o hashed.Options, opts Options) *narrow {
	n := &narrow{house: openHouse(t, memdir.Dir(t), o), opts: opts}
	t.Cleanup(func() { n.close() })
	n.c = n.conversation("a")
	return n
}

func (n *narrow) conversation(id string) *Conversation {
	c, err := n.h.Open(ctx, id, n.opts)
	n.check(err)
	return c
}

func (n *narrow) check(err error) {
	if err != nil {
		n.t.Helper()
		n.t.Fatal(err)
	}
}

func (n *narrow) message(tokens int) []kv.Token {
	out := make([]kv.Token, tokens)
	for i := range out {
		n.seed = (n.seed*5 + 3) % 4096
		out[i] = kv.Token(n.seed / 64)
	}
	return out
}

func (n *narrow) begin(c *Conversation, message, reserve int) *Turn {
	n.t.Helper()
	t, err := c.Begin(ctx, n.message(message), BeginOptions{Reserve: reserve})
	n.check(err)
	return t
}

// turn is a turn that fills what is reserved, the last token computed, too.
func (n *narrow) turn(c *Conversation, message, reserve int) {
	n.t.Helper()
	t := n.begin(c, message, reserve)
	n.check(t.Append(ctx, n.message(reserve)))
	_, err := t.Logits(ctx)
	n.check(err)
	n.check(t.Commit(ctx))
}

// stored is how many leading tokens of a conversation's log are in the store.
func (n *narrow) stored(c *Conversation) int {
	n.t.Helper()
	got, err := n.rt.Load(ctx, c.log.prompt(), n.rt.Limits().Sequences-1, nil)
	n.check(err)
	return got
}

// A turn goes before the rewrite of its own conversation, which gives back cells and sequences.
func TestOwnRewriteGivesWay(t *testing.T) {
	for name, o := range map[string]hashed.Options{"cells": {Cells: 50, Sequences: 8}, "sequences": {Cells: 500, Sequences: 3}} {
		n := newNarrow(t, o, Options{Facts: 8, Ring: 42, Reserve: 8, Policy: Recent(0)})
		n.turn(n.c, 4, 8)
		n.turn(n.c, 4, 8)
		n.c.rewrite = mergedFacts
		for range 3 {
			n.h.tidySome()
			n.h.tidier = true
		}
		if n.c.re == nil || n.c.re.rows < 20 {
			t.Fatalf("%s: no rewrite is under way", name)
		}
		turn := n.begin(n.c, 10, 8)
		bs, err := turn.Fork(ctx, 1)
		n.check(err)
		n.check(turn.Advance(ctx, bs, [][]kv.Token{n.message(8)}))
		n.check(bs[0].Promote(ctx))
		n.check(turn.Commit(ctx))
	}
}

// A turn goes before the rewrites of other conversations, too, also where a turn of theirs is open.
func TestOtherRewriteGivesWay(t *testing.T) {
	n := newNarrow(t, hashed.Options{Cells: 500, Sequences: 4}, Options{Facts: 8, Ring: 42, Reserve: 8, Policy: Recent(0)})
	n.turn(n.c, 4, 8)
	n.turn(n.c, 4, 8)
	n.c.rewrite = mergedFacts
	n.h.tidySlice = 8
	n.h.tidySome()
	n.h.tidier = true
	if n.c.re == nil || n.c.re.rows == 0 {
		t.Fatal("no rewrite is under way")
	}
	first := n.begin(n.c, 4, 8)
	other, err := n.h.Open(ctx, "other", n.opts)
	n.check(err)
	n.turn(other, 4, 8)
	n.check(first.Commit(ctx))
}

// Where old and new rows do not fit beside each other, the old ones go: they are stored.
func TestRewriteInOneRing(t *testing.T) {
	n := newNarrow(t, hashed.Options{Cells: 56, Sequences: 4}, Options{Facts: 8, Ring: 40, Reserve: 8})
	for range 60 {
		n.turn(n.c, 5, 8)
	}
	if s := n.c.Stats(); s.Rewrites < 3 || len(n.c.log.tokens) > 4*48+40 {
		t.Errorf("%d rewrites, a log of %d tokens", s.Rewrites, len(n.c.log.tokens))
	}
	n.check(n.c.Forget(ctx, n.c.log.lastTurn))
	n.check(n.c.SetSystem(ctx, n.message(4)))
}

// A conversation that was held in more room goes on in less.
func TestLowerRing(t *testing.T) {
	for _, turns := range []int{10, 14} { // the log is long for the lower ring, or not
		n := newNarrow(t, hashed.Options{Cells: 800}, Options{Facts: 8, Ring: 300, Reserve: 8})
		for range turns {
			n.turn(n.c, 8, 10)
		}
		n.house.o.Cells, n.opts.Ring = 64, 40
		n.again()
		n.c = n.conversation("a")
		for range 3 {
			n.turn(n.c, 8, 10)
		}
		if _, turns := n.c.log.sizes(); turns > 40 {
			t.Errorf("%d tokens of turns in a ring of 40", turns)
		}
	}
}

// When the rows of a conversation are lost, less is computed than the whole log, and in no more cells than it has.
func TestLostRows(t *testing.T) {
	n := newNarrow(t, hashed.Options{Cells: 112}, Options{Facts: 8, Ring: 40, Reserve: 8})
	for range 12 {
		n.turn(n.c, 5, 10)
	}
	before := len(n.c.log.tokens)
	_, err := n.store.Shrink(ctx, 1)
	n.check(err)
	n.again()
	n.c = n.conversation("a")
	n.turn(n.c, 5, 8)
	if s := n.c.Stats(); s.Prefilled+s.Rewritten > 60 || before < 150 {
		t.Errorf("%d tokens of %d were computed anew, %d of a new log", s.Prefilled, before, s.Rewritten)
	}
}

// Rows that could not be stored are stored later, once their time in the cache is over, too.
func TestStoreRecovers(t *testing.T) {
	boom := errors.New("boom")
	n := newNarrow(t, hashed.Options{Cells: 400}, Options{Facts: 8, Ring: 40, Reserve: 8})
	for range 6 { // turns are evicted meanwhile
		n.rt.Fail(hashed.Store, 0, boom)
		n.turn(n.c, 5, 8)
	}
	failed := n.c.Stats().StoreErrors
	if err := n.c.Stats().StoreError; failed == 0 || !errors.Is(err, boom) {
		t.Fatalf("%d errors, %v", failed, err)
	}
	n.rt.Fail(hashed.Store, 0, nil)
	n.turn(n.c, 5, 8)
	if s := n.c.Stats(); s.StoreErrors != failed {
		t.Errorf("%d errors of storing: %v", s.StoreErrors, s.StoreError)
	}
	n.check(n.h.Trim(ctx, 400))
	n.turn(n.c, 5, 8)
	if got := n.stored(n.c); got != len(n.c.log.tokens) {
		t.Errorf("%d of %d tokens are stored", got, len(n.c.log.tokens))
	}
	if s := n.c.Stats(); s.StoreErrors != failed {
		t.Errorf("%d errors of storing: %v", s.StoreErrors, s.StoreError)
	}
}

// A turn that is evicted while the log is rewritten is stored with the new log all the same: what comes after it needs its rows.
func TestEvictedDuringRewrite(t *testing.T) {
	n := newNarrow(t, hashed.Options{Cells: 400}, Options{Facts: 8, Ring: 40, Reserve: 8})
	for range 3 {
		n.turn(n.c, 5, 8)
	}
	n.c.rewrite = mergedFacts
	n.h.tidySome()
	n.turn(n.c, 5, 8)
	for n.c.rewrite != "" || n.c.unstored {
		n.h.tidier = true
		n.h.tidySome()
	}
	s := n.c.Stats()
	if got := n.stored(n.c); got != len(n.c.log.tokens) || s.StoreErrors+s.RewriteErrors > 0 || s.Rewrites != 1 {
		t.Errorf("%d of %d tokens are stored; %+v", got, len(n.c.log.tokens), s)
	}
	n.check(n.h.Trim(ctx, 400))
	n.turn(n.c, 5, 8)
	if s := n.c.Stats(); s.Prefilled > 5*5 {
		t.Errorf("%d tokens were computed, and 25 are in messages", s.Prefilled)
	}
}

// What was computed is stored before it is taken out of the cache.
func TestParkStores(t *testing.T) {
	n := newNarrow(t, hashed.Options{Cells: 400}, Options{Facts: 8, Ring: 40, Reserve: 8})
	for range 3 {
		n.turn(n.c, 5, 8)
	}
	n.c.rewrite = mergedFacts
	n.check(func() error { n.h.mu.Lock(); defer n.h.mu.Unlock(); return n.c.rewriteNow(ctx) }())
	n.check(n.c.Close())
	n.c = n.conversation("a")
	n.turn(n.c, 5, 8)
	if s := n.c.Stats(); s.Prefilled > 5 {
		t.Errorf("%d tokens were computed anew, and 5 are in the message", s.Prefilled)
	}
}

// Conversations whose rewrites do not fit beside each other are rewritten one after the other.
func TestManyRewrites(t *testing.T) {
	n := newNarrow(t, hashed.Options{Cells: 130, Sequences: 4}, Options{Facts: 8, Ring: 60, Reserve: 8, Policy: Recent(0)})
	cs := []*Conversation{n.c, n.conversation("b"), n.conversation("c"), n.conversation("d"), n.conversation("e")}
	for range 4 {
		for _, c := range cs {
			n.turn(c, 5, 8)
		}
	}
	for _, c := range cs {
		c.rewrite = mergedFacts
	}
	for range 60 { // each takes 8 slices
		n.h.tidier = true
		n.h.tidySome()
	}
	for _, c := range cs {
		if s := c.Stats(); s.Rewrites != 1 || s.RewriteErrors > 0 {
			t.Errorf("%q: %d rewrites, %v", c.ID(), s.Rewrites, s.RewriteError)
		}
	}
}

// A rewrite that failed in the background is tried again by Tidy.
func TestTidyTriesAgain(t *testing.T) {
	n := newNarrow(t, hashed.Options{}, Options{Facts: 8, Ring: 60, Reserve: 8})
	n.turn(n.c, 5, 8)
	n.c.rewrite = mergedFacts
	n.rt.Fail(hashed.Decode, 0, errors.New("boom"))
	n.h.tidySome()
	if s := n.c.Stats(); s.RewriteErrors != 1 {
		t.Fatalf("%+v", s)
	}
	n.check(n.h.Tidy(ctx))
	if s := n.c.Stats(); s.Rewrites != 1 {
		t.Errorf("Tidy left a log that is to be rewritten: %+v", s)
	}
}

// A rewrite for another reason is not put off by one that has time.
func TestMergeKeepsUrgent(t *testing.T) {
	n := newNarrow(t, hashed.Options{}, Options{System: []kv.Token{1, 2, 3}, Facts: 12, Ring: 60, Reserve: 8})
	n.turn(n.c, 5, 8)
	n.again()
	n.opts.System = []kv.Token{9, 9, 9, 9}
	n.opts.Merge = func(_ context.Context, fs []Fact, _ int) ([]Fact, error) { return fs[len(fs)-1:], nil }
	n.c = n.conversation("a")
	n.check(n.c.SetFact(ctx, "a", n.message(6)))
	n.check(n.c.SetFact(ctx, "b", n.message(6)))
	n.begin(n.c, 4, 8)
	if p := n.c.View(); p[0].End != 4 || !slices.Equal(n.c.log.tokens[:4], n.opts.System) {
		t.Errorf("the turn attends to the old system prompt: %+v", p)
	}
}
