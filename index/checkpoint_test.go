package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// TestLargeTree goes through trees of several levels, with many removals between checkpoints: what our reader and Verify take
// for granted about bbolt's pages (a branch repeats its children's first keys, unused bytes are zero, no overflow pages)
// must hold in all of them.
func TestLargeTree(t *testing.T) {
	ix := must(Create(testOptions(t.TempDir())))(t)
	defer ix.Close()
	r := rand.New(rand.NewPCG(7, 8))
	keys, rounds := 6000, 8
	if testing.Short() {
		keys, rounds = 1500, 4
	}
	if long {
		keys, rounds = 60000, 30
	}
	for round := range rounds {
		err := ix.Update(func(tx *Txn) error {
			for range keys / 3 {
				n := 1 + r.IntN(keys)
				if round%3 == 2 { // take most of it away
					if err := tx.Remove(key(n), 0); err != nil {
						return err
					}
				}
				if round%3 != 2 || n%10 == 0 {
					if err := tx.Put(randomEntry(r, n)); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		extra := make([]byte, r.IntN(100_000))
		if err := ix.Checkpoint(context.Background(), Applied{LSN: uint64(round), Extra: extra}); err != nil {
			t.Fatal(err)
		}
		verifyClean(t, ix)
		boltCheck(t, ix)
	}
	before := ix.Bytes()
	if err := ix.Compact(); err != nil {
		t.Fatal(err)
	}
	verifyClean(t, ix)
	boltCheck(t, ix)
	if after := ix.Bytes(); after > before {
		t.Errorf("compacted from %d to %d bytes", before, after)
	}
}

// TestGrowth fills an index beyond its map while a view is held, which would keep bbolt waiting for ever.
func TestGrowth(t *testing.T) {
	for _, open := range []bool{true, false} {
		t.Run(fmt.Sprintf("replaceOpen=%v", open), func(t *testing.T) {
			testMapBytes = 64 << 10
			replaceOpen, busyWait = open, 20*time.Millisecond
			defer func() { testMapBytes, replaceOpen, busyWait = 0, vfsReplaceOpen, 10*time.Second }()

			o := testOptions(t.TempDir())
			ix := must(Create(o))(t)
			m := newModel()
			fill := func(from, to int) {
				r := rand.New(rand.NewPCG(9, uint64(from)))
				if err := ix.Update(func(tx *Txn) error {
					for n := from; n < to; n++ {
						e := randomEntry(r, n)
						m.put(e)
						if err := tx.Put(e); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			fill(1, 20)
			if err := ix.Checkpoint(context.Background(), Applied{LSN: 1}); err != nil {
				t.Fatal(err)
			}
			v, was := ix.View(), m.clone()
			fill(20, 300)
			err := ix.Checkpoint(context.Background(), Applied{LSN: 2})
			if open && err != nil || !open && !errors.Is(err, ErrBusy) {
				t.Fatal("checkpoint under a view:", err)
			}
			if err := was.compare(v); err != nil {
				t.Fatal("held view:", err)
			}
			v.Release()
			if !open {
				if got := ix.Applied().LSN; got != 1 {
					t.Fatal("applied", got)
				}
				if err := ix.Checkpoint(context.Background(), Applied{LSN: 2}); err != nil {
					t.Fatal("checkpoint after the view:", err)
				}
			}
			for range 2 {
				v = ix.View()
				if err := m.compare(v); err != nil {
					t.Fatal(err)
				}
				v.Release()
				verifyClean(t, ix)
				if err := ix.Close(); err != nil {
					t.Fatal(err)
				}
				ix = must(Open(o))(t)
			}
			if got := ix.Applied().LSN; got != 2 {
				t.Error("applied", got)
			}
			if _, err := os.Stat(o.Path + ".tmp"); err == nil {
				t.Error("temporary file left behind")
			}
			ix.Close()
		})
	}
}

var vfsReplaceOpen = replaceOpen

// failFS fails one kind of operation.
type failFS struct {
	vfs.FS
	rename, syncDir error
}

func (f *failFS) Rename(old, new string) error {
	if f.rename != nil {
		return f.rename
	}
	return f.FS.Rename(old, new)
}

func (f *failFS) SyncDir(dir string) error {
	if f.syncDir != nil {
		return f.syncDir
	}
	return f.FS.SyncDir(dir)
}

// TestFailedReplace: a compaction that fails changes nothing.
func TestFailedReplace(t *testing.T) {
	for _, open := range []bool{true, false} {
		replaceOpen = open
		o := testOptions(t.TempDir())
		m := build(t, o, 30)
		fsys := &failFS{FS: vfs.OS}
		o.FS = fsys
		ix := must(Open(o))(t)
		oops := errors.New("oops")
		fsys.rename = oops
		if err := ix.Compact(); !errors.Is(err, oops) {
			t.Fatal(err)
		}
		fsys.rename = nil
		verifyClean(t, ix)
		v := ix.View()
		if err := m.compare(v); err != nil {
			t.Fatal(err)
		}
		v.Release()
		if err := ix.Compact(); err != nil {
			t.Fatal(err)
		}
		if open { // what a power cut would leave is not known
			fsys.syncDir = oops
			if err := ix.Compact(); !errors.Is(err, oops) {
				t.Fatal(err)
			}
			if err := ix.Checkpoint(context.Background(), Applied{}); !errors.Is(err, oops) {
				t.Fatal("after a failed fsync:", err)
			}
			fsys.syncDir = nil
		}
		ix.Close()
		ix = must(Open(o))(t)
		verifyClean(t, ix)
		ix.Close()
	}
	replaceOpen = vfsReplaceOpen
}

// TestCommitErrors: a full disk can be tried again, after anything else nobody knows what is on the disk.
func TestCommitErrors(t *testing.T) {
	o := testOptions(t.TempDir())
	build(t, o, 10)
	ix := must(Open(o))(t)
	defer ix.Close()
	j := must(ix.job(&Applied{}))(t)
	defer j.release()
	if err := j.failed(fmt.Errorf("write: %w", syscall.ENOSPC)); !errors.Is(err, vfs.ErrNoSpace) || j.base.file.failed() != nil {
		t.Error("full disk:", err, j.base.file.failed())
	}
	if err := j.failed(os.ErrInvalid); !errors.Is(err, os.ErrInvalid) || !errors.Is(j.base.file.failed(), os.ErrInvalid) || errors.Is(err, ErrDamaged) {
		t.Error("other error:", err, j.base.file.failed())
	}
	if err := ix.Update(func(*Txn) error { return nil }); !errors.Is(err, os.ErrInvalid) {
		t.Error("update after a failed fsync:", err)
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
			m.put(e)
			if err := ix.Update(func(tx *Txn) error { return tx.Put(e) }); err != nil {
				t.Fatal(err)
			}
		}
		v := ix.View()
		defer v.Release()
		for range 10 {
			scope, q := rapid.SampledFrom(scopes).Draw(t, "scope"), drawHashes(t)
			if err := m.compareNeighbors(v, key(1), scope, q); err != nil {
				t.Fatal(err)
			}
			// No child of the scope shares more than the neighbours do.
			_, _, _, _, b, a, _ := v.Neighbors(key(1), scope, q)
			var like []kv.Key
			for _, e := range m.children(key(1)) {
				if n := lcp(Entry{Hashes: q}, e); e.Scope == scope && n > max(a, b) {
					t.Fatalf("%x: child %x shares %d tokens, neighbours %d and %d", q, e.Hashes, n, b, a)
				}
				if h := hashesOf(Entry{Hashes: q}); e.Scope == scope && bytes.HasPrefix(hashesOf(e), h) {
					like = append(like, e.Key)
				}
			}
			got := []kv.Key{}
			if err := v.ChildrenLike(key(1), scope, q, func(k kv.Key) bool { got = append(got, k); return true }); err != nil {
				t.Fatal(err)
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
		if err := ix.Update(func(tx *Txn) error {
			for _, e := range perm {
				m.put(e)
				if err := tx.Put(e); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		v := ix.View()
		if err := m.compare(v); err != nil {
			t.Fatal(err)
		}
		v.Release()
		if err := ix.Update(func(tx *Txn) error {
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
		}); err != nil {
			t.Fatal(err)
		}
		v = ix.View()
		defer v.Release()
		if err := m.compare(v); err != nil {
			t.Fatal(err)
		}
		verifyClean(t, ix)
	})
}

// TestInheritedRank: a parent that becomes a leaf is as recent as the child that went.
func TestInheritedRank(t *testing.T) {
	for _, ranks := range [][3]uint64{{5, 9, 9}, {9, 5, 9}} {
		ix := Memory()
		if err := ix.Update(func(tx *Txn) error {
			return errors.Join(
				tx.Put(Entry{Key: key(1), Parent: key(0), Rank: ranks[0]}),
				tx.Put(Entry{Key: key(2), Parent: key(1), Rank: ranks[1]}),
				tx.Remove(key(2), 0))
		}); err != nil {
			t.Fatal(err)
		}
		v := ix.View()
		if e, _, _ := v.Get(key(1), 0); e.Rank != ranks[2] {
			t.Errorf("ranks %v: got %d", ranks, e.Rank)
		}
		v.Release()
	}
}
