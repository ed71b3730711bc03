package db

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A match whose lookup failed after a Resume is looked up again, and its Close lets the store close.
func TestMatchAfterAFailedLookup(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, p)
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil || x.Tokens() != 64 {
		t.Fatal(x.Tokens(), err)
	}
	s.gen++ // as a Resume does that found the store changed
	x.mu.Lock()
	x.held.Drop(s.eng.Pins) // as a lookup does that fails
	x.mu.Unlock()
	rows := empty(plain(), 64)
	if n, err := x.Restore(ctx, rows); err != nil || n.Tokens != 64 {
		t.Errorf("%d tokens are restored once the lookup works again: %v", n.Tokens, err)
	}
	x.mu.Lock()
	x.held.Drop(s.eng.Pins)
	x.mu.Unlock()
	if err := x.Close(); err != nil || s.matches.Load() != 0 {
		t.Errorf("%d matches are open: %v", s.matches.Load(), err)
	}
}

// A put whose window rows lie before those that are stored leaves the record as it is, and no lease behind.
func TestDisjointWindowRowsLeaveNoLease(t *testing.T) {
	s := open(t, t.TempDir(), options())
	d := windowed(40)
	m := model(t, s, d)
	p := kv.Prompt{Tokens: tokens(1, 16)}
	for _, r := range [][2]int{{12, 16}, {2, 8}} {
		rows := filled(d, &p, 0, 16)
		w := filled(d, &p, r[0], r[1])
		for i := range d.Tensors {
			if d.Tensors[i].Group == 1 {
				rows[i] = w[i]
			}
		}
		if _, err := m.Put(ctx, p, rows, PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Delete(ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(ctx); err != nil {
		t.Errorf("something still holds the deleted records: %v", err)
	}
	if n, b := s.eng.Segments.Pending(); n != 0 {
		t.Errorf("%d records, %d bytes, wait for a lease", n, b)
	}
}

// What an older head of the log gave up and the newest one does not is alive: a power cut had taken what stood in its place,
// and a recovery, which a crash ended before it could remove the older head, has kept it.
func TestNewestHeadDecidesWhatIsDead(t *testing.T) {
	dir := t.TempDir()
	p := kv.Prompt{Tokens: tokens(1, 64)}
	s := open(t, dir, options())
	put(t, model(t, s, plain()), p)
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	e := s.eng
	v := e.View()
	if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		e.Catalog.BuryAt(x.Loc)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	v.Release()
	for range 2 {
		if _, _, err := e.Inside().Wal().Rotate(func(uint64) []byte { return e.Inside().Head(nil) }); err != nil {
			t.Fatal(err)
		}
		e.Catalog.Destroyed(e.Catalog.Tombstones())
	}
	crash(s)
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 64)
}
