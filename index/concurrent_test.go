package index

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// TestReadersAndWriters: every update writes one number into all entries, while checkpoints and compactions run. A view sees
// the same number everywhere, and sees it again later.
func TestReadersAndWriters(t *testing.T) {
	testMapBytes = 64 << 10 // the file is replaced now and then
	defer func() { testMapBytes = 0 }()
	ix := must(Create(testOptions(t.TempDir()), Applied{}))(t)
	const blocks = 60
	write := func(n uint64) error {
		return ix.Update(func(tx *Txn) error {
			for i := range blocks {
				e := Entry{Key: key(i + 1), Parent: key(0), Hashes: []byte{byte(i), 1}, Seq: n, Rank: n, Loc: Loc{Segment: n % 3, Length: int64(n)}}
				if err := tx.Put(e); err != nil {
					return err
				}
			}
			return nil
		})
	}
	ok(t, write(1))
	var stop atomic.Bool
	var reads atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				v := ix.View()
				n := uint64(0)
				for range 3 { // the same view must answer the same
					err := checkNumber(v, &n, blocks)
					if err != nil {
						t.Error(err)
						stop.Store(true)
					}
				}
				v.Release()
				reads.Add(1)
			}
		})
	}
	rounds := uint64(60)
	if testing.Short() {
		rounds = 10
	}
	for n := uint64(2); n < rounds && !stop.Load(); n++ {
		ok(t, write(n))
		switch n % 4 {
		case 0:
			ix.Freeze()
			ok(t, write(n+1000))
			save(t, ix, n)
		case 1:
			ok(t, ix.Compact())
		case 2:
			verifyClean(t, ix)
		}
	}
	stop.Store(true)
	wg.Wait()
	ok(t, ix.Close())
	t.Logf("%d views read", reads.Load())
}

func checkNumber(v *View, n *uint64, blocks int) error {
	seen := 0
	var wrong error
	err := v.Blocks(kv.Key{}, 0, func(e Entry) bool {
		if *n == 0 {
			*n = e.Seq
		}
		if e.Seq != *n {
			wrong = fmt.Errorf("entry with %d in a view with %d", e.Seq, *n)
		}
		seen++
		return wrong == nil
	})
	leaves := 0
	lerr := v.Leaves(kv.Fingerprint{}, nil, func(_ kv.Key, rank uint64) bool {
		if rank != *n {
			wrong = fmt.Errorf("leaf with %d in a view with %d", rank, *n)
		}
		leaves++
		return wrong == nil
	})
	_, _, okB, okA, nerr := v.Neighbors(key(0), kv.ScopeID{}, []byte{byte(blocks / 2), 1})
	if wrong == nil && (seen != blocks || leaves != blocks || !okB || !okA || v.Counts().Bytes != int64(*n)*int64(blocks)) {
		wrong = fmt.Errorf("%d entries, %d leaves, neighbours %v %v, counts %v", seen, leaves, okB, okA, v.Counts())
	}
	return errors.Join(err, lerr, nerr, wrong)
}

// TestReadOnly: several may read one file, updates stay in memory, nothing is written.
func TestReadOnly(t *testing.T) {
	o := testOptions(t.TempDir())
	m := build(t, o, 50)
	o.ReadOnly = true
	a, b := must(Open(o))(t), must(Open(o))(t)
	e := Entry{Key: key(999), Parent: key(1), Model: kv.Fingerprint{1}, Hashes: []byte{1, 2}}
	ok(t, a.Update(func(tx *Txn) error { return tx.Put(e) }))
	a.Freeze()
	if err := a.Checkpoint(context.Background(), Applied{}); !errors.Is(err, ErrReadOnly) {
		t.Error("Checkpoint:", err)
	}
	if err := a.Compact(); !errors.Is(err, ErrReadOnly) {
		t.Error("Compact:", err)
	}
	if _, err := Create(o, Applied{}); !errors.Is(err, ErrReadOnly) {
		t.Error("Create:", err)
	}
	with := m.clone()
	with.put(e)
	for ix, want := range map[*Index]*model{a: with, b: m} {
		want.check(t, ix)
		ok(t, ix.Close())
	}
}

