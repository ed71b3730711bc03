package db

import (
	"errors"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/check"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/kv"
)

// A scope that begins within the first 16 tokens ends the first block there. What is stored behind it is found all the same,
// by the filter that puts have added to and by one that was rebuilt.
func TestScopeBeginsWithinTheOpening(t *testing.T) {
	for _, at := range []int{1, 10, 15, 16, 17} {
		s := open(t, t.TempDir(), options())
		m := model(t, s, plain())
		p := kv.Prompt{Tokens: tokens(1, 100), Scope: "alice", ScopeStart: at}
		put(t, m, p)
		eventually(t, "the Bloom filter is built", func() bool { return s.eng.Inside().Bloom().Load() != nil })
		if n, reason := restore(t, m, p); n != 100 {
			t.Errorf("scope at %d: %d tokens (%v), expected 100", at, n, reason)
		}
		if err := s.eng.RebuildBloom(ctx); err != nil {
			t.Fatal(err)
		}
		if n, reason := restore(t, m, p); n != 100 {
			t.Errorf("scope at %d, after the filter was rebuilt: %d tokens (%v), expected 100", at, n, reason)
		}
	}
}

// An extension completes its first block with rows of a stored one. If that is deleted before the new block is published, the
// deleted rows must not come back in it.
func TestDeletedRowsAreNotBorrowed(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), windowed(40)} {
		s := open(t, t.TempDir(), options())
		m := model(t, s, d)
		short := kv.Prompt{Tokens: tokens(1, 40)}
		long := kv.Prompt{Tokens: concat(short.Tokens, tokens(2, 20))}
		put(t, m, short)
		w := s.eng.Inside().NewPut(m.ms, filled(d, &long, 38, 60), nil, write.Options{Codec: s.o.Codec})
		if err := w.Plan(&long); err != nil {
			t.Fatal(err)
		}
		first, err := w.Known()
		for i := first; i < w.Chain.Len() && err == nil; i++ {
			err = w.Block(ctx, i)
		}
		if err != nil {
			t.Fatal(err)
		}
		if del, err := m.Delete(ctx, short.Prefix(36)); err != nil || del.Blocks != 1 {
			t.Fatalf("%+v, %v", del, err)
		}
		if err := w.Publish(ctx); !errors.Is(err, ErrNotStored) {
			t.Errorf("%s: an extension of what was deleted: %v", d.Name, err)
		}
		w.Release()
		expect(t, m, long, 32)
		if n, _ := s.eng.Pins.Counts(); n > 0 {
			t.Errorf("%s: %d blocks are still pinned", d.Name, n)
		}
	}
}

// A dead segment that is unlinked while Verify is at work is no damage.
func TestVerifyBesideUnlinking(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	keep, gone := kv.Prompt{Tokens: tokens(1, 64)}, kv.Prompt{Tokens: tokens(2, 64)}
	for _, p := range []kv.Prompt{keep, gone} { // each in a segment of its own
		put(t, m, p)
		if err := errors.Join(s.Suspend(ctx), s.Resume(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	x, err := m.Match(ctx, gone, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Delete(ctx, gone); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Delete(ctx, gone.Prefix(1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
	}
	before := len(s.eng.Segments.Segments())
	unlink := sync.OnceFunc(func() {
		done := make(chan error) // somebody else does it
		go func() { done <- errors.Join(x.Close(), s.eng.Inside().Reclaim(ctx)) }()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if out, err := check.Segments(ctx, s.eng, func(engine.Progress) { unlink() }); err != nil || len(out.Damage) > 0 {
		t.Errorf("%v, %v", out.Damage, err)
	}
	if after := len(s.eng.Segments.Segments()); after != before-1 {
		t.Fatalf("%d segments, %d before: this test shows nothing", after, before)
	}
}

// A put that leaves a part of its prompt to another put, which was faster, is not acknowledged if that part was deleted before
// its own is published.
func TestPutCountsOnNothingDeleted(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), windowed(40)} {
		s := open(t, t.TempDir(), options())
		m := model(t, s, d)
		p := kv.Prompt{Tokens: tokens(1, 48)}
		put(t, m, p.Prefix(16))
		w := s.eng.Inside().NewPut(m.ms, filled(d, &p, 0, 48), nil, write.Options{Codec: s.o.Codec})
		if err := w.Plan(&p); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Known(); err != nil {
			t.Fatal(err)
		}
		err := errors.Join(w.Block(ctx, 0), w.Block(ctx, 1))
		put(t, m, p)
		if err := errors.Join(err, w.Block(ctx, 2)); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Delete(ctx, p.Prefix(1)); err != nil {
			t.Fatal(err)
		}
		put(t, m, p.Prefix(16))
		if err := w.Publish(ctx); !errors.Is(err, ErrNotStored) {
			t.Errorf("%s: published above what was deleted: %v", d.Name, err)
		}
		w.Release()
		expect(t, m, p, 16)
		if n, _ := s.eng.Pins.Counts(); n > 0 {
			t.Errorf("%s: %d blocks are still pinned", d.Name, n)
		}
	}
}

// An operation's callbacks may use the store as often as they like while somebody waits to have it to himself: the wait is
// between the two of them, not for each call.
func TestManyCallsFromACallback(t *testing.T) {
	l := newLife()
	if err := l.enter(false); err != nil {
		t.Fatal(err)
	}
	var owner sync.WaitGroup
	owner.Go(func() {
		l.own(nil)
		l.disown()
	})
	eventually(t, "the owner waits", func() bool { return !l.sure.Load() })
	var inside sync.WaitGroup
	for range 3 {
		inside.Go(func() {
			for range 1000 {
				if err := l.enter(false); err != nil {
					t.Error(err)
				}
				l.leave()
			}
		})
	}
	inside.Wait()
	l.leave()
	owner.Wait()
	if n := l.users.Load(); n != 0 {
		t.Errorf("%d operations are under way", n)
	}
}
