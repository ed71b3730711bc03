package db

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// besideDenied makes a store of four segments, three of which are mostly dead. The first one is mostly alive, may not be opened while
// denied is set, as it is then, and has a record that waits to be destroyed. lives are the prompts that are stored. What is destroyed
// stays allocated: else it is a matter of some blocks, and of the file system, whether there is something to gain in the first one.
func besideDenied(t *testing.T, denied *atomic.Bool) (s *Store, lives []kv.Prompt) {
	t.Helper()
	o := options()
	o.fs = oneDeniedFS{crashtest.NoHoles{FS: vfs.OS}, "0000000000000001.seg", denied}
	o.SegmentBytes = 1 << 20
	dir := t.TempDir()
	s = open(t, dir, o)
	m := model(t, s, plain())
	for i := range 24 { // six in a segment
		put(t, m, kv.Tokens(tokens(i, 320)...))
	}
	const dead = 1
	for i := range 24 {
		if i == dead {
			continue
		}
		if i < 6 || i%4 == 0 {
			lives = append(lives, kv.Tokens(tokens(i, 320)...))
		} else if _, err := m.Delete(ctx, kv.Tokens(tokens(i, 16)...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, o)
	m = model(t, s, plain())
	denied.Store(true)
	if _, err := m.Delete(ctx, kv.Tokens(tokens(dead, 16)...)); !errors.Is(err, ErrNotDestroyed) {
		t.Fatalf("delete: %v", err)
	}
	if in := inSegments(t, s); !slices.Equal(in, []uint64{1, 2, 3, 4}) {
		t.Fatalf("records live in the segments %v", in)
	}
	return s, lives
}

// inSegments lists the segments in which something lives.
func inSegments(t *testing.T, s *Store) (ids []uint64) {
	t.Helper()
	for x, err := range s.Blocks(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, x.Segment)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// A segment in which nothing can be destroyed does not keep Compact from the others: it says so in the end.
func TestCompactBesideASegmentThatCannotBeOpened(t *testing.T) {
	var denied atomic.Bool
	s, lives := besideDenied(t, &denied)
	out, err := s.Compact(ctx, CompactOptions{})
	if !errors.Is(err, ErrNotDestroyed) || errors.Is(err, ErrNotMoved) {
		t.Errorf("compact: %v", err)
	}
	if in := inSegments(t, s); out.Segments != 3 || !slices.Equal(in, []uint64{1, 5}) {
		t.Errorf("after %+v records live in the segments %v", out, in)
	}
	denied.Store(false)
	m := model(t, s, plain())
	for _, p := range lives {
		expect(t, m, p, 320)
	}
}

// Nor does one out of which nothing can be moved. The next compaction does what is left.
func TestCompactOfASegmentThatCannotBeOpened(t *testing.T) {
	var denied atomic.Bool
	s, lives := besideDenied(t, &denied)
	out, err := s.Compact(ctx, CompactOptions{LiveShare: 1})
	if !errors.Is(err, ErrNotDestroyed) || !errors.Is(err, ErrNotMoved) {
		t.Errorf("compact: %v", err)
	}
	if in := inSegments(t, s); out.Segments != 3 || !slices.Equal(in, []uint64{1, 5}) {
		t.Errorf("after %+v records live in the segments %v", out, in)
	}
	denied.Store(false)
	if _, err := s.Compact(ctx, CompactOptions{LiveShare: 1}); err != nil {
		t.Errorf("compact once it can be opened: %v", err)
	}
	if in := inSegments(t, s); slices.Contains(in, 1) {
		t.Errorf("then records live in the segments %v", in)
	}
	m := model(t, s, plain())
	for _, p := range lives {
		expect(t, m, p, 320)
	}
}

// What could not be destroyed at first, and is in the end, is no error.
func TestCompactBesideASegmentThatCanBeOpenedAgain(t *testing.T) {
	var denied atomic.Bool
	s, _ := besideDenied(t, &denied)
	if _, err := s.Compact(ctx, CompactOptions{Progress: func(Progress) { denied.Store(false) }}); err != nil {
		t.Error(err)
	}
}
