package db

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

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
