package engine_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A name that is empty, as of a variable that is not set, is not the current directory.
func TestOpenWithoutAName(t *testing.T) {
	t.Chdir(t.TempDir())
	if s, err := db.Open(t.Context(), "", storetest.Options()); err == nil {
		s.Close()
		t.Error("a store was made in the current directory")
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// syncedDirs notes which directories are synced.
func syncedDirs(dirs *[]string) *storetest.Disk {
	return storetest.Failing(func(c storetest.Call) error {
		if c.Kind == "syncdir" {
			*dirs = append(*dirs, c.Name)
		}
		return nil
	})
}

// A power cut does not take a new store's directory with all that was acknowledged in it: its name, and those of the directories
// that were made above it, are synced.
func TestNewDirectoriesAreSynced(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "app", "cache", "kv")
	var synced []string
	storetest.OpenOn(t, syncedDirs(&synced), dir, storetest.Options())
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
		storetest.OK(t, os.MkdirAll(dirs[made], 0o700))
		var synced []string
		storetest.OpenOn(t, syncedDirs(&synced), dirs[2], storetest.Options())
		want := []string{filepath.Dir(top), top, dirs[1]}[made:]
		if len(synced) < len(want) || !slices.Equal(synced[:len(want)], want) {
			t.Errorf("%d were made: expected that %v are synced first, found %v", made, want, synced)
		}
	}
}

// A store that has no LOCK, a copy, say, can be opened for reading, suspended and resumed, and gets none by that.
func TestReadOnlyWithoutLock(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.OK(t, s.Close())
	lock := filepath.Join(dir, storetest.LockFile)
	storetest.OK(t, os.Remove(lock))
	o := storetest.Options()
	o.ReadOnly = true
	other := storetest.Open(t, dir, o) // several may read it
	s = storetest.Open(t, dir, o)
	storetest.Expect(t, storetest.Model(t, other, crashtest.Plain()), p, 48)
	storetest.OK(t, other.Close())
	m := storetest.Model(t, s, crashtest.Plain())
	for range 2 {
		storetest.OK(t, s.Suspend(t.Context()))
		storetest.OK(t, s.Resume(t.Context()))
		storetest.Expect(t, m, p, 48)
	}
	storetest.OK(t, s.Close())
	if _, err := os.Stat(lock); err == nil {
		t.Error("a store that is only read has got a LOCK")
	}
}
