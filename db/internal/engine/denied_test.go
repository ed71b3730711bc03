package engine_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A segment in which nothing can be destroyed takes room from the others, and no more: puts evict what makes room.
func TestPutsBesideASegmentThatCannotBeOpened(t *testing.T) {
	o := storetest.Options()
	var denied atomic.Bool
	disk := storetest.Shut(vfs.OS, "0000000000000001.seg", &denied, syscall.EIO)
	o.Budget, o.SegmentBytes = 4<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	dir := t.TempDir()
	s := storetest.OpenOn(t, disk, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	n := 0
	next := func() error {
		n++
		p := kv.Prompt{Tokens: crashtest.Tokens(n, 320)}
		_, err := m.Put(t.Context(), p, storetest.Filled(crashtest.Plain(), &p, 0, 320), db.PutOptions{})
		return err
	}
	for storetest.Stats(t, s).Evicted == 0 {
		if err := next(); err != nil {
			t.Fatal(err)
		}
	}
	first := kv.Prompt{Tokens: crashtest.Tokens(n, 320)}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storetest.OpenOn(t, disk, dir, o)
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Expect(t, m, first, 320)
	denied.Store(true)
	failed := 0
	var last error
	for range 60 {
		if err := next(); err != nil {
			failed++
			last = err
		}
	}
	t.Logf("%d evicted, %d puts failed: %v", storetest.Stats(t, s).Evicted, failed, last)
	if failed > 0 {
		t.Errorf("%d puts failed: %v", failed, last)
	}
	denied.Store(false)
}

// besideDenied makes a store of four segments, three of which are mostly dead. The first one is mostly alive, may not be opened while
// denied is set, as it is then, and has a record that waits to be destroyed. lives are the prompts that are stored. What is destroyed
// stays allocated: else it is a matter of some blocks, and of the file system, whether there is something to gain in the first one.
func besideDenied(t *testing.T, denied *atomic.Bool) (s *db.Store, lives []kv.Prompt) {
	t.Helper()
	o := storetest.Options()
	disk := storetest.Shut(crashtest.NoHoles{FS: vfs.OS}, "0000000000000001.seg", denied, syscall.EIO)
	o.SegmentBytes = 1 << 20
	dir := t.TempDir()
	s = storetest.OpenOn(t, disk, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range 24 { // six in a segment
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(i, 320)...))
	}
	const dead = 1
	for i := range 24 {
		if i == dead {
			continue
		}
		if i < 6 || i%4 == 0 {
			lives = append(lives, kv.Tokens(crashtest.Tokens(i, 320)...))
		} else if _, err := m.Delete(t.Context(), kv.Tokens(crashtest.Tokens(i, 16)...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storetest.OpenOn(t, disk, dir, o)
	m = storetest.Model(t, s, crashtest.Plain())
	denied.Store(true)
	if _, err := m.Delete(t.Context(), kv.Tokens(crashtest.Tokens(dead, 16)...)); !errors.Is(err, db.ErrNotDestroyed) {
		t.Fatalf("delete: %v", err)
	}
	if in := inSegments(t, s); !slices.Equal(in, []uint64{1, 2, 3, 4}) {
		t.Fatalf("records live in the segments %v", in)
	}
	return s, lives
}

// inSegments lists the segments in which something lives.
func inSegments(t *testing.T, s *db.Store) (ids []uint64) {
	t.Helper()
	for x, err := range s.Blocks(t.Context()) {
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
	out, err := s.Compact(t.Context(), db.CompactOptions{})
	if !errors.Is(err, db.ErrNotDestroyed) || errors.Is(err, db.ErrNotMoved) {
		t.Errorf("compact: %v", err)
	}
	if in := inSegments(t, s); out.Segments != 3 || !slices.Equal(in, []uint64{1, 5}) {
		t.Errorf("after %+v records live in the segments %v", out, in)
	}
	denied.Store(false)
	m := storetest.Model(t, s, crashtest.Plain())
	for _, p := range lives {
		storetest.Expect(t, m, p, 320)
	}
}

// Nor does one out of which nothing can be moved. The next compaction does what is left.
func TestCompactOfASegmentThatCannotBeOpened(t *testing.T) {
	var denied atomic.Bool
	s, lives := besideDenied(t, &denied)
	out, err := s.Compact(t.Context(), db.CompactOptions{LiveShare: 1})
	if !errors.Is(err, db.ErrNotDestroyed) || !errors.Is(err, db.ErrNotMoved) {
		t.Errorf("compact: %v", err)
	}
	if in := inSegments(t, s); out.Segments != 3 || !slices.Equal(in, []uint64{1, 5}) {
		t.Errorf("after %+v records live in the segments %v", out, in)
	}
	denied.Store(false)
	if _, err := s.Compact(t.Context(), db.CompactOptions{LiveShare: 1}); err != nil {
		t.Errorf("compact once it can be opened: %v", err)
	}
	if in := inSegments(t, s); slices.Contains(in, 1) {
		t.Errorf("then records live in the segments %v", in)
	}
	m := storetest.Model(t, s, crashtest.Plain())
	for _, p := range lives {
		storetest.Expect(t, m, p, 320)
	}
}

// What could not be destroyed at first, and is in the end, is no error.
func TestCompactBesideASegmentThatCanBeOpenedAgain(t *testing.T) {
	var denied atomic.Bool
	s, _ := besideDenied(t, &denied)
	if _, err := s.Compact(t.Context(), db.CompactOptions{Progress: func(db.Progress) { denied.Store(false) }}); err != nil {
		t.Error(err)
	}
}
