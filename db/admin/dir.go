package admin

import (
	"errors"
	"io/fs"
	"log/slog"

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
