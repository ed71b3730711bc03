package db

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// oneDeniedFS is a file system where one file may not be opened.
type oneDeniedFS struct {
	vfs.FS
	name   string
	denied *atomic.Bool
}

func (f oneDeniedFS) Open(name string, readOnly bool) (vfs.File, error) {
	if f.denied.Load() && filepath.Base(name) == f.name {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EIO}
	}
	return f.FS.Open(name, readOnly)
}

// A segment in which nothing can be destroyed does not keep the background from evicting what makes room in others.
func TestEvictionBesideASegmentThatCannotBeOpened(t *testing.T) {
	o := options()
	var denied atomic.Bool
	o.fs = oneDeniedFS{vfs.OS, "0000000000000001.seg", &denied}
	o.Budget, o.SegmentBytes = 4<<20, 256<<10
	dir := t.TempDir()
	s := open(t, dir, o)
	m := model(t, s, plain())
	n := 0
	next := func() error {
		n++
		p := kv.Prompt{Tokens: tokens(n, 320)}
		_, err := m.Put(ctx, p, filled(plain(), &p, 0, 320), PutOptions{})
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
	s = open(t, dir, o)
	m = model(t, s, plain())
	put(t, m, kv.Prompt{Tokens: tokens(1000, 16)})
	first := kv.Prompt{Tokens: tokens(1, 320)}
	denied.Store(true)
	if _, err := m.Delete(ctx, first); err == nil {
		t.Fatal("deleted, and nothing could be destroyed")
	}
	for range 60 {
		if err := next(); err != nil {
			t.Fatalf("put %d: %v", n, err)
		}
		s.eng.Inside().EvictToLowWater(ctx) // as the background does: what it says of that segment is logged
	}
	denied.Store(false)
}

// Nor does it end a compaction: what moves awaits the room of the old places, and those are in other segments.
func TestMovesBesideASegmentThatCannotBeOpened(t *testing.T) {
	o := options()
	var denied atomic.Bool
	o.Budget, o.SegmentBytes = 4<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	dir := t.TempDir()
	s := open(t, dir, o)
	m := model(t, s, plain())
	for n := 1; s.mustStats(t).Evicted == 0; n++ {
		put(t, m, kv.Prompt{Tokens: tokens(n, 320)})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, segmentsDir, "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	oldest := filepath.Base(files[0]) // the first segments may be gone, if the background evicted all that was in them
	var id uint64
	if _, err := fmt.Sscanf(oldest, "%x.seg", &id); err != nil {
		t.Fatal(err)
	}
	o.fs = oneDeniedFS{vfs.OS, oldest, &denied}
	o.Budget += 256 << 10 // less than what moves
	s = open(t, dir, o)
	m = model(t, s, plain())
	denied.Store(true)
	for n := 1; err == nil && n < 1000; n++ { // the oldest that was not evicted lies in that segment
		_, err = m.Delete(ctx, kv.Prompt{Tokens: tokens(n, 16)})
	}
	if !errors.Is(err, ErrNotDestroyed) {
		t.Fatal(err)
	}
	var out engine.Compacted
	err = s.eng.Inside().Rewrite(ctx, func(s segments.Info, _ int64) bool { return s.ID > id && s.ID < id+7 }, nil, &out)
	if err != nil || out.Records == 0 {
		t.Errorf("%+v moved: %v", out, err)
	}
	denied.Store(false)
}
