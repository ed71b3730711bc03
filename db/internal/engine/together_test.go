package engine_test

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/db/internal/write"
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
	storetest.Must(m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(0, 64)[:1]}))(t)
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

// A scope that begins within the first 16 tokens ends the first block there. What is stored behind it is found all the same,
// by the filter that puts have added to and by one that was rebuilt.
func TestScopeBeginsWithinTheOpening(t *testing.T) {
	for _, at := range []int{1, 10, 15, 16, 17} {
		s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
		p := kv.Prompt{Tokens: crashtest.Tokens(1, 100), Scope: "alice", ScopeStart: at}
		storetest.Put(t, m, p)
		storetest.Eventually(t, "the Bloom filter is built", func() bool { return storetest.Engine(s).Inside().Bloom().Load() != nil })
		if n, reason := storetest.Restore(t, m, p); n != 100 {
			t.Errorf("scope at %d: %d tokens (%v), expected 100", at, n, reason)
		}
		storetest.OK(t, storetest.Engine(s).RebuildBloom(t.Context()))
		if n, reason := storetest.Restore(t, m, p); n != 100 {
			t.Errorf("scope at %d, after the filter was rebuilt: %d tokens (%v), expected 100", at, n, reason)
		}
	}
}

// halfPut is a put of a prompt's rows from first on whose steps the caller does.
func halfPut(t *testing.T, s *db.Store, m *db.Model, p *kv.Prompt, first int) *write.Put {
	t.Helper()
	e := storetest.Engine(s)
	rows := storetest.Filled(m.Descriptor(), p, first, len(p.Tokens))
	w := e.Inside().NewPut(e.Catalog.Model(m.Fingerprint()), rows, nil, write.Options{Codec: storetest.Options().Codec})
	storetest.OK(t, w.Plan(p))
	return w
}

// An extension completes its first block with rows of a stored one. If that is deleted before the new block is published, the
// deleted rows must not come back in it.
func TestDeletedRowsAreNotBorrowed(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40)} {
		s, m := storetest.Fresh(t, storetest.Options(), d)
		short := kv.Prompt{Tokens: crashtest.Tokens(1, 40)}
		long := kv.Prompt{Tokens: crashtest.Concat(short.Tokens, crashtest.Tokens(2, 20))}
		storetest.Put(t, m, short)
		w := halfPut(t, s, m, &long, 38)
		first, err := w.Known()
		for i := first; i < w.Chain.Len() && err == nil; i++ {
			err = w.Block(t.Context(), i)
		}
		storetest.OK(t, err)
		if del, err := m.Delete(t.Context(), short.Prefix(36)); err != nil || del.Blocks != 1 {
			t.Fatalf("%+v, %v", del, err)
		}
		if err := w.Publish(t.Context()); !errors.Is(err, db.ErrNotStored) {
			t.Errorf("%s: an extension of what was deleted: %v", d.Name, err)
		}
		w.Release()
		storetest.Expect(t, m, long, 32)
		if n, _ := storetest.Engine(s).Pins.Counts(); n > 0 {
			t.Errorf("%s: %d blocks are still pinned", d.Name, n)
		}
	}
}

// A put that leaves a part of its prompt to another put, which was faster, is not acknowledged if that part was deleted before
// its own is published.
func TestPutCountsOnNothingDeleted(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40)} {
		s, m := storetest.Fresh(t, storetest.Options(), d)
		p := kv.Prompt{Tokens: crashtest.Tokens(1, 48)}
		storetest.Put(t, m, p.Prefix(16))
		w := halfPut(t, s, m, &p, 0)
		storetest.Must(w.Known())(t)
		err := errors.Join(w.Block(t.Context(), 0), w.Block(t.Context(), 1))
		storetest.Put(t, m, p)
		storetest.OK(t, errors.Join(err, w.Block(t.Context(), 2)))
		storetest.Must(m.Delete(t.Context(), p.Prefix(1)))(t)
		storetest.Put(t, m, p.Prefix(16))
		if err := w.Publish(t.Context()); !errors.Is(err, db.ErrNotStored) {
			t.Errorf("%s: published above what was deleted: %v", d.Name, err)
		}
		w.Release()
		storetest.Expect(t, m, p, 16)
		if n, _ := storetest.Engine(s).Pins.Counts(); n > 0 {
			t.Errorf("%s: %d blocks are still pinned", d.Name, n)
		}
	}
}
