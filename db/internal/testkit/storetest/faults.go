package storetest

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Shut is a disk on which files of that name, or with "" all, cannot be opened while shut is set.
func Shut(disk vfs.FS, name string, shut *atomic.Bool, err error) *Disk {
	d := Over(disk)
	d.Before(func(c Call) error {
		if c.Kind == "open" && shut.Load() && (name == "" || filepath.Base(c.Name) == name) {
			return err
		}
		return nil
	})
	return d
}

// Full is a disk on which nothing can be reserved while full is set, and no file be made. What is reserved already stays so.
func Full(full *atomic.Bool) *Disk {
	return Failing(func(c Call) error {
		if !full.Load() {
			return nil
		}
		switch c.Kind {
		case "create":
			return vfs.ErrNoSpace
		case "allocate":
			if info, err := vfs.OS.Stat(c.Name); err != nil || c.Off+c.N > info.Size {
				return vfs.ErrNoSpace
			}
		}
		return nil
	})
}

// MayFail ends the test for an error that is neither a passing one nor that of a put whose prefix is not stored.
func MayFail(t testing.TB, err error) {
	t.Helper()
	if err != nil && !errors.As(err, new(*db.NotStoredError)) && !read.Passing(err) {
		t.Fatal(err)
	}
}
