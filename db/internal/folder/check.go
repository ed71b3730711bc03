package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/sessions"
	"github.com/dormousekv/dormouse/wal"
)

// Prepare makes the directory, unless the store is read-only, and refuses one that others can write to, unless shared allows it.
func Prepare(fsys vfs.FS, dir string, readOnly, shared bool) error {
	if !readOnly {
		if err := makeDir(fsys, dir); err != nil {
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
	if err := Unsafe(dir, info, shared); err != nil {
		return err
	}
	for _, name := range []string{LogDir, SegmentsDir, SessionsDir} {
		path := filepath.Join(dir, name)
		switch info, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s: not a directory but %s, which is not followed", path, info.Mode().Type())
		default:
			if err := Unsafe(path, info, shared); err != nil {
				return err
			}
		}
	}
	return nil
}

// Unsafe returns ErrUnsafeDir if somebody else can write to what info describes, unless that is allowed.
func Unsafe(path string, info os.FileInfo, allowed bool) error {
	if why := accessOf(info).othersWrite(os.Geteuid()); why != "" && !allowed {
		return unsafeError(path, why)
	}
	return nil
}

func unsafeError(path, why string) error {
	return fmt.Errorf("%s: %w: %s. AllowSharedDir (--allow-shared-dir) accepts it: for a program that runs as root in a container, say, on a folder of another owner",
		path, ErrUnsafeDir, why)
}

// access is who may use a file or directory.
type access struct {
	mode fs.FileMode
	uid  int // 0 on Windows
}

// CheckFiles refuses files of the store that others can write to, and warns of those that others can read.
func CheckFiles(dir string, shared bool, log *slog.Logger) error {
	if shared {
		return nil
	}
	top, err := os.Stat(dir)
	if err != nil {
		return err
	}
	var read string
	var readable int
	entered, me := accessOf(top).othersRead(), os.Geteuid()
	for _, sub := range []string{"", LogDir, SegmentsDir, SessionsDir} {
		err := filesIn(filepath.Join(dir, sub), func(name string) bool { return HasName(sub, name) }, func(name string, a access) error {
			if why := a.othersWrite(me); why != "" {
				return unsafeError(filepath.Join(dir, sub, name), why)
			}
			if entered && a.othersRead() {
				read, readable = filepath.Join(dir, sub, name), readable+1
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if readable > 0 {
		log.Warn("other users can read what is in the store: chmod -R go= "+dir, "file", read, "files", readable)
	}
	return nil
}

// HasName reports whether a file of that name, in a folder of the store, has a name that the store gives.
func HasName(sub, name string) bool {
	switch sub {
	case LogDir:
		return wal.Named(name)
	case SegmentsDir:
		return segments.Named(name)
	case SessionsDir:
		_, _, ok := sessions.Named(name)
		return ok
	}
	switch name {
	case FormatName, LockName, IndexName, BloomName, UnsyncedName, FormatName + ".tmp", IndexName + ".tmp", BloomName + ".tmp":
		return true
	}
	return false
}

// makeDir makes the directory and those above it, and their names durable: what is acknowledged in a new store survives with it.
// Each is made when the name of the one above it is durable. So a process that was killed here left one name that is not, that of
// the deepest: it is synced, too, unless the directory has a FORMAT, which came after that.
func makeDir(fsys vfs.FS, dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, FormatName)); err == nil {
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
		if err := fsys.SyncDir(filepath.Dir(d)); err != nil && !errors.Is(err, fs.ErrPermission) { // one that may be written to and not read
			return err
		}
	}
	return nil
}
