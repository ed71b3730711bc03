package db

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// However a disk that cannot sync ends the first opens of a store, and whatever a power cut leaves of them, the next one opens it.
func TestFirstOpensOnADiskThatCannotSync(t *testing.T) {
	dirs := newCrashDirs(t)
	for first := 0; ; first++ {
		d := newCrashDisk(dirs.Next())
		syncs := failBehind(d, first, func(op crashfs.Op) bool {
			return op.Kind == "sync" || op.Kind == "syncdir"
		}, diskFails)
		for range 2 {
			w := &crashRun{d: d, k: crashModes[0]}
			w.open()
			w.kill()
		}
		for seed := range uint64(12) {
			image, err := d.PowerCut(rand.New(rand.NewPCG(seed, 3)), dirs.Next())
			if err != nil {
				t.Fatal(err)
			}
			x := &crashRun{d: image, k: crashModes[0]}
			if err := x.open(); err != nil {
				t.Errorf("%d syncs were done, image %d: %v", first, seed, err)
			}
			x.kill()
			os.RemoveAll(image.Dir())
		}
		os.RemoveAll(d.Dir())
		if syncs.Load() <= int64(first) {
			break
		}
	}
}

// A name that is empty, as of a variable that is not set, is not the current directory.
func TestOpenWithoutAName(t *testing.T) {
	t.Chdir(t.TempDir())
	if s, err := Open(ctx, "", options()); err == nil {
		s.Close()
		t.Error("a store was made in the current directory")
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// syncedDirsFS notes which directories are synced.
type syncedDirsFS struct {
	vfs.FS
	dirs *[]string
}

func (f syncedDirsFS) SyncDir(dir string) error {
	*f.dirs = append(*f.dirs, dir)
	return f.FS.SyncDir(dir)
}

// A power cut does not take a new store's directory with all that was acknowledged in it: its name, and those of the directories
// that were made above it, are synced.
func TestNewDirectoriesAreSynced(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "app", "cache", "kv")
	var synced []string
	o := options()
	o.fs = syncedDirsFS{vfs.OS, &synced}
	open(t, dir, o)
	for _, d := range []string{top, filepath.Join(top, "app"), filepath.Join(top, "app", "cache")} {
		if !slices.Contains(synced, d) {
			t.Errorf("%s was not synced, but %v", d, synced)
		}
	}
}

// A process that was killed while it made a new store's directories may have synced the names of all but the deepest: the next one
// syncs that.
func TestDirectoriesOfKilledProcessAreSynced(t *testing.T) {
	for made := range 3 {
		top := t.TempDir()
		dirs := []string{top, filepath.Join(top, "app"), filepath.Join(top, "app", "kv")}
		if err := os.MkdirAll(dirs[made], 0o700); err != nil {
			t.Fatal(err)
		}
		var synced []string
		o := options()
		o.fs = syncedDirsFS{vfs.OS, &synced}
		open(t, dirs[2], o)
		want := []string{filepath.Dir(top), top, dirs[1]}[made:]
		if len(synced) < len(want) || !slices.Equal(synced[:len(want)], want) {
			t.Errorf("%d were made: expected that %v are synced first, found %v", made, want, synced)
		}
	}
}

// A store that has no LOCK, a copy, say, can be opened for reading, suspended and resumed, and gets none by that.
func TestReadOnlyWithoutLock(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	p := kv.Tokens(tokens(1, 48)...)
	put(t, model(t, s, plain()), p)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(dir, lockName)
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.ReadOnly = true
	other := open(t, dir, o) // several may read it
	s = open(t, dir, o)
	expect(t, model(t, other, plain()), p, 48)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	m := model(t, s, plain())
	for range 2 {
		if err := s.Suspend(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		expect(t, m, p, 48)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(lock); err == nil {
		t.Error("a store that is only read has got a LOCK")
	}
}

// A folder that cannot be opened for want of file handles, when its names are to be synced, poisons nothing, because no fsync
// failed. What should have been durable is not acknowledged until it is.
func TestWantOfFilesToSyncAFolder(t *testing.T) {
	for _, where := range []string{walDir, segmentsDir, ""} {
		for _, o := range []crashOp{{kind: "sync"}, {kind: "put", chat: 4, n: 80}, {kind: "checkpoint"}, {kind: "delete", chat: 4, n: 50}} {
			if o.kind == "delete" && where == segmentsDir {
				continue // it rests on no segment
			}
			t.Run(fmt.Sprint(where, " ", o), func(t *testing.T) {
				w := crashCase(t, crashMode{power: true})
				w.steps(t, crashOp{kind: "put", chat: 0, n: 50}, crashOp{kind: "put", chat: 4, n: 70})
				w.steps(t, crashOp{kind: "reopen"}, crashOp{kind: "put", chat: 2, n: 100})
				w = nextRun(t, w.dies(t), w.k, w.j)
				w.steps(t, crashOp{kind: "open"})
				failed := failBehind(w.d, 0, func(op crashfs.Op) bool {
					return op.Kind == "syncdir" && op.Name != "." && strings.HasPrefix(op.Name, where)
				}, func() error { return vfs.PassingErrors[0] })
				err := w.do(o)
				w.d.Before(nil)
				if failed.Load() == 0 || !errors.Is(err, vfs.ErrNotSynced) || errors.Is(err, ErrPoisoned) {
					t.Errorf("%d folders could not be opened: %v", failed.Load(), err)
				}
				if err := w.s.eng.Poisoned(); err != nil || w.s.eng.Inside().Unsynced() {
					t.Errorf("marked: %t, poisoned: %v", w.s.eng.Inside().Unsynced(), err)
				}
				w.steps(t, o, crashOp{kind: "put", chat: 1, n: 90}, crashOp{kind: "sync"})
				w.d.Crash()
				w.kill()
				w.cuts(t, 8, "")
			})
		}
	}
}

// A folder that cannot be opened when index.db gets its new name is no failed fsync: that call fails, and the next tries again.
func TestFolderOfTheIndexCannotBeOpened(t *testing.T) {
	w := crashCase(t, crashMode{power: true})
	w.steps(t, putAll()...)
	w.steps(t, crashOp{kind: "checkpoint"})
	failed := failBehind(w.d, 0, func(op crashfs.Op) bool { return op.Kind == "syncdir" && op.Name == "." },
		func() error { return vfs.PassingErrors[0] })
	_, err := w.s.Compact(ctx, CompactOptions{All: true})
	w.d.Before(nil)
	if failed.Load() == 0 || !errors.Is(err, vfs.ErrNotSynced) {
		t.Fatalf("compact: %d failed, %v", failed.Load(), err)
	}
	if err := w.s.eng.Poisoned(); err != nil {
		t.Errorf("poisoned: %v", err)
	}
	w.steps(t, crashOp{kind: "put", chat: 4, n: 80})
	w.steps(t, crashOp{kind: "checkpoint"}, crashOp{kind: "put", chat: 3, n: 60})
	w.d.Crash()
	w.kill()
	w.cuts(t, 6, "")
}
