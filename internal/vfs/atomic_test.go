package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
)

var errInjected = errors.New("injected")

// failing is a file system whose operation number failAt fails; a write that fails writes half.
type failing struct {
	FS
	ops, failAt int
	log         []string
}

func (f *failing) fail(op string) error {
	f.ops++
	f.log = append(f.log, op)
	if f.ops-1 == f.failAt {
		return errInjected
	}
	return nil
}

func (f *failing) Create(name string) (File, error) {
	if err := f.fail("create"); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name)
	return &failingFile{file, f}, err
}

func (f *failing) Rename(old, new string) error {
	if err := f.fail("rename"); err != nil {
		return err
	}
	return f.FS.Rename(old, new)
}

func (f *failing) Remove(name string) error {
	if err := f.fail("remove"); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *failing) SyncDir(dir string) error {
	if err := f.fail("sync dir"); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

type failingFile struct {
	File
	fs *failing
}

func (f *failingFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fs.fail("write"); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, err
	}
	return f.File.WriteAt(b, off)
}

func (f *failingFile) Sync() error {
	if err := f.fs.fail("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *failingFile) Close() error {
	err := f.fs.fail("close")
	return errors.Join(err, f.File.Close())
}

// Whichever operation of it fails, WriteAtomic says so and leaves the old content or the new, whole; and no temporary file.
func TestWriteAtomicFailingAnywhere(t *testing.T) {
	for _, old := range [][]byte{nil, pattern(3000)} {
		for i := 0; ; i++ {
			dir := t.TempDir()
			name := filepath.Join(dir, "f")
			if old != nil {
				create(t, name, old).Close()
			}
			create(t, name+".tmp", []byte("left by a crash")).Close()
			f := &failing{FS: OS, failAt: i}
			err := WriteAtomic(f, dir, name, pattern(5000), anyHead)
			if i >= f.ops { // a run that met no failure
				if err != nil {
					t.Fatal(err)
				}
				mustEqual(t, "content", content(t, name), pattern(5000))
				if want := "[remove create write sync close rename sync dir]"; fmt.Sprint(f.log) != want {
					t.Errorf("the order is %v, want %s", f.log, want)
				}
				break
			}
			op := f.log[i]
			if !errors.Is(err, errInjected) {
				t.Errorf("%s failed: %v", op, err)
			}
			got, rerr := ReadAll(OS, name, 1<<20)
			isOld := bytes.Equal(got, old) && (old != nil) == (rerr == nil)
			isNew := rerr == nil && bytes.Equal(got, pattern(5000))
			if (op == "sync dir") != isNew || isOld == isNew {
				t.Errorf("%s failed: old = %v, new = %v (%d bytes, %v)", op, isOld, isNew, len(got), rerr)
			}
			if _, err := OS.Stat(name + ".tmp"); !errors.Is(err, fs.ErrNotExist) && op != "remove" {
				t.Errorf("%s failed and left the temporary file", op)
			}
		}
	}
}

// An empty file is written too; a directory in the way is an error, and stays.
func TestWriteAtomicOddly(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	for _, b := range [][]byte{pattern(10), nil, pattern(3)} {
		if err := WriteAtomic(OS, dir, name, b, anyHead); err != nil {
			t.Fatal(err)
		}
		mustEqual(t, "content", content(t, name), b)
	}
	for _, inTheWay := range []string{"d", "e.tmp"} {
		if err := OS.Mkdir(filepath.Join(dir, inTheWay)); err != nil {
			t.Fatal(err)
		}
		create(t, filepath.Join(dir, inTheWay, "inside"), nil).Close()
	}
	for _, name := range []string{"d", "e"} {
		if err := WriteAtomic(OS, dir, filepath.Join(dir, name), pattern(10), anyHead); err == nil {
			t.Errorf("%s: a directory was replaced", name)
		}
	}
	if names, err := OS.List(dir); fmt.Sprint(names) != "[d e.tmp f]" || err != nil {
		t.Errorf("left are %v, %v", names, err)
	}
}

// anyHead takes every file for one of ours.
func anyHead([]byte) bool { return true }
