package engine

import (
	"errors"
	"io/fs"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// openFormat reads FORMAT, or writes it for a new store.
func (e *Engine) openFormat() error {
	var restored bool
	var err error
	e.Format, restored, err = folder.Read(e.FS, e.Dir)
	switch {
	case err == nil && !e.o.ReadOnly && e.checkFeatures() != nil:
		return e.checkFeatures()
	case err == nil && restored:
		e.log.Warn("FORMAT was lost and is restored from a segment", "dir", e.Dir)
		if e.o.ReadOnly {
			return nil
		}
		// Whatever else has that name is neither replaced, nor done without: the segments that say whose it is may all go.
		switch err := vfs.CheckOwn(e.FS, e.Path(folder.FormatName), folder.IsFormat); {
		case errors.Is(err, fs.ErrNotExist):
			if err := e.refuseUnproven(); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	case err == nil:
		if e.o.ReadOnly {
			return nil
		}
		return e.makeFolders()
	case e.o.ReadOnly && errors.Is(err, fs.ErrNotExist):
		return folder.NoStoreError(e.Dir)
	case e.o.ReadOnly, errors.Is(err, vfs.ErrVersion):
		return err
	default: // under the lock once more: what is there may be there since then
		if err := folder.RefuseOthers(e.FS, e.Dir); err != nil {
			return err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		e.Format = folder.New()
	}
	if err := e.makeFolders(); err != nil {
		return err
	}
	return vfs.WriteAtomic(e.FS, e.Dir, e.Path(folder.FormatName), e.Format.Encode(), folder.IsFormat)
}

func (e *Engine) makeFolders() error {
	for _, name := range []string{folder.LogDir, folder.SegmentsDir} {
		if err := e.FS.Mkdir(e.Path(name)); err != nil {
			return err
		}
	}
	return nil
}
