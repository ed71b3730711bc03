package repair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// target is the directory of the new store. That is made in a directory beside it, and gets its name when it is whole.
type target struct{ dir, building string }

// notEmpty says why a directory is not taken for a new store.
type notEmpty string

func (e notEmpty) Error() string        { return string(e) }
func (e notEmpty) Is(target error) bool { return target == folder.ErrNotEmpty }

// newTarget makes the directory beside to, which must be missing or empty.
func newTarget(from, to string) (*target, error) {
	if liesIn(to, from) {
		return nil, notEmpty(to + ": it lies in the damaged store, which is not changed")
	}
	info, err := os.Stat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, notEmpty(to + ": not a directory")
	default:
		if to, err = filepath.EvalSymlinks(to); err != nil {
			return nil, err
		}
		names, err := vfs.OS.List(to)
		if err != nil {
			return nil, err
		}
		if len(names) > 0 {
			return nil, notEmpty(fmt.Sprintf("%s: the new store needs a directory that is missing or empty: found %q", to, names[0]))
		}
	}
	t := &target{to, to + ".repair"}
	err = os.Mkdir(t.building, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil, notEmpty(t.building + ": in the way of the new store; a repair that was killed leaves it: remove it")
	}
	return t, err
}

// liesIn reports whether path is dir or lies below it, links resolved.
func liesIn(path, dir string) bool {
	for p := path; ; p = filepath.Dir(p) {
		real, err := filepath.EvalSymlinks(p)
		if err != nil { // not there yet
			if p == filepath.Dir(p) {
				return false
			}
			continue
		}
		if d, err := filepath.EvalSymlinks(dir); err == nil {
			dir = d
		}
		rel, err := filepath.Rel(dir, real)
		return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
	}
}

// commit gives the finished store its name, if nothing has come there meanwhile.
func (t *target) commit() error {
	if err := vfs.OS.SyncDir(t.building); err != nil {
		return err
	}
	switch info, err := os.Lstat(t.dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !info.IsDir() || os.Remove(t.dir) != nil:
		return notEmpty(t.dir + ": something came there while the new store was made")
	}
	if err := os.Rename(t.building, t.dir); err != nil {
		return err
	}
	return vfs.OS.SyncDir(filepath.Dir(t.dir))
}
