package db

import (
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
