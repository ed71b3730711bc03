package engine

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/wal"
)

// refuseForeign returns vfs.ErrForeign if a file with a name of ours proves to be somebody else's. The index and the log see to that themselves.
func (e *Engine) refuseForeign() error {
	if err := index.ForeignBloom(e.FS, e.Path(folder.BloomName), e.Format.UUID); err != nil {
		return err
	}
	// A folder is done without, a link leads to nothing of ours; what else there is would be replaced.
	if info, err := e.FS.Stat(e.Path(folder.BloomName)); err == nil && !info.Regular && !info.Link && !info.Dir {
		return fmt.Errorf("%s: %w: %w", e.Path(folder.BloomName), vfs.ErrForeign, vfs.ErrNotRegular)
	}
	return e.CheckUnsynced()
}

// CheckUnsynced is refuseForeign for the file that is removed in the end: it must be empty, or what was the Bloom filter.
func (e *Engine) CheckUnsynced() error {
	err := vfs.CheckOwn(e.FS, e.Path(folder.UnsyncedName), func(head []byte) bool { return index.IsBloom(head, e.Format.UUID) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// refuseUnproven is refuseForeign where FORMAT is not there to say that the directory is a store: then each file must say for itself that it
// is the store's, but for the segments, of which one has said so.
func (e *Engine) refuseUnproven() error {
	ours, err := index.Whose(e.indexOptions())
	if err == nil && !ours {
		err = fmt.Errorf("%s: %w: nothing in it says that it is the store's, and there is no FORMAT", e.Path(folder.IndexName), vfs.ErrForeign)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrNotRegular) {
		err = vfs.CheckOwn(e.FS, e.Path(folder.BloomName), func(head []byte) bool { return index.IsBloom(head, e.Format.UUID) })
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = wal.Unproven(e.LogOptions())
	}
	return err
}
