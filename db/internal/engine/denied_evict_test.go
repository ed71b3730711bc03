package engine_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// A segment in which nothing can be destroyed does not keep the background from evicting what makes room in others.
func TestEvictionBesideASegmentThatCannotBeOpened(t *testing.T) {
	o := storetest.Options()
	var denied atomic.Bool
	disk := storetest.Shut(vfs.OS, "0000000000000001.seg", &denied, syscall.EIO)
	o.Budget, o.SegmentBytes = 4<<20, 256<<10
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
	for range 12 { // below the high-water mark
		if err := next(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storetest.OpenOn(t, disk, dir, o)
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1000, 16)})
	first := kv.Prompt{Tokens: crashtest.Tokens(1, 320)}
	denied.Store(true)
	if _, err := m.Delete(t.Context(), first); err == nil {
		t.Fatal("deleted, and nothing could be destroyed")
	}
	for range 60 {
		if err := next(); err != nil {
			t.Fatalf("put %d: %v", n, err)
		}
		storetest.Engine(s).Inside().EvictToLowWater(t.Context()) // as the background does: what it says of that segment is logged
	}
	denied.Store(false)
}

// Nor does it end a compaction: what moves awaits the room of the old places, and those are in other segments.
func TestMovesBesideASegmentThatCannotBeOpened(t *testing.T) {
	o := storetest.Options()
	var denied atomic.Bool
	o.Budget, o.SegmentBytes = 4<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	dir := t.TempDir()
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	for n := 1; storetest.Stats(t, s).Evicted == 0; n++ {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(n, 320)})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, storetest.SegmentsDir, "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	oldest := filepath.Base(files[0]) // the first segments may be gone, if the background evicted all that was in them
	var id uint64
	if _, err := fmt.Sscanf(oldest, "%x.seg", &id); err != nil {
		t.Fatal(err)
	}
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
	var out engine.Compacted
	err = storetest.Engine(s).Inside().Rewrite(t.Context(), func(s segments.Info, _ int64) bool { return s.ID > id && s.ID < id+7 }, nil, &out)
	if err != nil || out.Records == 0 {
		t.Errorf("%+v moved: %v", out, err)
	}
	denied.Store(false)
}
