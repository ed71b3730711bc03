package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A Delete that cannot read which blocks there are has not deleted them, and does not say so: they are back once the index is
// rebuilt.
func TestDeleteWithADamagedIndex(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	var p kv.Prompt
	var k kv.Key // the smallest: none of the other rows that a Delete reads lies beside its
	for i := range 8 {
		q := kv.Prompt{Tokens: crashtest.Tokens(i, 16)}
		storetest.Put(t, m, q)
		chain := storetest.Hasher(t, s.Dir()).Chain(m.Fingerprint(), m.Descriptor().BlockTokens, &q)
		if key := chain.Key(0); i == 0 || bytes.Compare(key[:], k[:]) < 0 {
			p, k = q, key
		}
	}
	storetest.OK(t, s.Checkpoint(t.Context()))
	name := filepath.Join(dir, storetest.IndexFile)
	b := storetest.Must(os.ReadFile(name))(t)
	f := storetest.Must(os.OpenFile(name, os.O_RDWR, 0))(t)
	defer f.Close()
	row := append(append([]byte{2}, k[:]...), 0) // of the table of blocks; its checksum comes behind the key
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], row)
		if i < 0 {
			break
		}
		at += i
		storetest.Must(f.WriteAt([]byte{^b[at+len(row)]}, int64(at+len(row))))(t)
	}
	if _, err := m.Delete(t.Context(), p); err == nil {
		if n, err := m.Match(t.Context(), p, db.MatchOptions{}); err == nil { // meets the damage, if the Delete has not
			n.Close()
		}
		storetest.Eventually(t, "the index is rebuilt", func() bool { return len(admin.IndexProblems(s)) > 0 })
		if n, _ := storetest.Restore(t, m, p); n > 0 {
			t.Fatalf("%d tokens are back that a Delete said to have deleted", n)
		}
	} else if !errors.Is(err, index.ErrDamaged) {
		t.Fatal(err)
	}
	storetest.Eventually(t, "the index is rebuilt", func() bool { return len(admin.IndexProblems(s)) > 0 })
	storetest.Must(m.Delete(t.Context(), p))(t)
	storetest.Expect(t, m, p, 0)
}

