package index

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// drawEntry draws from few keys, so that chains, replacements and shared parents are common.
func drawEntry(t *rapid.T, maxKey int) Entry {
	n := rapid.IntRange(1, maxKey).Draw(t, "key")
	e := Entry{
		Key:   key(n),
		Group: uint8(rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "group")),
		// A parent has a lower number, so that there are no cycles. Now and then it is another one than before.
		Parent: key(n / rapid.SampledFrom([]int{2, 2, 2, 3, 50}).Draw(t, "parent")),
		Model:  kv.Fingerprint{byte(rapid.IntRange(1, 2).Draw(t, "model"))},
		Scope:  kv.ScopeID{byte(rapid.IntRange(0, 2).Draw(t, "scope"))},
		Loc: Loc{
			Segment: rapid.Uint64Range(1, 5).Draw(t, "segment"),
			Offset:  rapid.Int64Range(0, 1<<40).Draw(t, "offset"),
			Length:  rapid.Int64Range(0, 1<<20).Draw(t, "length"),
			Tier:    uint8(n % 3),
		},
		First: uint32(n), Tokens: uint16(n % 65), RowCount: uint16(n % 7), RowFirst: uint16(n % 5),
		Seq:  rapid.Uint64Range(0, 1000).Draw(t, "seq"),
		Rank: rapid.Uint64Range(0, 30).Draw(t, "rank"),
		Used: rapid.Uint32Range(0, 9).Draw(t, "used"), Created: rapid.Int64Range(0, 9).Draw(t, "created"),
		Hits: uint32(rapid.IntRange(0, 3).Draw(t, "hits")),
	}
	if rapid.IntRange(0, 3).Draw(t, "scope root") == 0 {
		e.Flags |= FlagScopeRoot
	}
	if e.Group == 0 {
		e.Hashes = drawHashes(t)
	}
	return e
}

func drawHashes(t *rapid.T) []byte {
	// Two values a byte: long common prefixes, and zeros.
	n := rapid.SampledFrom([]int{0, 1, 2, 3, 5, 64, 70}).Draw(t, "hashes")
	h := make([]byte, 2*n)
	for i := range min(len(h), 10) {
		h[i] = byte(rapid.IntRange(0, 1).Draw(t, "hash"))
	}
	return h
}

// TestModel does random things to an index and to plain maps, and compares all answers. Views that are held across
// changes, checkpoints, compactions and closes keep answering as of their time.
func TestModel(t *testing.T) {
	defer func() { testMapBytes = 0 }()
	rapid.Check(t, testModel)
}

