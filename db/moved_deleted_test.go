package db

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

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
		if err := s.eng.set.SealAll(); err != nil {
			t.Fatal(err)
		}
		var out Compacted
		if err := s.eng.rewrite(ctx, func(segments.Info, int64) bool { return true }, nil, &out); err != nil || out.Records != 4 {
			t.Fatal(err, out)
		}
		v := s.eng.view()
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
		f, err := os.OpenFile(filepath.Join(image, segmentsDir, filepath.Base(s.eng.segmentPath(l.Segment))), os.O_RDWR, 0)
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
	lease := s.eng.set.Acquire() // so that nothing is destroyed yet
	defer lease.Release()
	var out Compacted
	if err := s.eng.rewrite(ctx, func(segments.Info, int64) bool { return true }, nil, &out); err != nil || out.Records != 2 {
		t.Fatal(err, out)
	}
	places := map[index.Loc]bool{}
	note := func() {
		v := s.eng.view()
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
		f, err := os.OpenFile(filepath.Join(image, segmentsDir, filepath.Base(s.eng.segmentPath(l.Segment))), os.O_RDWR, 0)
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
		if n := s.eng.counts().Blocks; n != 1 {
			t.Errorf("index lost %v: %d blocks, expected the first", lost, n)
		}
	}
}
