package engine_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/space"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// A segment in which nothing can be destroyed takes room from the others, and no more: puts, and the background, evict what makes room there.
func TestPutsBesideASegmentThatCannotBeOpened(t *testing.T) {
	for _, background := range []bool{false, true} {
		o := storetest.Options()
		var denied atomic.Bool
		disk := storetest.Shut(vfs.OS, "0000000000000001.seg", &denied, syscall.EIO)
		o.Budget, o.SegmentBytes = 4<<20, 256<<10
		if !background {
			o.HighWater, o.LowWater = 1, 1
		}
		dir := t.TempDir()
		s := storetest.OpenOn(t, disk, dir, o)
		m := storetest.Model(t, s, crashtest.Plain())
		n := 0
		next := func() error { n++; return putNth(t, m, n) }
		for n < 12 || !background && storetest.Stats(t, s).Evicted == 0 { // the background is still below the high-water mark
			storetest.OK(t, next())
		}
		storetest.OK(t, s.Close())
		s = storetest.OpenOn(t, disk, dir, o)
		m = storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(n, 320)}, 320)
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1000, 16)})
		denied.Store(true)
		if background {
			if _, err := m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(1, 320)}); err == nil {
				t.Fatal("deleted, and nothing could be destroyed")
			}
		}
		for range 60 {
			if err := next(); err != nil {
				t.Fatalf("background %t: put %d: %v", background, n, err)
			}
			storetest.Engine(s).Space.EvictToLowWater(t.Context()) // as the background does: what it says of that segment is logged
		}
		denied.Store(false)
	}
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
	storetest.OK(t, s.Close())
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

// A segment in which nothing can be destroyed does not keep Compact from the others: it says so in the end. Nor does one out of which nothing
// can be moved. The next compaction does what is left.
func TestCompactBesideASegmentThatCannotBeOpened(t *testing.T) {
	for _, c := range []struct {
		o      db.CompactOptions
		moving bool // something would have to be moved out of it, too
	}{{db.CompactOptions{}, false}, {db.CompactOptions{LiveShare: 1}, true}} {
		var denied atomic.Bool
		s, lives := besideDenied(t, &denied)
		out, err := s.Compact(t.Context(), c.o)
		if !errors.Is(err, db.ErrNotDestroyed) || errors.Is(err, db.ErrNotMoved) != c.moving {
			t.Errorf("compact: %v", err)
		}
		if in := inSegments(t, s); out.Segments != 3 || !slices.Equal(in, []uint64{1, 5}) {
			t.Errorf("after %+v records live in the segments %v", out, in)
		}
		denied.Store(false)
		if _, err := s.Compact(t.Context(), c.o); err != nil {
			t.Errorf("compact once it can be opened: %v", err)
		}
		if in := inSegments(t, s); slices.Contains(in, 1) == c.moving {
			t.Errorf("then records live in the segments %v", in)
		}
		m := storetest.Model(t, s, crashtest.Plain())
		for _, p := range lives {
			storetest.Expect(t, m, p, 320)
		}
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

// A segment in which nothing can be destroyed does not end a compaction: what moves awaits the room of the old places, and those are in other
// segments.
func TestMovesBesideASegmentThatCannotBeOpened(t *testing.T) {
	o := putsEvict(4<<20, 256<<10)
	var denied atomic.Bool
	dir := t.TempDir()
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	for n := 1; storetest.Stats(t, s).Evicted == 0; n++ {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(n, 320)})
	}
	storetest.OK(t, s.Close())
	files, err := filepath.Glob(filepath.Join(dir, storetest.SegmentsDir, "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	oldest := filepath.Base(files[0]) // the first segments may be gone, if the background evicted all that was in them
	var id uint64
	storetest.Must(fmt.Sscanf(oldest, "%x.seg", &id))(t)
	disk := storetest.Shut(vfs.OS, oldest, &denied, syscall.EIO)
	o.Budget += 256 << 10 // less than what moves
	s = storetest.OpenOn(t, disk, dir, o)
	m = storetest.Model(t, s, crashtest.Plain())
	denied.Store(true)
	for n := 1; err == nil && n < 1000; n++ { // the oldest that was not evicted lies in that segment
		_, err = m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(n, 16)})
	}
	if !errors.Is(err, db.ErrNotDestroyed) {
		t.Fatal(err)
	}
	var out space.Compacted
	err = storetest.Engine(s).Space.Inside().Rewrite(t.Context(), func(s segments.Info, _ int64) bool { return s.ID > id && s.ID < id+7 }, &out)
	if err != nil || out.Records == 0 {
		t.Errorf("%+v moved: %v", out, err)
	}
	denied.Store(false)
}
