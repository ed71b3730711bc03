package db

import (
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
