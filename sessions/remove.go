package sessions

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Remove empties and unlinks a scope's file, with what a crash left beside it of another one, and makes that durable. What proves to be
// somebody else's stays. Nothing to remove is no error.
func Remove(o Options, scope [16]byte) error {
	o = o.withDefaults()
	var errs []error
	for _, name := range []string{o.Path(scope), o.Path(scope) + tmpSuffix} {
		errs = append(errs, o.erase(name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := o.syncDir(); err != nil && !errors.Is(err, fs.ErrNotExist) { // there is no folder
		return fmt.Errorf("sync %s: %w", o.Dir, err)
	}
	return nil
}

// CheckTemporary returns vfs.ErrForeign where what lies under the name that a scope's file has while it is written anew is somebody else's: then the
// file cannot be.
func CheckTemporary(o Options, scope [16]byte) error {
	o = o.withDefaults()
	return vfs.CheckOwn(o.FS, o.Path(scope)+tmpSuffix, o.ours)
}

func (o Options) erase(name string) error {
	switch err := vfs.CheckOwn(o.FS, name, o.ours); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, vfs.ErrForeign):
		return nil
	case err != nil:
		return err
	}
	info, err := o.FS.Stat(name)
	if err != nil {
		return err
	}
	if info.Regular && info.Size > 0 {
		f, err := o.FS.Open(name, false)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Truncate(0), o.sync(f), f.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := o.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	o.Grew(-info.Allocated)
	return nil
}
