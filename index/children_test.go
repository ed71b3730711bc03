package index

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// TestNeighbors compares with looking at every child, for many children that begin alike.
func TestNeighbors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ix := Memory()
		m := newModel()
		scopes := []kv.ScopeID{{}, {1}, {255}}
		n := rapid.IntRange(0, 30).Draw(t, "children")
		for i := range n {
			e := Entry{Key: key(i + 10), Parent: key(1), Scope: rapid.SampledFrom(scopes).Draw(t, "scope"), Hashes: drawHashes(t)}
			enter(t, ix, m, []Entry{e})
		}
		v := ix.View()
		defer v.Release()
		for range 10 {
			scope, q := rapid.SampledFrom(scopes).Draw(t, "scope"), drawHashes(t)
			ok(t, m.compareNeighbors(v, key(1), scope, q))
			// No child of the scope shares more than the neighbours do.
			before, after := m.neighbors(key(1), scope, q)
			most := 0
			for _, n := range []*Entry{before, after} {
				if n != nil {
					most = max(most, lcp(Entry{Hashes: q}, *n))
				}
			}
			var like []kv.Key
			for _, e := range m.children(key(1)) {
				if n := lcp(Entry{Hashes: q}, e); e.Scope == scope && n > most {
					t.Fatalf("%x: child %x shares %d tokens, neighbours %d", q, e.Hashes, n, most)
				}
				if h := hashesOf(Entry{Hashes: q}); e.Scope == scope && bytes.HasPrefix(hashesOf(e), h) {
					like = append(like, e.Key)
				}
			}
			got := []kv.Key{}
			ok(t, v.ChildrenLike(key(1), scope, q, func(k kv.Key) bool { got = append(got, k); return true }))
			short := map[kv.Key]bool{}
			for _, e := range m.children(key(1)) {
				short[e.Key] = e.Scope == scope && bytes.HasPrefix(hashesOf(Entry{Hashes: q}), hashesOf(e))
			}
			last := len(q) + 1
			ok(t, v.StoredPrefixes(key(1), scope, q, func(k kv.Key, hashed int) bool {
				if e, _ := m.entry(k); !short[k] || len(hashesOf(e)) != 2*hashed || hashed > last {
					t.Fatalf("StoredPrefixes(%x): %s with %d tokens", q, k, hashed)
				}
				short[k], last = false, hashed
				return true
			}))
			for k, missed := range short {
				if missed {
					t.Fatalf("StoredPrefixes(%x) missed %s", q, k)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(append([]kv.Key{}, like...)) {
				t.Fatalf("ChildrenLike(%x) = %v, want %v", q, got, like)
			}
		}
		rows := 0
		if err := v.ChildRows(func(parent kv.Key, scope kv.ScopeID, hashes []byte, child kv.Key) bool {
			e, ok := m.entry(child)
			if !ok || e.Parent != parent || e.Scope != scope || !bytes.Equal(hashesOf(e), hashes) {
				t.Fatalf("ChildRows: %s %s %x %s, want %v", parent, scope, hashes, child, e)
			}
			rows++
			return true
		}); err != nil || rows != n {
			t.Fatalf("%d rows of %d: %v", rows, n, err)
		}
	})
}

// TestOrderOfPutsAndRemoves: the rows do not depend on the order in which a tree was put, or a subtree removed.
func TestOrderOfPutsAndRemoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "blocks")
		var tree []Entry
		for i := 1; i <= n; i++ {
			tree = append(tree, Entry{Key: key(i), Parent: key(i / 2), Rank: 5, Hashes: []byte{byte(i), 1}, Loc: Loc{Length: 1}})
		}
		perm := rapid.Permutation(tree).Draw(t, "order")
		gone := rapid.IntRange(1, n).Draw(t, "subtree")
		out := rapid.Permutation(tree).Draw(t, "order of removal")
		under := func(i int) bool {
			for ; i > gone; i /= 2 {
			}
			return i == gone
		}
		m, ix := newModel(), Memory()
		enter(t, ix, m, perm)
		m.check(t, ix)
		ok(t, ix.Update(func(tx *Txn) error {
			for _, e := range out {
				for i := 1; i <= n; i++ {
					if e.Key == key(i) && under(i) {
						m.remove(e.Key, 0)
						if err := tx.Remove(e.Key, 0); err != nil {
							return err
						}
					}
				}
			}
			return nil
		}))
		m.check(t, ix)
	})
}

// TestInheritedRank: a parent that becomes a leaf is as recent as the child that went.
func TestInheritedRank(t *testing.T) {
	type recency struct {
		rank uint64
		used uint32
	}
	for _, x := range []struct{ parent, child, want recency }{
		{recency{5, 1}, recency{9, 3}, recency{9, 3}},
		{recency{9, 3}, recency{5, 1}, recency{9, 3}},
		{recency{9, 1}, recency{5, 3}, recency{9, 3}},
		{recency{5, 3}, recency{9, 1}, recency{9, 3}},
	} {
		ix := Memory()
		ok(t, ix.Update(func(tx *Txn) error {
			return errors.Join(
				tx.Put(Entry{Key: key(1), Parent: key(0), Rank: x.parent.rank, Used: x.parent.used}),
				tx.Put(Entry{Key: key(2), Parent: key(1), Rank: x.child.rank, Used: x.child.used}),
				tx.Remove(key(2), 0))
		}))
		v := ix.View()
		if e, _, _ := v.Get(key(1), 0); e.Rank != x.want.rank || e.Used != x.want.used {
			t.Errorf("%+v: got %d, %d", x, e.Rank, e.Used)
		}
		v.Release()
	}
}
