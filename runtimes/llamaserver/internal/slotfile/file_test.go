package slotfile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// The memory of a file is used again, whatever its length, and no more once somebody has removed its name.
func TestSpareSlotFile(t *testing.T) {
	folder, err := NewFolder("", "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	make := func(size int64) *File {
		t.Helper()
		f, err := folder.Create(size)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Bytes() {
			f.Bytes()[i] = byte(size)
		}
		got, err := os.ReadFile(f.Path) // as the server does
		if err != nil || int64(len(got)) != size || !bytes.Equal(got, f.Bytes()) {
			t.Fatalf("a file of %d bytes has %d (%v)", size, len(got), err)
		}
		return f
	}
	first := make(100_001)
	folder.Done(first)
	for _, size := range []int64{5, 70_000, 200_003, 100_002} {
		f := make(size)
		if f.Name != first.Name {
			t.Errorf("%d bytes are in a new file", size)
		}
		folder.Done(f)
	}
	a, b := make(10), make(20)
	folder.Done(b)
	folder.Done(a)
	if _, err := os.Lstat(a.Path); err == nil {
		t.Error("both of two files are kept")
	}
	os.Remove(b.Path)
	if c := make(30); c.Name == b.Name {
		t.Error("a file without a name is used")
	} else {
		folder.Done(c)
	}
	folder.DropSpare()
	if left, _ := os.ReadDir(folder.Path); len(left) != 1 || left[0].Name() != folderLock {
		t.Errorf("%v are left", left)
	}
	f := make(40)
	folder.spare.drop()
	folder.Done(f)
	if left, _ := os.ReadDir(folder.Path); len(left) != 1 || left[0].Name() != folderLock {
		t.Errorf("%v are left at the end", left)
	}
}

// What fronts left that were killed goes, whatever number their process had; a folder that is in use stays, and one that is being made.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	folder := func(name string, age time.Duration, lock bool) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if lock {
			l, err := vfs.AcquireLock(filepath.Join(path, folderLock), false)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Release() })
			if name == folderPrefix+"left" {
				l.Release()
			}
		}
		when := time.Now().Add(-age)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
		return path
	}
	left := []string{folder(folderPrefix+"left", 0, true), folder(folderPrefix+"old", time.Hour, false)}
	stay := []string{folder(folderPrefix+"used", time.Hour, true), folder(folderPrefix+"new", 0, false), folder("others", time.Hour, false)}
	sweep(dir)
	for _, path := range left {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is there", path)
		}
	}
	for _, path := range stay {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
