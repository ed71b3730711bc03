package chat_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/kv"
)

// script is a conversation with a bit of everything. Whatever fails is repeated, as often as retry says, and what it saw is written down.
func script(r *room, retry func(what string, f func() error)) (seen []string) {
	note := func(what string, x any) { seen = append(seen, fmt.Sprint(what, " ", x)) }
	o := chat.Options{System: tokens(1, 20), Facts: 40, Ring: 60, Reserve: 10}
	var c *chat.Conversation
	open := func() {
		retry("open", func() (err error) { c, err = r.h.Open(ctx, "a", o); return err })
	}
	var t *chat.Turn
	instead := chat.TurnID(0)
	begin := func(seed, n, recent int) {
		retry("begin", func() (err error) {
			t, err = c.Begin(ctx, tokens(seed, n), chat.BeginOptions{Policy: chat.Recent(recent), Instead: instead})
			return err
		})
		retry("logits", func() error {
			scores, err := t.Logits(ctx)
			if err == nil {
				note("scores", slices.Clone(scores[:4]))
			}
			return err
		})
	}
	generate := func(n int) {
		for n > 0 {
			retry("generate", func() error {
				next, stop := iter.Pull2(t.Generate(ctx, chat.Greedy, nil))
				defer stop()
				_, err, _ := next()
				return err
			})
			n--
		}
	}
	commit := func() {
		retry("commit", func() error { return t.Commit(ctx) })
		note("answer", t.Answer())
	}
	open()
	retry("fact", func() error { return c.SetFact(ctx, "a", tokens(2, 5)) })
	begin(3, 6, 9)
	generate(5)
	commit()
	retry("fact", func() error { return c.SetFact(ctx, "a", tokens(4, 5)) })
	begin(5, 70%50, 0) // in several batches
	var bs []*chat.Branch
	retry("fork", func() (err error) { bs, err = t.Fork(ctx, 2); return err })
	retry("advance", func() error { return t.Advance(ctx, bs, [][]kv.Token{tokens(6, 2), tokens(7, 3)}) })
	note("branches", []any{bs[0].Logits()[:4], bs[1].Logits()[:4]})
	retry("promote", func() error { return bs[1].Promote(ctx) })
	retry("verify", func() error {
		n, err := t.Verify(ctx, tokens(8, 3), chat.Greedy)
		if err == nil {
			note("accepted", n)
		}
		return err
	})
	commit()
	begin(9, 12, 1)
	generate(4)
	commit() // turns are evicted by now
	retry("trim", func() error { return r.h.Trim(ctx, r.rt.Limits().Cells) })
	begin(10, 8, 2)
	generate(3)
	commit()
	retry("system", func() error { return c.SetSystem(ctx, tokens(11, 22)) })
	o.System = nil
	begin(12, 8, 2)
	generate(3)
	commit()
	last := c.Turns()[len(c.Turns())-1].ID
	retry("rewind", func() error { return c.Rewind(ctx, last) })
	begin(13, 8, 2)
	generate(3)
	commit()
	instead = t.ID()
	retry("fact", func() error { return c.SetFact(ctx, "b", tokens(16, 5)) })
	begin(17, 8, 2)
	generate(2)
	retry("abort", func() error { return t.Abort(ctx) })
	note("turns", len(c.Turns()))
	begin(18, 9, 2)
	generate(3)
	commit()
	instead = 0
	retry("forget", func() error { return c.Forget(ctx, t.ID()) })
	retry("warm", func() error { return r.h.Warm(ctx, "w", tokens(14, 300)) })
	retry("close", func() error { return c.Close() })
	open()
	begin(15, 8, 2)
	generate(3)
	commit()
	for _, p := range c.View() {
		note("piece", p)
	}
	return seen
}

