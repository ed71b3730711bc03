package engine_test

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A record's pages may have been punched by a process that was killed before it said so. Destroying it once more needs a page
// on a full disk, and must work nevertheless: deletions and evictions make room there.
func TestDestroyAgainOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range 3 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 64)})
	}
	if _, err := m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(0, 64)[:1]}); err != nil {
		t.Fatal(err)
	}
	storetest.Crash(s)
	var full atomic.Bool
	disk := storetest.Failing(func(c storetest.Call) error { // punching needs no page
		if full.Load() && c.Kind == "write" && c.InSegments() {
			return db.ErrNoSpace
		}
		return nil
	})
	s = storetest.OpenOn(t, disk, dir, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	full.Store(true)
	if _, err := m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(1, 64)[:1]}); err != nil {
		t.Errorf("delete on a full disk: %v", err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("sync on a full disk: %v", err)
	}
	full.Store(false)
	storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, 0)
	storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}, 64)
}

// gatedRemove is a file system on which the removal of a log file meets a listing of the log's folder, if there may be one.
type gatedRemove struct {
	vfs.FS
	on               *atomic.Bool
	removing, listed chan struct{}
	removed          chan struct{}
}

func (f gatedRemove) Remove(name string) error {
	if filepath.Ext(name) != ".wal" || !f.on.CompareAndSwap(true, false) {
		return f.FS.Remove(name)
	}
	close(f.removing)
	select {
	case <-f.listed:
	case <-time.After(200 * time.Millisecond): // nobody lists files that are being removed
	}
	defer close(f.removed)
	return f.FS.Remove(name)
}

func (f gatedRemove) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	select {
	case <-f.removing:
		select {
		case <-f.listed:
		default:
			close(f.listed)
			<-f.removed
		}
	default:
	}
	return names, err
}

// The log can be listed while a checkpoint removes its files.
func TestLogBesideCheckpoint(t *testing.T) {
	f := gatedRemove{vfs.OS, new(atomic.Bool), make(chan struct{}), make(chan struct{}), make(chan struct{})}
	s := storetest.OpenOn(t, f, t.TempDir(), storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 16)})
	f.on.Store(true)
	var beside sync.WaitGroup
	beside.Go(func() {
		if err := s.Checkpoint(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-f.removing
	if _, err := db.Collect(admin.Log(t.Context(), s)); err != nil {
		t.Error(err)
	}
	beside.Wait()
}
