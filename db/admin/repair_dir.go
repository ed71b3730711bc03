package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// target is the directory of the new store. That is made in a directory beside it, and gets its name when it is whole.
type target struct {
	dir, building string
	taken         bool // dir was there, empty: it is building now
}

// notEmpty says why a directory is not taken for a new store.
type notEmpty string

func (e notEmpty) Error() string        { return string(e) }
func (e notEmpty) Is(target error) bool { return target == folder.ErrNotEmpty }

// newTarget makes the directory beside to, which must be missing or empty.
func newTarget(from, to string) (*target, error) {
	if liesIn(to, from) {
		return nil, notEmpty(to + ": it lies in the damaged store, which is not changed")
	}
	if link, err := filepath.EvalSymlinks(to); err == nil {
		to = link
	}
	t := &target{dir: to, building: to + ".repair"}
	if there, err := os.Lstat(t.building); err == nil {
		if store, err := os.Stat(from); err == nil && os.SameFile(there, store) {
			return nil, notEmpty(t.building + ": the damaged store, in the way of the new one while that is made: choose another name for the new one")
		}
		return nil, notEmpty(t.building + ": in the way of the new store; a repair that was killed leaves it: if no repair is running, remove it")
	}
	switch info, err := os.Lstat(to); {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Mkdir(t.building, 0o700); errors.Is(err, fs.ErrNotExist) {
			return nil, notEmpty(filepath.Dir(to) + ": the folder that the new store is to lie in is not there")
		} else if err != nil {
			return nil, err
		}
		return t, nil
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, notEmpty(to + ": not a directory")
	}
	names, err := vfs.OS.List(to)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		return nil, notEmpty(fmt.Sprintf("%s: the new store needs a directory that is missing or empty: found %q", to, names[0]))
	}
	t.taken = true
	if err := os.Rename(to, t.building); err != nil {
		return nil, fmt.Errorf("the new store is made under another name beside its own: name a folder that is not there yet, in %s: %w", to, err)
	}
	return t, nil
}

// abandon leaves nothing of a store that was not finished.
func (t *target) abandon() error {
	if !t.taken {
		return os.RemoveAll(t.building)
	}
	names, err := vfs.OS.List(t.building)
	if errors.Is(err, fs.ErrNotExist) { // it has its name
		return nil
	}
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(t.building, name)))
	}
	if err != nil {
		return err
	}
	return os.Rename(t.building, t.dir)
}

// liesIn reports whether path is dir or lies below it, links resolved.
func liesIn(path, dir string) bool {
	real, err := filepath.EvalSymlinks(path)
	if up := filepath.Dir(path); err != nil && up != path { // not there yet
		return liesIn(up, dir)
	}
	if d, err := filepath.EvalSymlinks(dir); err == nil {
		dir = d
	}
	rel, err := filepath.Rel(dir, real)
	return err == nil && filepath.IsLocal(rel)
}

// commit gives the finished store its name, if nothing has come there meanwhile.
func (t *target) commit() error {
	if err := vfs.OS.SyncDir(t.building); err != nil {
		return err
	}
	if _, err := os.Lstat(t.dir); !errors.Is(err, fs.ErrNotExist) {
		return notEmpty(t.dir + ": something came there while the new store was made")
	}
	if err := os.Rename(t.building, t.dir); err != nil {
		return err
	}
	return vfs.OS.SyncDir(filepath.Dir(t.dir))
}
