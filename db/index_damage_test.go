package db

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/kv"
)

// damagedAtClose is a store into which a process put that was then killed. The next one opened it, and put nothing; its index is
// damaged where only a checkpoint will look.
func damagedAtClose(t *testing.T) *crashRun {
	w := crashCase(t, crashMode{})
	w.steps(t, crashOp{kind: "put", chat: 0, n: 91}, crashOp{kind: "checkpoint"})
	w.steps(t, putAll()...)
	image := w.dies(t)
	next := nextRun(t, image, w.k, w.j)
	next.steps(t, crashOp{kind: "open"})
	x, err := next.model(0).Match(ctx, crashChats()[0].p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.Close()
	f, err := os.OpenFile(filepath.Join(image.Dir(), indexName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	tables := 2 * int64(os.Getpagesize()) // behind the meta pages
	b := make([]byte, info.Size()-tables)
	if _, err := f.ReadAt(b, tables); err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] ^= 0x55
	}
	if _, err := f.WriteAt(b, tables); err != nil {
		t.Fatal(err)
	}
	return next
}

// A Close that meets a damaged index, and says that all is well, has made durable what an earlier process left: the next open
// rebuilds the index from that.
func TestCloseMeetsADamagedIndex(t *testing.T) {
	w := damagedAtClose(t)
	w.steps(t, crashOp{kind: "close"})
	if _, err := os.Stat(filepath.Join(w.d.Dir(), indexName)); err == nil {
		t.Error("the damaged index is still there: no checkpoint met it")
	}
	w.d.Crash()
	w.cuts(t, 8, "")
}

// So has a Suspend.
func TestSuspendMeetsADamagedIndex(t *testing.T) {
	w := damagedAtClose(t)
	w.suspends(t)
	w.cuts(t, 8, "")
}

// If that cannot be made durable, both say so.
func TestDamagedIndexAndAFailedSync(t *testing.T) {
	for what, end := range map[string]func(s *Store) error{
		"close": (*Store).Close, "suspend": func(s *Store) error { return s.Suspend(ctx) },
	} {
		w := damagedAtClose(t)
		w.d.Before(failSyncs(walDir))
		if err := end(w.s); err == nil {
			t.Errorf("%s: an fsync had failed, and it says nothing", what)
		}
		w.d.Before(nil)
	}
}

// A Delete that cannot read which blocks there are has not deleted them, and does not say so: they are back once the index is
// rebuilt.
func TestDeleteWithADamagedIndex(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	var p kv.Prompt
	var k kv.Key // the smallest: none of the other rows that a Delete reads lies beside its
	for i := range 8 {
		q := kv.Prompt{Tokens: tokens(i, 16)}
		put(t, m, q)
		chain := s.eng.Hasher.Chain(m.ms.Fingerprint, m.ms.Desc.BlockTokens, &q)
		if key := chain.Key(0); i == 0 || bytes.Compare(key[:], k[:]) < 0 {
			p, k = q, key
		}
	}
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, indexName)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	row := append(append([]byte{2}, k[:]...), 0) // of the table of blocks; its checksum comes behind the key
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], row)
		if i < 0 {
			break
		}
		at += i
		if _, err := f.WriteAt([]byte{^b[at+len(row)]}, int64(at+len(row))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Delete(ctx, p); err == nil {
		if n, err := m.Match(ctx, p, MatchOptions{}); err == nil { // meets the damage, if the Delete has not
			n.Close()
		}
		eventually(t, "the index is rebuilt", func() bool { return s.rebuilding.Load() == nil })
		if n, _ := restore(t, m, p); n > 0 {
			t.Fatalf("%d tokens are back that a Delete said to have deleted", n)
		}
	} else if !engine.IsIndexDamage(err) {
		t.Fatal(err)
	}
	eventually(t, "the index is rebuilt", func() bool { return s.rebuilding.Load() == nil })
	if _, err := m.Delete(ctx, p); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 0)
}

