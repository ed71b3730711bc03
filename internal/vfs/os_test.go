package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// Create makes a new file for its owner only, and never opens one that exists.
func TestCreate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f := create(t, name, pattern(100))
	if f.Name() != name {
		t.Errorf("the name is %s", f.Name())
	}
	if _, err := OS.Create(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("creating it again: %v", err)
	}
	mustEqual(t, "content", content(t, name), pattern(100))
	if info, err := os.Stat(name); err != nil || (runtime.GOOS != "windows" && info.Mode().Perm() != 0o600) {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := OS.Create(filepath.Join(t.TempDir(), "none", "f")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("creating in no directory: %v", err)
	}
}

// Open opens what exists, and only regular files; for reading only if so told.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	create(t, name, pattern(100)).Close()
	if _, err := OS.Open(filepath.Join(dir, "none"), true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, readOnly := range []bool{true, false} {
		if f, err := OS.Open(dir, readOnly); err == nil {
			f.Close()
			t.Errorf("a directory was opened, read-only = %v", readOnly)
		}
		f, err := OS.Open(name, readOnly)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 50)
		if n, err := f.ReadAt(b, 50); n != 50 || err != nil {
			t.Errorf("reads %d, %v", n, err)
		}
		mustEqual(t, "read", b, pattern(100)[50:])
		_, err = f.WriteAt(pattern(100)[:10], 0)
		if (err != nil) != readOnly {
			t.Errorf("read-only = %v: writing gives %v", readOnly, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A closed file does nothing more, least of all to the file that has its descriptor now.
func TestClosedFile(t *testing.T) {
	dir := t.TempDir()
	f := create(t, filepath.Join(dir, "f"), pattern(8192))
	f.Close()
	other := create(t, filepath.Join(dir, "other"), pattern(8192))
	for what, do := range map[string]func() error{
		"sync":     f.Sync,
		"truncate": func() error { return f.Truncate(0) },
		"allocate": func() error { return f.Allocate(0, 1<<20) },
		"punch":    func() error { _, err := f.Punch(0, 8192); return err },
		"write":    func() error { _, err := f.WriteAt([]byte{0}, 0); return err },
		"stat":     func() error { _, err := f.Stat(); return err },
		"close":    f.Close,
	} {
		if err := do(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if m, err := f.Map(8192); err == nil {
		m.Close()
		t.Error("a closed file was mapped")
	}
	mustEqual(t, "the other file", content(t, other.Name()), pattern(8192))
}

// Directories: made once and again, listed in order, nothing where there is none.
func TestDirectories(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "d")
	if names, err := OS.List(dir); len(names) > 0 || err != nil {
		t.Errorf("no directory lists %v, %v", names, err)
	}
	for range 2 {
		if err := OS.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(dir); err != nil || (runtime.GOOS != "windows" && info.Mode().Perm() != 0o700) {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := OS.Mkdir(filepath.Join(top, "no", "d")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory in none: %v", err)
	}
	for _, name := range []string{"b", "c", "a"} {
		create(t, filepath.Join(dir, name), nil).Close()
	}
	if err := OS.Mkdir(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a directory where a file is: %v", err)
	}
	if _, err := OS.List(filepath.Join(dir, "a")); err == nil {
		t.Error("a file was listed")
	}
	if err := OS.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "d")); err != nil {
		t.Error(err)
	}
	if err := OS.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "c")); err != nil {
		t.Errorf("renaming over a file: %v", err)
	}
	if names, err := OS.List(dir); !slices.Equal(names, []string{"c", "d"}) || err != nil {
		t.Errorf("lists %v, %v", names, err)
	}
	if err := OS.SyncDir(dir); err != nil {
		t.Error(err)
	}
	if runtime.GOOS != "windows" {
		if err := OS.SyncDir(filepath.Join(top, "none")); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, ErrNotSynced) {
			t.Errorf("syncing no directory: %v", err)
		}
	}
	if err := OS.Remove(filepath.Join(dir, "c")); err != nil {
		t.Error(err)
	}
	if err := OS.Remove(filepath.Join(dir, "c")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removing it again: %v", err)
	}
}

// Stat tells files from directories, and a file's length from what it occupies.
func TestStat(t *testing.T) {
	dir := t.TempDir()
	f := create(t, filepath.Join(dir, "f"), pattern(5000))
	if err := f.Sync(); err != nil { // some file systems allocate late
		t.Fatal(err)
	}
	byName, err := OS.Stat(f.Name())
	if got := statOf(t, f); err != nil || got != byName || got.Size != 5000 || !got.Regular || got.Dir {
		t.Errorf("%+v, by name %+v, %v", got, byName, err)
	}
	if got, err := OS.Stat(dir); err != nil || !got.Dir || got.Regular {
		t.Errorf("a directory: %+v, %v", got, err)
	}
	if _, err := OS.Stat(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := f.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	if got := statOf(t, f); got.Size != 1<<30 {
		t.Errorf("%+v", got)
	} else if runtime.GOOS != "windows" && got.Allocated >= 1<<30 {
		t.Logf("this file system has no holes: %+v", got)
	}
}

// Space knows a free space and a block size that is a power of two.
func TestSpace(t *testing.T) {
	free, block, err := OS.Space(t.TempDir())
	if err != nil || free == 0 || block < 512 || block&(block-1) != 0 {
		t.Errorf("%d bytes free in blocks of %d, %v", free, block, err)
	}
	if _, _, err := OS.Space(filepath.Join(t.TempDir(), "none")); err == nil && runtime.GOOS != "windows" {
		t.Error("there is space where nothing is")
	}
}
