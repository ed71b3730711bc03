package crashfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/internal/vfs"
)

func (d *Disk) Create(name string) (vfs.File, error) {
	var f *file
	err := d.call("create", name, 0, func(rel string) error {
		if err := d.folderOf(rel); err != nil {
			return err
		}
		if d.at(rel) != nil {
			return fs.ErrExist
		}
		if d.isOutside(rel) {
			return fmt.Errorf("%w: of those of Options.Outside", errors.ErrUnsupported)
		}
		n := newNode()
		d.do(change{dir: parent(rel), new: rel, node: n})
		f = &file{d: d, n: n, name: name, plugged: d.volume.plugged}
		return nil
	})
	if f == nil || err != nil {
		return nil, err
	}
	return f, nil
}

func (d *Disk) Open(name string, readOnly bool) (vfs.File, error) {
	var f *file
	err := d.call("open", name, 0, func(rel string) error {
		n := d.at(rel)
		switch {
		case n == nil:
			return cmp.Or(d.folderOf(rel), fs.ErrNotExist)
		case n.dir:
			return errors.New("not a regular file but a directory")
		}
		f = &file{d: d, n: n, name: name, readOnly: readOnly, plugged: d.volume.plugged}
		if n.outside {
			var err error
			f.real, err = vfs.OS.Open(name, readOnly)
			return err
		}
		return nil
	})
	if err != nil {
		if f != nil && f.real != nil {
			f.real.Close()
		}
		return nil, err
	}
	return f, nil
}

func (d *Disk) Rename(old, new string) error {
	to, err := d.rel("rename", new)
	if err != nil {
		return err
	}
	return d.call("rename", old, 0, func(from string) error {
		n := d.at(from)
		switch over := d.at(to); {
		case n == nil || d.at(parent(to)) == nil:
			return fs.ErrNotExist
		case n.dir || over != nil && over.dir || parent(from) != parent(to):
			return fmt.Errorf("%w: of directories, or to another", errors.ErrUnsupported)
		}
		if n.outside != d.isOutside(to) {
			return fmt.Errorf("%w: only one is of Options.Outside", errors.ErrUnsupported)
		}
		if n.outside {
			if err := vfs.OS.Rename(old, new); err != nil {
				return err
			}
		}
		d.do(change{dir: parent(to), old: from, new: to, node: n})
		return nil
	})
}

func (d *Disk) Remove(name string) error {
	return d.call("remove", name, 0, func(rel string) error {
		n := d.at(rel)
		if n == nil {
			return cmp.Or(d.folderOf(rel), fs.ErrNotExist)
		}
		if n.dir {
			return vfs.ErrNotRegular
		}
		if n.outside {
			if err := vfs.OS.Remove(name); err != nil {
				return err
			}
		}
		d.do(change{dir: parent(rel), old: rel})
		return nil
	})
}

func (d *Disk) Mkdir(name string) error {
	return d.call("mkdir", name, 0, func(rel string) error {
		if err := d.folderOf(rel); err != nil {
			return err
		}
		if n := d.at(rel); n != nil {
			if !n.dir {
				return fs.ErrExist
			}
			return nil
		}
		d.do(change{dir: parent(rel), new: rel, node: &node{dir: true}})
		return nil
	})
}

func (d *Disk) List(dir string) (names []string, err error) {
	err = d.call("list", dir, 0, func(rel string) error {
		d.look()
		switch n := d.at(rel); {
		case n == nil:
			return nil
		case !n.dir:
			return errors.New("not a directory")
		}
		for name := range d.names {
			if parent(name) == rel {
				names = append(names, name[strings.LastIndexByte(name, '/')+1:])
			}
		}
		slices.Sort(names)
		return nil
	})
	return names, err
}

func (d *Disk) Stat(name string) (info vfs.Info, err error) {
	err = d.call("stat", name, 0, func(rel string) error {
		n := d.at(rel)
		if n == nil {
			return cmp.Or(d.folderOf(rel), fs.ErrNotExist)
		}
		if n.outside {
			info, err = vfs.OS.Stat(name)
			return err
		}
		info = n.stat()
		return nil
	})
	return info, err
}

func (d *Disk) SyncDir(dir string) error {
	if dir == filepath.Dir(d.o.Dir) {
		return nil // the name of the disk's own directory is durable
	}
	err := d.call("syncdir", dir, 0, func(rel string) error {
		if n := d.at(rel); n == nil || !n.dir {
			return fs.ErrNotExist
		}
		d.since = slices.DeleteFunc(d.since, func(c change) bool {
			if c.dir == rel {
				c.apply(d.sure)
			}
			return c.dir == rel
		})
		return nil
	})
	if vfs.Passing(err) { // a folder is opened to be synced, and that is what found no file handle, say
		err = fmt.Errorf("%w: %w", vfs.ErrNotSynced, err)
	}
	return err
}

func (d *Disk) Space(dir string) (free uint64, blockBytes int, err error) {
	err = d.call("space", dir, 0, func(string) error {
		free = 1 << 40
		if d.o.Bytes > 0 {
			free = uint64(max(0, d.o.Bytes-d.used()))
		}
		return nil
	})
	return free, pageBytes, err
}