func testModel(t *rapid.T) {
	// A small map, so that bbolt runs into its end again and again.
	testMapBytes = rapid.SampledFrom([]int64{0, 0, 32 << 10, 256 << 10}).Draw(t, "map")
	dir := must(os.MkdirTemp("", "index"))(t)
	defer os.RemoveAll(dir)
	o := testOptions(dir)
	ix := must(Create(o, Applied{}))(t)
	defer func() { ix.Close() }()

	m := newModel()                        // now
	saved, savedAt := m.clone(), Applied{} // as of the last checkpoint
	var frozen *model
	type held struct {
		v *View
		m *model
	}
	var views []held
	maxKey := rapid.SampledFrom([]int{6, 40, 300}).Draw(t, "keys")

	check := func() {
		v := ix.View()
		defer v.Release()
		ok(t, m.compare(v))
	}
	steps := map[string]func(*rapid.T){
		"update": func(t *rapid.T) {
			abort := rapid.IntRange(0, 9).Draw(t, "abort") == 0
			next := m.clone()
			oops := errors.New("oops")
			err := ix.Update(func(tx *Txn) error {
				for range rapid.IntRange(1, maxKey/2).Draw(t, "changes") {
					if err := change(t, tx, next, maxKey); err != nil {
						return err
					}
				}
				if err := next.compare(&tx.View); err != nil {
					return err
				}
				if abort {
					return oops
				}
				return nil
			})
			switch {
			case abort && errors.Is(err, oops):
			case err != nil:
				t.Fatal(err)
			default:
				m = next
			}
		},
		"panic": func(t *rapid.T) {
			defer func() { recover() }()
			ix.Update(func(tx *Txn) error {
				tx.Put(drawEntry(t, maxKey))
				panic("oops")
			})
		},
		"hold": func(t *rapid.T) {
			if len(views) < 4 {
				views = append(views, held{ix.View(), m.clone()})
			}
		},
		"look back": func(t *rapid.T) {
			for _, h := range views {
				if err := h.m.compare(h.v); err != nil {
					t.Fatal("held view:", err)
				}
			}
		},
		"let go": func(t *rapid.T) {
			if len(views) > 0 {
				views[0].v.Release()
				views = views[1:]
			}
		},
		"freeze": func(t *rapid.T) {
			ix.Freeze()
			frozen = m.clone()
		},
		"checkpoint": func(t *rapid.T) {
			if frozen == nil {
				frozen = m.clone()
			}
			a := Applied{LSN: savedAt.LSN + 1, WALFile: 7, NextSeq: 8, NextSegment: 9, Clock: 10,
				Extra: bytes.Repeat([]byte{byte(savedAt.LSN)}, rapid.SampledFrom([]int{0, 1, 960, 961, 5000}).Draw(t, "extra"))}
			ok(t, ix.Checkpoint(context.Background(), a))
			saved, savedAt, frozen = frozen, a, nil
		},
		"compact": func(t *rapid.T) {
			ok(t, ix.Compact())
		},
		"reopen": func(t *rapid.T) {
			ok(t, ix.Close())
			if v := ix.View(); v != nil {
				if _, _, err := v.Get(key(1), 0); !errors.Is(err, ErrClosed) {
					t.Fatal("closed:", err)
				}
			}
			if len(views) > 0 { // they keep the lock of the file
				for _, h := range views {
					if err := h.m.compare(h.v); err != nil {
						t.Fatal("view of a closed index:", err)
					}
					h.v.Release()
				}
				views = nil
			}
			ix = must(Open(o))(t)
			if got := ix.Applied(); fmt.Sprint(got) != fmt.Sprint(savedAt) {
				t.Fatalf("applied %v, want %v", got, savedAt)
			}
			m, frozen = saved.clone(), nil
		},
		"verify": func(t *rapid.T) {
			verifyClean(t, ix)
		},
		"": func(*rapid.T) { check() },
	}
	t.Repeat(steps)
	for _, h := range views {
		if err := h.m.compare(h.v); err != nil {
			t.Fatal("held view:", err)
		}
		h.v.Release()
	}
	verifyClean(t, ix)
	boltCheck(t, ix)
}

func change(t *rapid.T, tx *Txn, m *model, maxKey int) error {
	k, group := key(rapid.IntRange(1, maxKey).Draw(t, "key")), uint8(rapid.IntRange(0, 2).Draw(t, "group"))
	e, stored := m.blocks[blockID{k, group}]
	want := func(err error) error {
		if !stored && errors.Is(err, ErrNotFound) {
			return nil
		}
		if !stored {
			return fmt.Errorf("not stored, but %v", err)
		}
		return err
	}
	switch rapid.SampledFrom([]string{"put", "put", "put", "remove", "rank", "flags", "loc"}).Draw(t, "change") {
	case "put":
		e := drawEntry(t, maxKey)
		m.put(e)
		return tx.Put(e)
	case "remove":
		m.remove(k, group)
		return tx.Remove(k, group)
	case "rank":
		e, stored = m.entry(k)
		e.Rank, e.Hits = rapid.Uint64Range(0, 30).Draw(t, "rank"), 4
		used := rapid.Uint32Range(0, 9).Draw(t, "used")
		if e.Used = cmp.Or(used, e.Used); stored {
			m.blocks[blockID{k, 0}] = e
		}
		return want(tx.Use(k, e.Rank, e.Hits, used))
	case "flags":
		flags := uint8(rapid.IntRange(0, 7).Draw(t, "flags"))
		e.Flags = flags&^FlagScopeRoot | e.Flags&FlagScopeRoot
		if stored {
			m.blocks[blockID{k, group}] = e
		}
		return want(tx.SetFlags(k, group, flags))
	default:
		e.Loc, e.Seq = Loc{Segment: rapid.Uint64Range(1, 5).Draw(t, "segment"), Length: 77}, 99
		if stored {
			m.blocks[blockID{k, group}] = e
		}
		return want(tx.SetLoc(k, group, e.Loc, e.Seq))
	}
}

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