// Any one call of the runtime may fail: the method returns its error, and repeated does what it would have done. Nothing is done by half,
// done twice, or leaks.
func TestAnyCallFails(t *testing.T) {
	o := hashed.Options{Batch: 16, Cells: 400, Sequences: 5}
	r := newRoom(t, o)
	counts := map[string]int{}
	r.rt.before(func(call string) error { counts[call]++; return nil })
	once := func(what string, f func() error) {
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	want := script(r, once)
	r.close()
	for _, call := range []string{"decode", "load", "store", "copy"} {
		every := 1
		if testing.Short() {
			every = 5
		}
		for k := 0; k < counts[call]; k += every {
			r := newRoom(t, o)
			n := 0
			r.rt.before(func(c string) error {
				if c == call {
					if n++; n == k+1 {
						return errTest
					}
				}
				return nil
			})
			failed := ""
			got := script(r, func(what string, f func() error) {
				for {
					err := f()
					if err == nil {
						return
					}
					if !errors.Is(err, errTest) || failed != "" {
						t.Fatalf("%s %d fails, %s: %v", call, k, what, err)
					}
					failed = what
				}
			})
			if i := slices.IndexFunc(want, func(s string) bool { return !slices.Contains(got, s) }); !slices.Equal(got, want) {
				t.Fatalf("%s %d fails, in %q: %d things are seen and %d expected; first missing: %s", call, k, failed, len(got), len(want), want[max(0, i)])
			}
			r.close()
		}
	}
	t.Logf("calls that failed, one at a time: %v", counts)
}

// A runtime that says of stored rows what is not so costs their computation.
func TestLoadThatFallsShort(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	c := r.conversation("a", chat.Options{})
	r.turn(c, tokens(1, 60), 4, chat.BeginOptions{})
	list := see(nil, tokens(1, 60))
	for _, x := range c.Turns()[0].Answer {
		list = append(list, hashed.Entry{Token: x, Pos: len(list), Visible: []kv.Range{{End: len(list)}}})
	}
	r.check(r.h.Trim(ctx, 1<<13))
	r.rt.load = func(n int, ranges []kv.Range) int { // one block is damaged, whenever it is read
		if len(ranges) > 0 && ranges[len(ranges)-1].End > 30 {
			return 16
		}
		return n
	}
	turn := r.begin(c, tokens(2, 5), chat.BeginOptions{})
	r.expect(turn, see(list, tokens(2, 5), kv.Range{End: 64}))
}

// When Close has returned, the runtime is somebody else's.
func TestNothingAfterClose(t *testing.T) {
	r := newRoom(t, hashed.Options{Batch: 4})
	calls, closed := 0, make(chan struct{})
	r.rt.before(func(call string) error {
		select {
		case <-closed:
			t.Errorf("%s after Close", call)
		default:
		}
		if calls++; calls == 3 {
			go func() { defer close(closed); r.check(r.h.Close()) }()
		}
		return nil
	})
	r.want(r.h.Warm(ctx, "w", tokens(1, 8000)), chat.ErrClosed)
	<-closed
}

// No position is behind those that the model was trained for, and what can never fit is refused.
func TestTrained(t *testing.T) {
	r := newRoom(t, hashed.Options{Trained: 100})
	_, err := r.h.Open(ctx, "a", chat.Options{Facts: 41, Ring: 60})
	r.want(err, chat.ErrOptions)
	for id, o := range map[string]chat.Options{"a": {Facts: 40, Ring: 60, Reserve: 10}, "b": {}, "c": {Facts: 20, Ring: 30}} {
		c := r.conversation(id, o)
		for i := range 30 {
			r.check(c.SetFact(ctx, "f", tokens(i, 9)))
			r.turn(c, tokens(i, 6), 7, chat.BeginOptions{})
			if p := c.View(); p[len(p)-1].End > 100 {
				t.Fatalf("%s: position %d, and the model was trained for 100", id, p[len(p)-1].End)
			}
		}
		r.clean(c)
		r.check(c.Close())
	}
}

// What options leave out fits the runtime, however small it is, and a sampler that is left out takes the likeliest token.
func TestLeftOut(t *testing.T) {
	r := newRoom(t, hashed.Options{Cells: 100})
	for id, o := range map[string]chat.Options{"all": {}, "facts": {Ring: 40}, "ring": {Facts: 38}} {
		c := r.conversation(id, o)
		for i := range 30 {
			t := r.begin(c, tokens(i, 3), chat.BeginOptions{})
			for _, err := range t.Generate(ctx, nil, nil) {
				if !errors.Is(err, chat.ErrTurnFull) {
					r.check(err)
				}
			}
			r.check(t.Commit(ctx))
		}
		r.clean(c)
		r.check(c.Close())
	}
	for _, o := range []chat.Options{{Ring: 99}, {Facts: 85}} { // tight, and no more than there is
		r.check(r.conversation("tight", o).Close())
	}
	for _, o := range []chat.Options{{Ring: 101}, {Facts: 101}, {Facts: 50, Ring: 51}} {
		_, err := r.h.Open(ctx, "too much", o)
		r.want(err, chat.ErrOptions)
	}
}

// A turn takes back the sequence, and the cells, that a Warm has between two slices, which has lost nothing by it.
func TestWarmGivesWay(t *testing.T) {
	for name, o := range map[string]hashed.Options{"sequences": {Cells: 3000, Sequences: 3}, "cells": {Cells: 1200, Sequences: 8}} {
		r := newRoom(t, o)
		c := r.conversation("a", chat.Options{Facts: 10, Ring: 400, Reserve: 140})
		turn := r.begin(c, tokens(1, 200), chat.BeginOptions{})
		if _, err := turn.Logits(ctx); err != nil {
			t.Fatal(err)
		}
		prompt := tokens(2, o.Cells-201)
		under, decodes := make(chan struct{}), 0
		r.rt.before(func(call string) error {
			if call == "decode" {
				if decodes++; decodes == 2 {
					close(under)
				}
				time.Sleep(2 * time.Millisecond) // whoever waits for the host for so long is the next to have it
			}
			return nil
		})
		warmed := make(chan error)
		go func() { warmed <- r.h.Warm(ctx, "w", prompt) }()
		<-under
		bs, err := turn.Fork(ctx, 1)
		for range 30 { // with what it has, there is no room for all of them
			if err == nil {
				err = turn.Advance(ctx, bs, [][]kv.Token{tokens(3, 4)})
			}
		}
		r.check(err)
		result := <-warmed
		r.rt.before(nil)
		r.check(turn.Abort(ctx))
		m, err := r.rt.Model().Match(ctx, kv.Prompt{Tokens: prompt}, db.MatchOptions{})
		r.check(err)
		if got := m.Tokens(); got < 256 || got < len(prompt) && !errors.Is(result, kv.ErrFull) || got == len(prompt) && result != nil {
			t.Errorf("%s: Warm beside a turn that needs all: %v, and %d of %d tokens are stored", name, result, got, len(prompt))
		}
		r.check(m.Close())
		r.check(r.h.Warm(ctx, "w", prompt))
		r.close()
	}
}