// TestMemory is an index without a file.
func TestMemory(t *testing.T) {
	ix := Memory()
	m := newModel()
	for n := range 50 {
		e := Entry{Key: key(n + 1), Parent: key(n / 2), Rank: uint64(n), Hashes: []byte{byte(n), 0}, Loc: Loc{Length: 5}}
		enter(t, ix, m, []Entry{e})
		if n == 20 {
			ix.Freeze()
		}
		if n%3 == 0 {
			m.remove(key(n/2), 0)
			ok(t, ix.Update(func(tx *Txn) error { return tx.Remove(key(n/2), 0) }))
		}
	}
	m.check(t, ix)
	if err := ix.Checkpoint(context.Background(), Applied{}); !errors.Is(err, ErrReadOnly) {
		t.Error("Checkpoint:", err)
	}
	if ix.Bytes() != 0 {
		t.Error("Bytes:", ix.Bytes())
	}
	ok(t, ix.Close())
	if err := ix.Update(func(*Txn) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Error("Update after Close:", err)
	}
}

// TestTouchesLeaveNoTombstones: what is touched a thousand times between two checkpoints is one row.
func TestTouchesLeaveNoTombstones(t *testing.T) {
	_, ix, _ := opened(t, 20)
	for n := range uint64(1000) {
		ok(t, ix.Update(func(tx *Txn) error {
			err := tx.Use(key(20), 5000+n, 1, 0)
			if errors.Is(err, ErrNotFound) {
				err = tx.Put(Entry{Key: key(20), Parent: key(6)})
			}
			return err
		}))
	}
	if n := ix.rows.active.size(); n > 6 {
		t.Errorf("%d rows in the overlay", n)
	}
}

// TestMisuse: a view that is used after its release says so, and does not call it damage.
func TestMisuse(t *testing.T) {
	ix := Memory()
	v := ix.View()
	v.Release()
	v.Release()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	v.Get(key(1), 0)
}

// TestVerifyFindsInconsistency: rows that are whole but do not belong together.
func TestVerifyFindsInconsistency(t *testing.T) {
	e := Entry{Key: key(1), Parent: key(0), Model: kv.Fingerprint{1}, Flags: FlagScopeRoot, Loc: Loc{Length: 10}}
	breaks := map[string]func(tx *Txn){
		"leaf is missing":   func(tx *Txn) { tx.active = tx.active.drop(appendLeafKey(nil, e.Model, 0, e.Key), tx.edit) },
		"child is missing":  func(tx *Txn) { tx.active = tx.active.drop(appendChildKey(nil, e.Parent, e.Scope, nil, e.Key), tx.edit) },
		"scope is missing":  func(tx *Txn) { tx.active = tx.active.drop(appendScopeKey(nil, e.Scope, e.Key), tx.edit) },
		"entry is missing":  func(tx *Txn) { tx.active = tx.active.drop(appendBlockKey(nil, e.Key, 0), tx.edit) },
		"one leaf too many": func(tx *Txn) { tx.set(appendLeafKey(nil, e.Model, 7, e.Key), empty) },
		"count is wrong":    func(tx *Txn) { tx.counters.total.Bytes++ },
		"count of a model":  func(tx *Txn) { tx.counters.add(&Entry{Loc: Loc{Length: 1}}, 1, tx.edit) },
	}
	for name, fn := range breaks {
		ix := Memory()
		ok(t, ix.Update(func(tx *Txn) error {
			err := tx.Put(e)
			fn(tx)
			return err
		}))
		found := 0
		ok(t, ix.Verify(context.Background(), func(e *damage.Error) { found++ }, func(int64) {}))
		if found == 0 {
			t.Errorf("%s: nothing reported", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	ix := must(Create(testOptions(t.TempDir()), Applied{}))(t)
	defer ix.Close()
	if err := ix.Verify(ctx, func(*damage.Error) {}, func(int64) {}); !errors.Is(err, context.Canceled) {
		t.Error("cancelled:", err)
	}
	if err := ix.Checkpoint(ctx, Applied{}); !errors.Is(err, context.Canceled) {
		t.Error("cancelled:", err)
	}
}
