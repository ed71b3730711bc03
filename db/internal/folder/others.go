package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// RefuseOthers keeps a new store from being made among somebody's files, and changes nothing. A directory is a store if FORMAT says so,
// or, where that is missing or damaged, a segment. Else there is nothing in it but what the making of a store leaves that came to no end.
func RefuseOthers(fsys vfs.FS, dir string) error {
	for try := 0; ; try++ {
		_, _, err := Read(fsys, dir)
		switch {
		case err == nil, errors.Is(err, vfs.ErrVersion):
			return nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, vfs.ErrNotRegular):
			return err // too many open files, say
		}
		name, why := stranger(fsys, dir)
		if name == "" {
			return why
		}
		if _, ferr := fsys.Stat(filepath.Join(dir, FormatName)); ferr == nil && errors.Is(err, fs.ErrNotExist) && try < 9 {
			continue // another process was just making a store here
		}
		if name == FormatName {
			why = err
		}
		if why != nil {
			return fmt.Errorf("%s: %w: found %q: %w", dir, ErrNotEmpty, name, why)
		}
		return fmt.Errorf("%s: %w: found %q", dir, ErrNotEmpty, name)
	}
}

// stranger returns the first name in dir that the making of a store, up to its FORMAT, does not leave, and what is wrong with it; or an
// error alone.
func stranger(fsys vfs.FS, dir string) (name string, why error) {
	names, err := fsys.List(dir)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := fsys.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		switch {
		case info.Dir && (name == LogDir || name == SegmentsDir):
			inside, err := fsys.List(path)
			if err != nil {
				return "", err
			}
			if len(inside) > 0 {
				return filepath.Join(name, inside[0]), nil
			}
			continue
		case info.Regular && name == LockName:
			err = vfs.CheckOwn(fsys, path, vfs.IsLock)
		case info.Regular && name == FormatName+".tmp":
			err = vfs.CheckOwn(fsys, path, IsFormat)
		default:
			return name, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return name, err
		}
	}
	return "", nil
}
