package index

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		f.Value.Set("25") // each has many checkpoints; name a number to have more
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	memdir.Main(m)
}

var testUUID = kv.UUID{0xd0, 1, 2, 3}

func testOptions(dir string) Options {
	return Options{Path: filepath.Join(dir, "index.db"), UUID: testUUID}
}

func key(n int) (k kv.Key) {
	binary.BigEndian.PutUint32(k[:], uint32(n)*2654435761)
	binary.BigEndian.PutUint32(k[12:], uint32(n))
	return k
}

func ok(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(rapid.TB) T {
	return func(t rapid.TB) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

// verifyClean runs our own check, which must find nothing.
func verifyClean(t rapid.TB, ix *Index) {
	t.Helper()
	ok(t, ix.Verify(context.Background(), func(e *damage.Error) { t.Fatal("verify:", e) }, func(int64) {}))
}

// boltCheck runs bbolt's own check.
func boltCheck(t rapid.TB, ix *Index) {
	t.Helper()
	ok(t, ix.rows.base.file.ready(ix.rows.base))
	ok(t, ix.rows.base.file.db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return nil
	}))
}

// randomEntry is an entry of a tree of blocks.
func randomEntry(r *rand.Rand, n int) Entry {
	e := Entry{
		Key: key(n), Parent: key(n / 3), Model: kv.Fingerprint{byte(r.IntN(2))}, Scope: kv.ScopeID{byte(r.IntN(2))},
		Loc:   Loc{Segment: r.Uint64N(4), Offset: r.Int64N(1 << 40), Length: r.Int64N(1 << 20)},
		First: uint32(n), Tokens: 64, RowCount: 64, Seq: r.Uint64(), Rank: r.Uint64N(1000), Hits: 1,
	}
	if n%5 == 0 {
		e.Flags = FlagScopeRoot
	}
	for range 2 * r.IntN(MaxHashTokens+1) {
		e.Hashes = append(e.Hashes, byte(r.IntN(2)))
	}
	return e
}

// build makes an index with so many blocks, by several checkpoints with removals, so that its file has free pages.
func build(t testing.TB, o Options, blocks int) *model {
	r := rand.New(rand.NewPCG(1, 2))
	ix := must(Create(o, Applied{}))(t)
	m := newModel()
	for round := range 4 {
		ok(t, ix.Update(func(tx *Txn) error {
			for n := range blocks {
				if n%4 > round {
					continue
				}
				e := randomEntry(r, n+1)
				m.put(e)
				if err := tx.Put(e); err != nil {
					return err
				}
				if old := key(r.IntN(blocks)); n%7 == 0 {
					m.remove(old, 0)
					if err := tx.Remove(old, 0); err != nil {
						return err
					}
				}
			}
			return nil
		}))
		ok(t, ix.Checkpoint(context.Background(), Applied{LSN: uint64(round), Extra: make([]byte, 100)}))
	}
	ok(t, ix.Close())
	return m
}

// opened is an index of so many blocks, as [build] makes them.
func opened(t testing.TB, blocks int) (Options, *Index, *model) {
	o := testOptions(t.TempDir())
	m := build(t, o, blocks)
	return o, open(t, o), m
}

// open opens an index until the test ends.
func open(t testing.TB, o Options) *Index {
	t.Helper()
	ix := must(Open(o))(t)
	t.Cleanup(func() { ix.Close() })
	return ix
}

// save is a checkpoint up to frame lsn.
func save(t rapid.TB, ix *Index, lsn uint64) {
	t.Helper()
	ok(t, ix.Checkpoint(context.Background(), Applied{LSN: lsn}))
}

// put writes a file.
func put(t testing.TB, path string, b []byte) {
	t.Helper()
	ok(t, os.WriteFile(path, b, 0o600))
}

// compareAll compares the present and some absent keys.
func compareAll(v *View, m *model, blocks int) error {
	if err := m.compare(v); err != nil {
		return err
	}
	for n := range 2 * blocks {
		if _, ok := m.entry(key(n)); ok {
			continue
		}
		if _, ok, err := v.Get(key(n), 0); err != nil {
			return err
		} else if ok {
			return fmt.Errorf("absent key %d is there", n)
		}
		if err := m.compareNeighbors(v, key(n/5), kv.ScopeID{byte(n % 2)}, []byte{byte(n & 1), 0, byte(n >> 1 & 1), 1}); err != nil {
			return err
		}
	}
	return nil
}

// usedPages says which pages of a file the last commit reaches, and what each is.
func usedPages(t *testing.T, o Options) map[uint64]string {
	ix := must(Open(o))(t)
	defer ix.Close()
	s := ix.rows.base
	used := map[uint64]string{0: "meta", 1: "meta", s.meta.root: "bucket list"}
	for id := s.meta.freelist; id < s.meta.freelist+s.list.own; id++ {
		used[id] = "freelist"
	}
	for id := uint64(2); id < s.meta.pages; id++ {
		if used[id] == "" && !s.free.has(id) {
			p := must(s.page(id))(t)
			used[id] = "branch"
			if p.leaf {
				used[id] = "leaf"
			}
		}
	}
	return used
}

// fill puts blocks [from, to) into an index and its model.
func fill(t testing.TB, ix *Index, m *model, from, to int) {
	t.Helper()
	r := rand.New(rand.NewPCG(9, uint64(from)))
	var entries []Entry
	for n := from; n < to; n++ {
		entries = append(entries, randomEntry(r, n))
	}
	enter(t, ix, m, entries)
}

// enter puts entries into an index and its model.
func enter(t rapid.TB, ix *Index, m *model, entries []Entry) {
	t.Helper()
	for _, e := range entries {
		m.put(e)
	}
	putAll(t, ix, entries)
}

// putAll puts entries into an index, in one update.
func putAll(t rapid.TB, ix *Index, entries []Entry) {
	t.Helper()
	ok(t, ix.Update(func(tx *Txn) error {
		for _, e := range entries {
			if err := tx.Put(e); err != nil {
				return err
			}
		}
		return nil
	}))
}
