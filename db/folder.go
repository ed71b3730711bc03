package db

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// prepareDir makes the directory, unless the store is read-only, and refuses one that others can write to.
func prepareDir(dir string, o Options) error {
	if !o.ReadOnly {
		if err := makeDir(dir, o); err != nil {
			return err
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	if err := unsafe(dir, info, o.AllowSharedDir); err != nil {
		return err
	}
	for _, name := range []string{walDir, segmentsDir} {
		path := filepath.Join(dir, name)
		switch info, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s: not a directory but %s, which is not followed", path, info.Mode().Type())
		default:
			if err := unsafe(path, info, o.AllowSharedDir); err != nil {
				return err
			}
		}
	}
	return nil
}

// unsafe returns ErrUnsafeDir if somebody else can write to what info describes, unless that is allowed.
func unsafe(path string, info os.FileInfo, allowed bool) error {
	if why := accessOf(info).othersWrite(os.Geteuid()); why != "" && !allowed {
		return unsafeError(path, why)
	}
	return nil
}

func unsafeError(path, why string) error {
	return fmt.Errorf("%s: %w: %s. Options.AllowSharedDir accepts it: for a program that runs as root in a container, say, on a folder of another owner",
		path, ErrUnsafeDir, why)
}

// access is who may use a file or directory.
type access struct {
	mode fs.FileMode
	uid  int // 0 on Windows
}

// checkFiles refuses files of the store that others can write to, and warns of those that others can read.
func checkFiles(dir string, o Options) error {
	if o.AllowSharedDir {
		return nil
	}
	top, err := os.Stat(dir)
	if err != nil {
		return err
	}
	var read string
	var readable int
	shared, me := accessOf(top).othersRead(), os.Geteuid()
	for _, sub := range []string{"", walDir, segmentsDir} {
		err := filesIn(filepath.Join(dir, sub), func(name string) bool { return hasName(sub, name) }, func(name string, a access) error {
			if why := a.othersWrite(me); why != "" {
				return unsafeError(filepath.Join(dir, sub, name), why)
			}
			if shared && a.othersRead() {
				read, readable = filepath.Join(dir, sub, name), readable+1
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if readable > 0 {
		o.Logger.Warn("other users can read what is in the store: chmod -R go= "+dir, "file", read, "files", readable)
	}
	return nil
}

// hasName reports whether a file of that name, in a folder of the store, has a name that the store gives.
func hasName(sub, name string) bool {
	switch sub {
	case walDir:
		return wal.Named(name)
	case segmentsDir:
		return segments.Named(name)
	}
	switch name {
	case formatName, lockName, indexName, bloomName, unsyncedName, formatName + ".tmp", indexName + ".tmp", bloomName + ".tmp":
		return true
	}
	return false
}

// refuseOthers keeps a new store from being made among somebody's files, and changes nothing. A directory is a store if FORMAT says so,
// or, where that is missing or damaged, a segment. Else there is nothing in it but what the making of a store leaves that came to no end.
func refuseOthers(o Options, dir string) error {
	if o.ReadOnly {
		return nil
	}
	for try := 0; ; try++ {
		_, _, err := readFormat(o.fs, dir)
		switch {
		case err == nil, errors.Is(err, ErrVersion):
			return nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrCorrupt) && !errors.Is(err, vfs.ErrNotRegular):
			return err // too many open files, say
		}
		name, why := stranger(o.fs, dir)
		if name == "" {
			return why
		}
		if _, ferr := o.fs.Stat(filepath.Join(dir, formatName)); ferr == nil && errors.Is(err, fs.ErrNotExist) && try < 9 {
			continue // another process was just making a store here
		}
		if name == formatName {
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
		case info.Dir && (name == walDir || name == segmentsDir):
			inside, err := fsys.List(path)
			if err != nil {
				return "", err
			}
			if len(inside) > 0 {
				return filepath.Join(name, inside[0]), nil
			}
			continue
		case info.Regular && name == lockName:
			err = vfs.CheckOwn(fsys, path, vfs.IsLock)
		case info.Regular && name == formatName+".tmp":
			err = vfs.CheckOwn(fsys, path, isFormat)
		default:
			return name, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return name, err
		}
	}
	return "", nil
}

// refuseForeign returns ErrForeign if a file with a name of ours proves to be somebody else's. The index and the log see to that themselves.
func (e *engine) refuseForeign() error {
	if err := index.ForeignBloom(e.fs, e.path(bloomName), e.format.UUID); err != nil {
		return err
	}
	// A folder is done without, a link leads to nothing of ours; what else there is would be replaced.
	if info, err := e.fs.Stat(e.path(bloomName)); err == nil && !info.Regular && !info.Link && !info.Dir {
		return fmt.Errorf("%s: %w: %w", e.path(bloomName), ErrForeign, vfs.ErrNotRegular)
	}
	return e.refuseUnsynced()
}

// refuseUnsynced is refuseForeign for the file that is removed in the end: it must be empty, or what was the Bloom filter.
func (e *engine) refuseUnsynced() error {
	err := vfs.CheckOwn(e.fs, e.path(unsyncedName), func(head []byte) bool { return index.IsBloom(head, e.format.UUID) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// refuseUnproven is refuseForeign where FORMAT is not there to say that the directory is a store: then each file must say for itself that it
// is the store's, but for the segments, of which one has said so.
func (e *engine) refuseUnproven() error {
	ours, err := index.Whose(e.indexOptions())
	if err == nil && !ours {
		err = fmt.Errorf("%s: %w: nothing in it says that it is the store's, and there is no FORMAT", e.path(indexName), ErrForeign)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrNotRegular) {
		err = vfs.CheckOwn(e.fs, e.path(bloomName), func(head []byte) bool { return index.IsBloom(head, e.format.UUID) })
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = wal.Unproven(e.walOptions())
	}
	return err
}

// makeDir makes the directory and those above it, and their names durable: what is acknowledged in a new store survives with it.
// Each is made when the name of the one above it is durable. So a process that was killed here left one name that is not, that of
// the deepest: it is synced, too, unless the directory has a FORMAT, which came after that.
func makeDir(dir string, o Options) error {
	if _, err := os.Lstat(filepath.Join(dir, formatName)); err == nil {
		return nil
	}
	missing := []string{dir}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, filepath.Dir(d))
	}
	for _, d := range slices.Backward(missing) { // the first is there
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
		if err := o.fs.SyncDir(filepath.Dir(d)); err != nil && !errors.Is(err, fs.ErrPermission) { // one that may be written to and not read
			return err
		}
	}
	return nil
}
