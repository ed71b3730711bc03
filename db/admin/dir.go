package admin

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// CheckDir says whether db.Open would take a directory, for the store that is in it or for a new one: ErrNotEmpty, ErrUnsafeDir. It changes nothing. A
// directory that is not there is taken.
func CheckDir(dir string, allowShared bool) error {
	err := folder.Prepare(vfs.OS, dir, true, allowShared)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = folder.RefuseOthers(vfs.OS, dir)
	}
	if err == nil {
		err = folder.CheckFiles(dir, allowShared, slog.New(slog.DiscardHandler))
	}
	return err
}

// Room says what is free on the file system of a store that is, or will be, in a directory, how many bytes the store has of it already, and how much a
// store that is opened with minFree for db.Options.MinFree leaves free.
func Room(dir string, minFree int64) (free, used, kept int64, err error) {
	if used, err = folder.Bytes(vfs.OS, dir); err != nil {
		return 0, 0, 0, err
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	if kept = max(0, minFree); minFree == 0 {
		kept = folder.MinFree(dir)
	}
	bytes, _, err := vfs.OS.Space(dir)
	return int64(min(bytes, 1<<62)), used, kept, err
}
