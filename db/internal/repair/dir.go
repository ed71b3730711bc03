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

// buildingName is the folder in which Repair builds the new store, in the directory where that will be. Open refuses a
// directory with such a folder in it, and Repair does, too.
const buildingName = "repair.tmp"

// target is the directory of the new store.
type target struct {
	dir      string
	building string
	made     bool     // by us
	moved    []string // names in dir that came out of building
}

// notEmpty says why a directory is not taken for a new store.
type notEmpty string

func (e notEmpty) Error() string        { return string(e) }
func (e notEmpty) Is(target error) bool { return target == folder.ErrNotEmpty }

// newTarget makes the directory, or takes one that is empty.
func newTarget(from, to string, shared bool) (*target, error) {
	t := &target{dir: to, building: filepath.Join(to, buildingName)}
	if liesIn(to, from) {
		return nil, notEmpty(to + ": it lies in the damaged store, which is not changed")
	}
	info, err := os.Stat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Mkdir(to, 0o700); err != nil {
			return nil, err
		}
		t.made = true
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, notEmpty(to + ": not a directory")
	default:
		if err := folder.Unsafe(to, info, shared); err != nil {
			return nil, err
		}
		names, err := vfs.OS.List(to)
		if err != nil {
			return nil, err
		}
		if len(names) == 1 && names[0] == buildingName {
			return nil, notEmpty(fmt.Sprintf("%s: a repair that was killed left %q there; remove it", to, buildingName))
		}
		if len(names) > 0 {
			return nil, notEmpty(fmt.Sprintf("%s: the new store needs a directory that is missing or empty: found %q", to, names[0]))
		}
	}
	if err := os.Mkdir(t.building, 0o700); err != nil {
		return nil, errors.Join(err, t.discard())
	}
	return t, nil
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

// commit moves the finished store to its place. Until its segments are there, nothing takes the directory for a store;
// from then on it is whole, since a FORMAT that is not there yet is restored from a segment.
func (t *target) commit() error {
	names, err := vfs.OS.List(t.building)
	if err != nil {
		return err
	}
	for _, now := range []func(name string) bool{
		func(n string) bool { return n != folder.SegmentsDir && n != folder.FormatName },
		func(n string) bool { return n == folder.SegmentsDir },
		func(n string) bool { return n == folder.FormatName },
	} {
		for _, n := range names {
			if !now(n) {
				continue
			}
			if _, err := os.Lstat(filepath.Join(t.dir, n)); !errors.Is(err, fs.ErrNotExist) {
				return notEmpty(fmt.Sprintf("%s: %q came there while the new store was made", t.dir, n))
			}
			if err := os.Rename(filepath.Join(t.building, n), filepath.Join(t.dir, n)); err != nil {
				return err
			}
			t.moved = append(t.moved, n)
		}
		if err := errors.Join(vfs.OS.SyncDir(t.dir), vfs.OS.SyncDir(t.building)); err != nil {
			return err
		}
	}
	if err := os.Remove(t.building); err != nil {
		return err
	}
	return errors.Join(vfs.OS.SyncDir(t.dir), vfs.OS.SyncDir(filepath.Dir(t.dir)))
}

// discard removes all that was made.
func (t *target) discard() error {
	var err error
	for i := len(t.moved) - 1; i >= 0; i-- {
		err = errors.Join(err, os.RemoveAll(filepath.Join(t.dir, t.moved[i])))
	}
	err = errors.Join(err, os.RemoveAll(t.building))
	if t.made {
		err = errors.Join(err, os.Remove(t.dir))
	}
	return err
}