// The call that meets damage in the index of an open store fails once, or is a miss. The next call waits until the index is rebuilt, and does what it
// was asked for.
func TestDamagedIndexFailsOnce(t *testing.T) {
	const n = 200
	known := kv.Prompt{Tokens: crashtest.Tokens(3, 32)}
	fresh := kv.Prompt{Tokens: crashtest.Tokens(n+1, 32)}
	for name, do := range map[string]func(s *db.Store, m *db.Model) error{
		"put": func(s *db.Store, m *db.Model) error {
			r, err := m.Put(t.Context(), fresh, storetest.Filled(m.Descriptor(), &fresh, 0, 32), db.PutOptions{})
			if err == nil && (r.Tokens != 32 || r.Blocks != 2) {
				t.Errorf("put: %+v", r)
			}
			return err
		},
		"put behind": func(s *db.Store, m *db.Model) error {
			longer := kv.Prompt{Tokens: append(slices.Clone(known.Tokens), fresh.Tokens...)}
			_, err := m.Put(t.Context(), longer, storetest.Filled(m.Descriptor(), &longer, 32, 64), db.PutOptions{})
			return err
		},
		"delete": func(s *db.Store, m *db.Model) error {
			_, err := m.Delete(t.Context(), known)
			if n, _, perr := m.Probe(t.Context(), known, db.MatchOptions{}); err == nil && (perr != nil || n >= 32) {
				t.Errorf("%d tokens are left of what was deleted (%v)", n, perr)
			}
			return err
		},
		"scope":      func(s *db.Store, m *db.Model) error { _, err := s.DeleteScope(t.Context(), "alice"); return err },
		"checkpoint": func(s *db.Store, m *db.Model) error { return s.Checkpoint(t.Context()) },
		"ref":        func(s *db.Store, m *db.Model) error { return m.SetRef(t.Context(), "a", known, db.RefOptions{}) },
		"retire":     func(s *db.Store, m *db.Model) error { return s.Retire(t.Context(), m.Fingerprint()) },
		"shrink":     func(s *db.Store, m *db.Model) error { _, err := s.Shrink(t.Context(), 0); return err },
		"compact": func(s *db.Store, m *db.Model) error {
			_, err := s.Compact(t.Context(), db.CompactOptions{LiveShare: 1})
			return err
		},
		"probe": func(s *db.Store, m *db.Model) error {
			n, why, err := m.Probe(t.Context(), known, db.MatchOptions{})
			return missed(n, why, err)
		},
		"match": func(s *db.Store, m *db.Model) error {
			x, err := m.Match(t.Context(), known, db.MatchOptions{})
			if err != nil {
				return err
			}
			defer x.Close()
			return missed(x.Tokens(), x.Reason(), nil)
		},
		"prefetch": func(s *db.Store, m *db.Model) error {
			n, err := m.Prefetch(t.Context(), known, db.MatchOptions{})
			return missed(n, db.Reason{Code: db.Damaged, Err: index.ErrDamaged}, err)
		},
		"explain": func(s *db.Store, m *db.Model) error {
			x, err := m.Explain(t.Context(), known, db.MatchOptions{})
			return missed(x.Tokens, x.Reason, err)
		},
		"blocks": func(s *db.Store, m *db.Model) error {
			i := 0
			for _, err := range s.Blocks(t.Context()) {
				if err != nil {
					return err
				}
				i++
			}
			if i != 2*n {
				t.Errorf("%d blocks are listed of %d", i, 2*n)
			}
			return nil
		},
	} {
		s, m := damagedBehind(t, vfs.OS, n)
		if err := do(s, m); !errors.Is(err, db.ErrIndexDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if err := do(s, m); err != nil {
			t.Errorf("%s, called again: %v", name, err)
		}
	}
}

// missed is the damage for which a match of 32 tokens was a miss.
func missed(tokens int, why db.Reason, err error) error {
	switch {
	case err != nil || tokens == 32:
		return err
	case tokens > 0 || why.Code != db.Damaged:
		return fmt.Errorf("%d tokens (%v)", tokens, why)
	}
	return why.Err
}

// expectNowAndLater expects whole prompts in a store, and when it was opened again. It closes the store.
func expectNowAndLater(t *testing.T, s *db.Store, prompts []kv.Prompt) {
	t.Helper()
	for range 2 {
		m := storetest.Model(t, s, crashtest.Plain())
		for _, p := range prompts {
			storetest.Expect(t, m, p, 32)
		}
		storetest.OK(t, s.Close())
		s = storetest.Open(t, s.Dir(), storetest.Options())
	}
}

// Somebody removes index.db, which is derived, or puts an old copy there: nothing is lost, and the store goes on.
func TestIndexRemovedFromAnOpenStore(t *testing.T) {
	prompts := []kv.Prompt{{Tokens: crashtest.Tokens(1, 32)}, {Tokens: crashtest.Tokens(2, 32)}, {Tokens: crashtest.Tokens(3, 32)}}
	for _, before := range []bool{true, false} { // the first commit, for which bbolt opens the file
		for _, copied := range []bool{false, true} {
			t.Run(fmt.Sprintf("before %t, copied %t", before, copied), func(t *testing.T) {
				dir := t.TempDir()
				s := storetest.Open(t, dir, storetest.Options())
				m := storetest.Model(t, s, crashtest.Plain())
				name := filepath.Join(dir, storetest.IndexFile)
				old := storetest.Must(os.ReadFile(name))(t)
				storetest.Put(t, m, prompts[0])
				storetest.OK(t, s.Close())
				s = storetest.Open(t, dir, storetest.Options())
				m = storetest.Model(t, s, crashtest.Plain())
				storetest.Put(t, m, prompts[1])
				if !before {
					storetest.OK(t, s.Checkpoint(t.Context()))
					storetest.Put(t, m, prompts[2])
				}
				storetest.OK(t, os.Remove(name))
				if copied {
					storetest.OK(t, os.WriteFile(name, old, 0o600))
				}
				storetest.Put(t, m, prompts[2])
				storetest.OK(t, storetest.Again(func() error { return s.Checkpoint(t.Context()) }))
				expectNowAndLater(t, s, prompts)
			})
		}
	}
}

// damagedBehind is an open store of n prompts, of whose index each page beyond the first four was damaged after it was opened.
func damagedBehind(t *testing.T, disk vfs.FS, n int) (*db.Store, *db.Model) {
	t.Helper()
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range n - 1 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 32)})
	}
	storetest.OK(t, s.Close())
	s = storetest.OpenOn(t, disk, dir, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(n-1, 32)}) // so that there is something to sync
	info := storetest.Must(os.Stat(filepath.Join(dir, storetest.IndexFile)))(t)
	for at := int64(4 * 4096); at < info.Size(); at += 4096 {
		storetest.Write(t, filepath.Join(dir, storetest.IndexFile), at+1000, make([]byte, 2000))
	}
	return s, m
}