// damagedBehind is an open store of n prompts, of whose index each page beyond the first four was damaged after it was opened.
func damagedBehind(t *testing.T, n int) (*Store, *Model) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	for i := range n {
		put(t, m, kv.Prompt{Tokens: tokens(i, 32)})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options())
	m = model(t, s, plain())
	f, err := os.OpenFile(filepath.Join(dir, indexName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(4 * 4096); at < info.Size(); at += 4096 {
		if _, err := f.WriteAt(make([]byte, 2000), at+1000); err != nil {
			t.Fatal(err)
		}
	}
	return s, m
}

// Whatever meets damage in the index of an open store waits until it is rebuilt, and then does what it was asked for.
func TestDamagedIndexIsAwaited(t *testing.T) {
	const n = 200
	known := kv.Prompt{Tokens: tokens(3, 32)}
	fresh := kv.Prompt{Tokens: tokens(n+1, 32)}
	for name, do := range map[string]func(s *Store, m *Model) error{
		"put": func(s *Store, m *Model) error {
			r, err := m.Put(ctx, fresh, filled(m.Descriptor(), &fresh, 0, 32), PutOptions{})
			if err == nil && (r.Tokens != 32 || r.Blocks != 2) {
				t.Errorf("put: %+v", r)
			}
			return err
		},
		"delete": func(s *Store, m *Model) error {
			_, err := m.Delete(ctx, known)
			if n, _, perr := m.Probe(ctx, known, MatchOptions{}); err == nil && (perr != nil || n >= 32) {
				t.Errorf("%d tokens are left of what was deleted (%v)", n, perr)
			}
			return err
		},
		"scope":      func(s *Store, m *Model) error { _, err := s.DeleteScope(ctx, "alice"); return err },
		"checkpoint": func(s *Store, m *Model) error { return s.Checkpoint(ctx) },
		"ref":        func(s *Store, m *Model) error { return m.SetRef(ctx, "a", known, RefOptions{}) },
		"retire":     func(s *Store, m *Model) error { return s.Retire(ctx, m.Fingerprint()) },
		"shrink":     func(s *Store, m *Model) error { _, err := s.Shrink(ctx, 0); return err },
		"compact":    func(s *Store, m *Model) error { _, err := s.Compact(ctx, CompactOptions{LiveShare: 1}); return err },
		"probe": func(s *Store, m *Model) error {
			n, why, err := m.Probe(ctx, known, MatchOptions{})
			if n != 32 {
				t.Errorf("probe: %d tokens (%v)", n, why)
			}
			return err
		},
		"match": func(s *Store, m *Model) error {
			x, err := m.Match(ctx, known, MatchOptions{})
			if err != nil {
				return err
			}
			if x.Tokens() != 32 {
				t.Errorf("match: %d tokens (%v)", x.Tokens(), x.Reason())
			}
			return x.Close()
		},
		"explain": func(s *Store, m *Model) error {
			x, err := m.Explain(ctx, known, MatchOptions{})
			if x.Tokens != 32 {
				t.Errorf("explain: %d tokens (%v)", x.Tokens, x.Reason)
			}
			return err
		},
		"blocks": func(s *Store, m *Model) error {
			i := 0
			for _, err := range s.Blocks(ctx) {
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
		s, m := damagedBehind(t, n)
		if err := do(s, m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The wait ends with its context, and an operation that a callback calls does not wait for a rebuild that waits for the callback.
func TestDamagedIndexIsAwaitedInReason(t *testing.T) {
	known := kv.Prompt{Tokens: tokens(3, 32)}
	s, m := damagedBehind(t, 200)
	if _, err := s.enter(); err != nil { // an operation that does not end
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := m.SetRef(short, "a", known, RefOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a ref, cancelled: %v", err)
	}
	if _, err := m.Delete(ctx, known); !engine.IsIndexDamage(err) || !errors.Is(err, ErrIndexBusy) || !errors.Is(err, ErrCorrupt) {
		t.Errorf("a deletion that a callback calls: %v", err)
	}
	s.leave()
	if _, err := m.Delete(ctx, known); err != nil {
		t.Error(err)
	}
}
