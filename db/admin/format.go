package admin

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// LostFormat says what is wrong with the file FORMAT of the store in dir, where the store can be opened nevertheless: a
// segment's header repeats what was in it. Opening the store for writing restores the file; opening it read-only does
// not. The answer is nil if FORMAT is sound. The error is what db.Open would say of a directory that holds no store, or one
// that it cannot open.
func LostFormat(dir string) (why, err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	_, restored, err := folder.Read(vfs.OS, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, folder.NoStoreError(dir)
	case err != nil || !restored:
		return nil, err
	}
	_, why = folder.ReadFile(vfs.OS, dir)
	return why, nil
}
