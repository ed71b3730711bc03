package db

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// killed makes a store whose process died right after a put, and returns its directory and the place of the last record.
func killed(t *testing.T, p kv.Prompt) (dir string, last loc.Loc) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir, options())
	put(t, model(t, s, plain()), p)
	v := s.eng.View()
	if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if l := x.Loc; l.Offset > last.Offset {
			last = l
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	v.Release()
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	crash(s)
	return dir, last
}

func segmentFile(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, segmentsDir, "*.seg"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	return names[0]
}

// What the index names and cannot be read just now is not destroyed when a killed process's segment gets its footer: the
// disk may read it again tomorrow.
func TestSealingSparesUnreadableRecords(t *testing.T) {
	p := kv.Prompt{Tokens: tokens(1, 64)}
	dir, last := killed(t, p)
	flip(t, segmentFile(t, dir), last.Offset, 3, func() {
		rep, err := Verify(ctx, dir, VerifyOptions{})
		if err != nil || len(rep.Damage) == 0 {
			t.Errorf("verify of a killed store with a flipped bit in its last record: %+v, %v", rep, err)
		}
		s := open(t, dir, options())
		if n, _ := restore(t, model(t, s, plain()), p); n >= 64 {
			t.Errorf("%d tokens are restored from a record with a flipped bit", n)
		}
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, options())
	expect(t, model(t, s, plain()), p, 64)
}

// A checkpoint that writes a killed process's footer does not disturb a Verify that walks over the segment.
func TestVerifyBesideSealing(t *testing.T) {
	for range 8 {
		dir, last := killed(t, kv.Prompt{Tokens: tokens(1, 640)})
		f, err := os.OpenFile(segmentFile(t, dir), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte("a record that the kill tore"), last.Offset+(last.Length+4095)/4096*4096)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir, options())
		var wait sync.WaitGroup
		wait.Go(func() {
			if err := s.Checkpoint(ctx); err != nil {
				t.Error(err)
			}
		})
		rep, err := s.Verify(ctx, VerifyOptions{})
		wait.Wait()
		if err != nil || len(rep.Damage) > 0 {
			t.Fatalf("%v, %v", rep.Damage, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

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

// A store that is opened and only read writes nothing: no log file, no checkpoint. What it is used for later finds the log.
func TestOpenWritesNothing(t *testing.T) {
	dir := t.TempDir()
	p := kv.Prompt{Tokens: tokens(1, 64)}
	s := open(t, dir, options())
	put(t, model(t, s, plain()), p)
	eventually(t, "the Bloom filter is built", func() bool { return s.eng.Inside().Bloom().Load() != nil })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	s = open(t, dir, options())
	if n, _, err := model(t, s, plain()).Probe(ctx, p, MatchOptions{}); err != nil || n != 64 {
		t.Fatal(n, err)
	}
	if _, err := s.Stats(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sameTree(t, before, tree(t, dir), "opened, probed and closed")

	s = open(t, dir, options())
	more := kv.Prompt{Tokens: tokens(2, 64)}
	put(t, model(t, s, plain()), more)
	crash(s)
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 64)
	expect(t, model(t, s, plain()), more, 64)
}
