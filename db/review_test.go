package db

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A crash between the index's commit and the Bloom filter's file leaves a filter that is older than the index. It must not
// deny what the index has.
func TestBloomFileOlderThanIndex(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	put(t, m, kv.Prompt{Tokens: tokens(1, 64)})
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	p := kv.Prompt{Tokens: tokens(2, 64)}
	put(t, m, p)
	e := s.eng
	c, err := e.freeze()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.set.Sync(), e.ix.Checkpoint(ctx, c.applied)); err != nil {
		t.Fatal(err)
	}
	crash(s)
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 64)
}

// An index that was begun and never written says nothing, when the log does not go back to the first segment.
func TestKilledAfterARebuildWithoutLog(t *testing.T) {
	dir := t.TempDir()
	p := kv.Prompt{Tokens: tokens(1, 64)}
	s := open(t, dir, options())
	put(t, model(t, s, plain()), p)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, walDir)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s = open(t, dir, options())
		expect(t, model(t, s, plain()), p, 64)
		crash(s)
	}
	s = open(t, dir, options())
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, model(t, s, plain()), p, 64)
}

// Of two records of one key the live one may be the older: a rebuild must not prefer the one that waits to be destroyed.
func TestRebuildKeepsTheLiveCopy(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, p)
	x, err := m.Match(ctx, p, MatchOptions{}) // keeps the loser's bytes
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	// What a put leaves that wrote the first block, too, and came second.
	w := &putter{e: s.eng, m: m, rows: filled(plain(), &p, 0, 64)}
	if err := w.plan(&p); err != nil {
		t.Fatal(err)
	}
	if err := w.write(ctx, 0, 0, 0, 16, w.rows); err != nil {
		t.Fatal(err)
	}
	if err := w.publish(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
	}
	crash(s)
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 64)
}

// A model that comes back right after it was retired must not write to a file that is about to be unlinked.
func TestModelComesBackWhileItIsRetired(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	put(t, m, kv.Prompt{Tokens: tokens(1, 64)})
	if _, err := s.eng.retire(m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	m = model(t, s, plain()) // before Retire gets to destroy anything
	p := kv.Prompt{Tokens: tokens(2, 64)}
	put(t, m, p)
	if err := s.eng.reclaim(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 64)
}

// Bytes that an open match keeps from being reclaimed must not make the background evict one more share of the store at
// each turn.
func TestOpenMatchDoesNotEmptyTheStore(t *testing.T) {
	o := options()
	o.Budget, o.HighWater, o.LowWater = 16<<20, 0.3, 0.25
	s := open(t, t.TempDir(), o)
	m := model(t, s, plain())
	x, err := m.Match(ctx, kv.Prompt{Tokens: tokens(1, 64)}, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s.eng.halt() // its turns are taken here
	defer func() {
		s.eng.abandon()
		s.unlock()
		s.eng = nil
	}()
	for i := 0; !s.eng.aboveHighWater(); i++ {
		put(t, m, kv.Prompt{Tokens: tokens(i+1, 256)})
		s.eng.measure()
	}
	before := s.eng.counts().Blocks
	for range 30 {
		if err := s.eng.evictToLowWater(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if after := s.eng.counts().Blocks; after < before/2 {
		t.Fatalf("of %d blocks %d are left", before, after)
	}
}

// Methods of a match, and a writer that waits for all of them to end, do not wait for one another in a circle.
func TestMatchMethodsAndSuspend(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, p)
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	again := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	again(func() { x.Extend(ctx, p, filled(plain(), &p, 0, 64), PutOptions{}) })
	for range 2 {
		again(func() { x.Restore(ctx, empty(plain(), 64)) })
	}
	again(func() { // what Suspend and Resume begin with
		s.life.own(nil)
		defer s.life.disown()
	})
	finished := make(chan struct{})
	go func() {
		time.Sleep(300 * time.Millisecond)
		close(stop)
		wg.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(20 * time.Second):
		t.Fatal("deadlock")
	}
	x.Close()
}

// A move whose copy a power cut took leaves the original.
func TestPowerCutTakesTheCopyOfAMove(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 16)}
	put(t, m, p)
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	// The log goes on in a file that was begun before the last boot.
	id, _, err := s.eng.wal.Rotate(func(uint64) []byte {
		return s.eng.state.encode("an earlier boot", s.eng.openEnds(), s.eng.nextCounters())
	})
	if err := errors.Join(err, s.eng.wal.Remove(id)); err != nil {
		t.Fatal(err)
	}
	var entry index.Entry
	v := s.eng.view()
	if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool { entry = x; return true }); err != nil {
		t.Fatal(err)
	}
	v.Release()
	if err := s.eng.set.SealAll(); err != nil {
		t.Fatal(err)
	}
	if moved, err := s.eng.move(ctx, entry); !moved || err != nil {
		t.Fatal(moved, err)
	}
	to := s.eng.set.MaxID()
	crash(s)
	if to == entry.Loc.Segment {
		t.Fatal("the copy is in the same segment")
	}
	powerCut(t, dir, to)
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 16)
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, model(t, s, plain()), p, 16)
}

// powerCut zeroes the records of a segment.
func powerCut(t *testing.T, dir string, id uint64) {
	t.Helper()
	name := (&engine{dir: dir}).segmentPath(id)
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, 4096); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, info.Size()); err != nil {
		t.Fatal(err)
	}
}
