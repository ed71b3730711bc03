package db

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Records that were put, and moved on and on, between two checkpoints are there after a power cut: the places that they left are
// destroyed by then.
func TestMovedOnBetweenCheckpoints(t *testing.T) {
	for i := range 4 {
		begun, lost := i&1 > 0, i&2 > 0 // a checkpoint comes between the put and the moves; the index is lost
		for moves := range 3 {
			dir := t.TempDir()
			o := options()
			o.Durability = Power
			s := open(t, dir, o)
			m := model(t, s, windowed(40))
			p := kv.Tokens(tokens(1, 100)...)
			put(t, m, p)
			if begun {
				if err := s.Checkpoint(ctx); err != nil {
					t.Fatal(err)
				}
			}
			for range moves {
				if err := s.eng.Segments.SealAll(); err != nil {
					t.Fatal(err)
				}
				var out engine.Compacted
				if err := s.eng.Inside().Rewrite(ctx, func(segments.Info, int64) bool { return true }, nil, &out); err != nil || out.Records == 0 {
					t.Fatal(err, out)
				}
				if err := s.Sync(ctx); err != nil { // destroys the old places
					t.Fatal(err)
				}
			}
			image := copyStore(t, dir)
			if err := os.WriteFile(filepath.Join(image, unsyncedName), nil, 0o600); err != nil { // as after a reboot
				t.Fatal(err)
			}
			if lost {
				if err := os.Remove(filepath.Join(image, indexName)); err != nil {
					t.Fatal(err)
				}
			}
			s = open(t, image, o)
			t.Logf("checkpoint %v, index lost %v, %d moves", begun, lost, moves)
			expect(t, model(t, s, windowed(40)), p, 100)
			if got, err := s.Verify(ctx, VerifyOptions{}); err != nil || len(got.Damage) > 0 {
				t.Error(got.Damage, err)
			}
		}
	}
}

// A record that was moved twice is there, also if the index is lost and a kill came when only the place in the middle was
// destroyed.
func TestMovedTwiceStays(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, p)
	var places []index.Loc
	for i := range 2 {
		if err := s.eng.Segments.SealAll(); err != nil {
			t.Fatal(err)
		}
		var out engine.Compacted
		if err := s.eng.Inside().Rewrite(ctx, func(segments.Info, int64) bool { return true }, nil, &out); err != nil || out.Records != 4 {
			t.Fatal(err, out)
		}
		v := s.eng.View()
		if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
			if i == 0 {
				places = append(places, x.Loc)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Checkpoint(stopped); err == nil { // it got as far as a head of the log that lists what is to be destroyed
		t.Fatal("checkpoint with a cancelled context")
	}
	image := copyStore(t, dir)
	for _, l := range places {
		f, err := os.OpenFile(filepath.Join(image, segmentsDir, filepath.Base(s.eng.SegmentPath(l.Segment))), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, l.Length), l.Offset); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if err := os.Remove(filepath.Join(image, indexName)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := open(t, image, options())
		expect(t, model(t, s, plain()), p, 64)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(image, indexName))
	}
}

// A tail that was moved, and superseded by a longer block that was then deleted, stays gone, also if the index is lost and a
// kill came when only the first place of all was not yet destroyed.
func TestMovedAndSupersededStaysDeleted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, p.Prefix(24))
	if err := s.Close(); err != nil { // seals
		t.Fatal(err)
	}
	s = open(t, dir, options())
	m = model(t, s, plain())
	lease := s.eng.Segments.Acquire() // so that nothing is destroyed yet
	defer lease.Release()
	var out engine.Compacted
	if err := s.eng.Inside().Rewrite(ctx, func(segments.Info, int64) bool { return true }, nil, &out); err != nil || out.Records != 2 {
		t.Fatal(err, out)
	}
	places := map[index.Loc]bool{}
	note := func() {
		v := s.eng.View()
		defer v.Release()
		if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
			if x.First > 0 {
				places[x.Loc] = true
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	note()
	put(t, m, p)
	note()
	if _, err := m.Delete(ctx, p.Prefix(20)); err != nil {
		t.Fatal(err)
	}
	image := copyStore(t, dir)
	for l := range places {
		f, err := os.OpenFile(filepath.Join(image, segmentsDir, filepath.Base(s.eng.SegmentPath(l.Segment))), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, l.Length), l.Offset); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	for _, lost := range []bool{false, true} {
		if lost {
			if err := os.Remove(filepath.Join(image, indexName)); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, copyStore(t, image), options())
		expect(t, model(t, s, plain()), p, 16)
		if n := s.eng.Counts().Blocks; n != 1 {
			t.Errorf("index lost %v: %d blocks, expected the first", lost, n)
		}
	}
}

// A move that comes when the model is retired already begins no segment for it.
func TestMoveOfARetiredModel(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p)
	var moves []index.Entry
	v := s.eng.View()
	err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool { moves = append(moves, x); return true })
	v.Release()
	if err != nil {
		t.Fatal(err)
	}
	reader, err := m.Match(ctx, p, MatchOptions{}) // keeps the segment
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	if moved, err := s.eng.Inside().Move(ctx, moves[0]); moved || err != nil {
		t.Fatal(moved, err)
	}
	reader.Close()
	m = model(t, s, plain())
	expect(t, m, p, 0)
	put(t, m, p)
	expect(t, m, p, 48)
}

// What was put after its model was retired and registered again is there, also if the index is lost and a kill came when it had
// been moved, and the old places destroyed.
func TestMovedAfterRetireStays(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	p, old := kv.Tokens(tokens(1, 64)...), kv.Tokens(tokens(2, 64)...)
	m := model(t, s, plain())
	put(t, m, p)
	put(t, m, old)
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	m = model(t, s, plain())
	put(t, m, p)
	if err := s.eng.Segments.SealAll(); err != nil {
		t.Fatal(err)
	}
	var out engine.Compacted
	if err := s.eng.Inside().Rewrite(ctx, func(segments.Info, int64) bool { return true }, nil, &out); err != nil || out.Records != 4 {
		t.Fatal(err, out)
	}
	for _, destroyed := range []bool{false, true} {
		if destroyed {
			if err := s.Sync(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for _, lost := range []bool{false, true} {
			image := copyStore(t, dir)
			if lost {
				if err := os.Remove(filepath.Join(image, indexName)); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, image, options())
			m := model(t, s, plain())
			t.Logf("destroyed %v, index lost %v", destroyed, lost)
			expect(t, m, old, 0)
			expect(t, m, p, 64)
		}
	}
}