// An operation that keeps the rebuild waiting may call others from its callback: they meet the damage again, and wait no longer than owner and
// operations give way to one another. What waits for the rebuild itself ends with its context.
func TestDamagedIndexBesideAnOperation(t *testing.T) {
	t.Parallel() // it waits
	known := kv.Prompt{Tokens: crashtest.Tokens(3, 32)}
	disk := storetest.Over(vfs.OS)
	s, m := damagedBehind(t, disk, 200)
	syncing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	disk.Before(func(c storetest.Call) error {
		if c.Kind == "sync" {
			once.Do(func() { close(syncing); <-release })
		}
		return nil
	})
	ended := make(chan error)
	go func() { ended <- s.Sync(t.Context()) }() // an operation that does not end
	<-syncing
	if err := m.SetRef(t.Context(), "a", known, db.RefOptions{}); !errors.Is(err, db.ErrIndexDamaged) || !errors.Is(err, db.ErrCorrupt) {
		t.Errorf("a ref: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := m.Delete(short, known); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, db.ErrIndexDamaged) {
		t.Errorf("a deletion, cancelled: %v", err)
	}
	for range 2 {
		if _, err := m.Delete(t.Context(), known); !errors.Is(err, db.ErrIndexDamaged) || !errors.Is(err, db.ErrCorrupt) {
			t.Errorf("a deletion that a callback calls: %v", err)
		}
		if n, why, err := m.Probe(t.Context(), known, db.MatchOptions{}); n != 0 || why.Code != db.Damaged || err != nil {
			t.Errorf("a probe is no miss: %d tokens (%v), %v", n, why, err)
		}
		if x, err := m.Match(t.Context(), known, db.MatchOptions{}); err != nil || x.Tokens() != 0 || x.Reason().Code != db.Damaged || x.Close() != nil {
			t.Errorf("a match is no miss: %v", err)
		}
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := m.Delete(t.Context(), known); err != nil {
		t.Error(err)
	}
}

// A store's folder is not where it was when its index turns out to be damaged: the medium was pulled out, and its mount point is empty, or another
// store lies there. Nothing is made there, nor written into another store, and what is stored is there again when the folder is.
func TestFolderGoneWhenTheIndexIsRebuilt(t *testing.T) {
	for _, there := range []string{"nothing", "an empty folder", "another store"} {
		t.Run(there, func(t *testing.T) {
			top := t.TempDir()
			dir, away := filepath.Join(top, "store"), filepath.Join(top, "away")
			prompts := []kv.Prompt{{Tokens: crashtest.Tokens(1, 32)}, {Tokens: crashtest.Tokens(2, 32)}}
			s := storetest.Open(t, dir, storetest.Options())
			m := storetest.Model(t, s, crashtest.Plain())
			storetest.Put(t, m, prompts[0])
			storetest.OK(t, s.Close())
			s = storetest.Open(t, dir, storetest.Options())
			m = storetest.Model(t, s, crashtest.Plain())
			storetest.Put(t, m, prompts[1])
			storetest.OK(t, os.Rename(dir, away))
			switch there {
			case "an empty folder":
				storetest.OK(t, os.Mkdir(dir, 0o700))
			case "another store":
				other := storetest.Open(t, dir, storetest.Options())
				storetest.OK(t, other.Close())
			}
			before, _ := storetest.ReadDir(dir)
			storetest.DoubtIndex(s)
			storetest.Eventually(t, "the rebuild ends", func() bool {
				_, err := s.Stats()
				return errors.Is(err, db.ErrSuspended)
			})
			if err := s.Checkpoint(t.Context()); !errors.Is(err, db.ErrSuspended) {
				t.Errorf("a checkpoint: %v", err)
			}
			if after, _ := storetest.ReadDir(dir); !maps.EqualFunc(before, after, bytes.Equal) {
				t.Errorf("%d files became %d, or changed", len(before), len(after))
			}
			storetest.OK(t, os.RemoveAll(dir))
			if err := s.Resume(t.Context()); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Resume: %v", err)
			}
			storetest.OK(t, os.Rename(away, dir))
			storetest.OK(t, s.Resume(t.Context()))
			expectNowAndLater(t, s, prompts)
		})
	}
}
