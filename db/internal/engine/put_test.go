package engine_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// In Power mode a model is in the store when that is durable, also for who asks for it while another call registers it.
func TestModelOfAnotherCallIsDurable(t *testing.T) {
	var bad atomic.Bool
	o := storetest.Options()
	o.Durability = db.Power
	s, err := storetest.TryOpen(storetest.Failing(func(c storetest.Call) error {
		if bad.Load() && c.Kind == "sync" && c.InLog() {
			return errors.New("the disk is gone")
		}
		return nil
	}), t.TempDir(), o)
	storetest.OK(t, err)
	defer s.Close()
	storetest.Must(s.Register(t.Context(), crashtest.Plain()))(t)
	bad.Store(true)
	if _, err := s.Register(t.Context(), crashtest.Windowed(16)); err == nil { // it is known now, and its frame not durable
		t.Fatal("the log cannot be synced")
	}
	if _, err := s.Register(t.Context(), crashtest.Windowed(16)); err == nil {
		t.Error("a model was acknowledged whose frame is not durable")
	}
	if _, err := s.Register(t.Context(), crashtest.Plain()); err != nil { // reads go on
		t.Error(err)
	}
}

// A put whose window rows lie before those that are stored leaves the record as it is, and no lease behind.
func TestDisjointWindowRowsLeaveNoLease(t *testing.T) {
	d := crashtest.Windowed(40)
	s, m := storetest.Fresh(t, storetest.Options(), d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}
	for _, r := range [][2]int{{12, 16}, {2, 8}} {
		rows := storetest.Filled(d, &p, 0, 16)
		w := storetest.Filled(d, &p, r[0], r[1])
		for i := range d.Tensors {
			if d.Tensors[i].Group == 1 {
				rows[i] = w[i]
			}
		}
		storetest.Must(m.Put(t.Context(), p, rows, db.PutOptions{}))(t)
	}
	storetest.Must(m.Delete(t.Context(), p))(t)
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("something still holds the deleted records: %v", err)
	}
	if n, b := storetest.Engine(s).Segments.Pending(); n != 0 {
		t.Errorf("%d records, %d bytes, wait for a lease", n, b)
	}
}

// A scope that begins within the first 16 tokens ends the first block there. What is stored behind it is found all the same,
// by the filter that puts have added to and by one that was rebuilt.
func TestScopeBeginsWithinTheOpening(t *testing.T) {
	for _, at := range []int{1, 10, 15, 16, 17} {
		s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
		p := kv.Prompt{Tokens: crashtest.Tokens(1, 100), Scope: "alice", ScopeStart: at}
		storetest.Put(t, m, p)
		storetest.Eventually(t, "the Bloom filter is built", func() bool { return storetest.Engine(s).Filter.Current().Load() != nil })
		if n, reason := storetest.Restore(t, m, p); n != 100 {
			t.Errorf("scope at %d: %d tokens (%v), expected 100", at, n, reason)
		}
		storetest.OK(t, storetest.Engine(s).RebuildFilter(t.Context()))
		if n, reason := storetest.Restore(t, m, p); n != 100 {
			t.Errorf("scope at %d, after the filter was rebuilt: %d tokens (%v), expected 100", at, n, reason)
		}
	}
}

// An extension completes its first block with rows of a stored one. If that is deleted before the new block is published, the
// deleted rows must not come back in it.
func TestDeletedRowsAreNotBorrowed(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40)} {
		s, m := storetest.Fresh(t, storetest.Options(), d)
		short := kv.Prompt{Tokens: crashtest.Tokens(1, 40)}
		long := kv.Prompt{Tokens: crashtest.Concat(short.Tokens, crashtest.Tokens(2, 20))}
		storetest.Put(t, m, short)
		w := halfPut(t, s, m, &long, 38)
		first, err := w.Known()
		for i := first; i < w.Chain.Len() && err == nil; i++ {
			err = w.Block(t.Context(), i)
		}
		storetest.OK(t, err)
		if del, err := m.Delete(t.Context(), short.Prefix(36)); err != nil || del.Blocks != 1 {
			t.Fatalf("%+v, %v", del, err)
		}
		if err := w.Publish(t.Context()); !errors.Is(err, db.ErrNotStored) {
			t.Errorf("%s: an extension of what was deleted: %v", d.Name, err)
		}
		w.Release()
		storetest.Expect(t, m, long, 32)
		if n, _ := storetest.Engine(s).Pins.Counts(); n > 0 {
			t.Errorf("%s: %d blocks are still pinned", d.Name, n)
		}
	}
}

// A put that leaves a part of its prompt to another put, which was faster, is not acknowledged if that part was deleted before
// its own is published.
func TestPutCountsOnNothingDeleted(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40)} {
		s, m := storetest.Fresh(t, storetest.Options(), d)
		p := kv.Prompt{Tokens: crashtest.Tokens(1, 48)}
		storetest.Put(t, m, p.Prefix(16))
		w := halfPut(t, s, m, &p, 0)
		storetest.Must(w.Known())(t)
		err := errors.Join(w.Block(t.Context(), 0), w.Block(t.Context(), 1))
		storetest.Put(t, m, p)
		storetest.OK(t, errors.Join(err, w.Block(t.Context(), 2)))
		storetest.Must(m.Delete(t.Context(), p.Prefix(1)))(t)
		storetest.Put(t, m, p.Prefix(16))
		if err := w.Publish(t.Context()); !errors.Is(err, db.ErrNotStored) {
			t.Errorf("%s: published above what was deleted: %v", d.Name, err)
		}
		w.Release()
		storetest.Expect(t, m, p, 16)
		if n, _ := storetest.Engine(s).Pins.Counts(); n > 0 {
			t.Errorf("%s: %d blocks are still pinned", d.Name, n)
		}
	}
}
